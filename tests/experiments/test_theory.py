"""The binary on tiny sizes: files, tables, and a verdict on every claim."""

import json

import pytest
from absl.testing import flagsaver

from experiments import theory
from experiments.claims import convergence, fairness, temperature
from tests.support.runs import binary

pytestmark = pytest.mark.usefixtures("parsed_flags", "x64")


@pytest.mark.slow
def test_everything_is_written_and_every_claim_has_a_verdict(tmp_path, capsys, monkeypatch):
    for name in ("draw_maps", "draw_course"):
        monkeypatch.setattr(theory, name, lambda *args: args[-1].touch())
    few = {name: fairness.SETTINGS[name] for name in ("outlier", "convex")}
    monkeypatch.setattr(fairness, "SETTINGS", few)
    monkeypatch.setattr(temperature, "uniqueness", lambda seed, solve=temperature.uniqueness: solve(seed, 1, 2, 4))
    monkeypatch.setattr(temperature, "limits", lambda seed, solve=temperature.limits: solve(seed, 3, 4))
    monkeypatch.setattr(theory, "COURSES", 2)
    course = convergence.course
    monkeypatch.setattr(convergence, "course", lambda key, count, lengths: course(key, count, lengths, (1.0,)))
    with flagsaver.flagsaver(out=str(tmp_path), federations=20, courses=2, longest=32):
        theory.main()
    found = json.loads((tmp_path / "theory.json").read_text())
    assert found["environment"]["machine"]["cores"] >= 1
    assert len(found["claims"]) == 2 + 2 * len(few) + 2 + 2 + 2
    assert {claim["verdict"] for claim in found["claims"]} <= {"holds", "holds in part", "fails"}
    assert found["convergence"]["rounds"] == [8, 32]
    outlier = next(c for c in found["claims"] if "one outlier; by Definition 3.1" in c["claim"])
    assert outlier["verdict"] == "holds"
    shown = capsys.readouterr().out
    assert "FedEBA, tau = 5.311" in shown
    assert "appendix I.3" in (tmp_path / "theory.md").read_text()
    assert (tmp_path / "fairness.png").exists()


@pytest.mark.slow
def test_the_pictures(tmp_path):
    done = binary("experiments.theory", "--federations=20", "--courses=2", "--longest=64", f"--out={tmp_path}")
    assert done.returncode == 0, done.stderr
    for name in ("fairness", "convergence"):
        for ending in ("png", "svg"):
            assert (tmp_path / f"{name}.{ending}").stat().st_size > 1000
