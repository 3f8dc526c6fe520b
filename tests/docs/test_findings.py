"""README, FINDINGS and results/ agree: figures are generated, claims are judged only where results are committed."""

import json
import re
import shutil

import pytest
from absl import flags
from absl.testing import flagsaver

from docs import generate
from docs.parts import NOTHING, findings, held, studies, theory
from experiments import tune
from experiments.execution import again, folder, session
from experiments.paper import claims, evidence, presets, proofs
from tests.support.pages import ROOT

FINDINGS = (ROOT / "FINDINGS.md").read_text()
SECTIONS = {
    int(number): text for number, text in re.findall(r"^## (\d+)\. (.*?)(?=^## )", FINDINGS, re.MULTILINE | re.DOTALL)
}
FOLDERS = evidence.folders_in(ROOT / "results")


def test_every_claim_has_a_section_and_a_verdict():
    assert list(SECTIONS) == list(claims.CLAIMS)
    for number, text in SECTIONS.items():
        (verdict,) = re.findall(r"^\*\*Verdict:\*\* (.*?)(?: \(.*\))?\.$", text, re.MULTILINE)
        assert verdict in claims.VERDICTS, f"claim {number}: {verdict}"


def test_only_claims_with_committed_results_are_judged():
    """`not testable here` needs none; what theory and figures show is judged by hand, with a link to what shows it."""
    for number, witnesses in claims.CLAIMS.items():
        judged = not re.search(r"\*\*Verdict:\*\* not (yet judged|testable here)", SECTIONS[number])
        found = [NOTHING not in findings.claim(number).split("\n\n")[0]] if witnesses else []
        assert not judged or any(found) or "](" in SECTIONS[number], f"claim {number} is judged without results"


@pytest.mark.parametrize("number", [number for number, witnesses in claims.CLAIMS.items() if witnesses])
def test_witnesses_are_rows_of_presets(number):
    for table, task, rows, measures, control in claims.CLAIMS[number]:
        preset = presets.presets()[table]
        known = {row.label for row in preset.rows if row.task == task}
        assert set(rows) <= known, set(rows) - known
        assert set(measures) <= {*preset.measures, "variance_corrected"}
        assert not control or control in rows


def test_a_figure_in_findings_changes_with_the_results(monkeypatch):
    """No number stands in a generated part that is not from results/: with other rows, other numbers stand there."""
    with monkeypatch.context() as patch:
        patch.setattr(findings, "committed", dict)
        findings.sheet.cache_clear()
        for number, witnesses in claims.CLAIMS.items():
            assert findings.claim(number).count(NOTHING) == len(witnesses)
        assert "no run" in findings.main_results().lower()
        parts = (findings.noise, findings.alone, findings.other_settings, findings.annealing, findings.courses_by_task)
        for part in (*parts, findings.readings_of_the_paper, findings.by_the_best, findings.steadiness):
            findings.sheets_by_reading.cache_clear()
            assert part() == NOTHING
    findings.sheet.cache_clear()
    findings.sheets_by_reading.cache_clear()


def test_committed_folders_are_small_whole_and_of_a_commit():
    assert FOLDERS
    for path in FOLDERS:
        assert folder.is_packed(path), f"{path}: pack it (experiments.archive)"
        packed = {"experiment.json", "results.jsonl.xz", "timings.jsonl.xz"}
        views = {held.SUMMARY, held.PLANE}  # of the rows, for those who look
        assert {file.name for file in path.iterdir()} == packed | views
        assert sum(file.stat().st_size for file in path.iterdir()) < 4_000_000
        content = folder.description(path)
        assert all(origin["commit"] for origin in content["origins"])
        assert again.recorded(path).keys() <= content["runs"].keys()


@pytest.mark.parametrize("path", FOLDERS, ids=lambda path: path.name)
def test_committed_runs_can_be_asked_for_again(path):
    """Each record makes a run of this code, of the same name: what --check, and resuming, rely on."""
    task = folder.description(path)["task"]
    for run, rows in again.recorded(path).items():
        assert again.as_run(rows[0], task).id == run


@pytest.mark.parametrize("path", FOLDERS, ids=lambda path: path.name)
def test_summaries_are_of_the_committed_rows(path):
    """To the digit; of the picture only that there is one, as versions of matplotlib draw other bytes."""
    text = (path / held.SUMMARY).read_text()
    assert text == held.summary(path), f"{path.name}: run .venv/bin/python -m docs.generate"
    columns = text.splitlines()[0].split(",")
    assert {"algorithm", "seeds", "variance_corrected_ci95_low", "worst5_mean", "best5_ci95_high"} <= set(columns)
    picture = (path / held.PLANE).read_text()
    assert "<svg" in picture
    assert len(picture) < 150_000


def test_a_summary_with_another_digit_is_noticed_and_written_anew(tmp_path):
    path = shutil.copytree(ROOT / "results" / "fashion_mnist_mlp-server", tmp_path / "folder")
    right = (path / held.SUMMARY).read_text()
    assert not held.write_summaries(path)
    head, row, _ = right.split("\n", 2)
    mean = row.split(",")[head.split(",").index("variance_mean")]
    doctored = mean[:-1] + str((int(mean[-1]) + 1) % 10)
    (path / held.SUMMARY).write_text(right.replace(mean, doctored, 1))
    (path / held.PLANE).write_text("an older picture")
    assert held.write_summaries(path)
    assert (path / held.SUMMARY).read_text() == right
    assert "<svg" in (path / held.PLANE).read_text()


def test_every_folder_says_how_it_was_made(monkeypatch):
    made = held.how_made()
    for path in FOLDERS:
        assert held.commands(path)
        assert f"| `{path.name}` |" in made
    assert held.MADE_BY.keys() <= {path.name for path in FOLDERS}
    monkeypatch.setattr(presets, "presets", dict)
    path = ROOT / "results" / "fashion_mnist_mlp-server"
    every = len(again.recorded(path))
    with pytest.raises(SystemExit, match=f"no preset asks for {every} of its runs; name its command in MADE_BY"):
        held.commands(path)


TUNED = evidence.folders_in(studies.TUNING)


def test_the_committed_tuning_follows_from_its_rows(monkeypatch, tmp_path, capsys):
    """The preset, for the methods that are tuned, trains nothing and comes to the committed file."""
    flags.FLAGS(["test"])
    trained = []
    monkeypatch.setattr(session, "set_up", lambda: None)
    monkeypatch.setattr(session, "run", lambda runs, place, *_, **__: trained.append((place.name, len(runs))))
    committed = studies.tuning_record()
    given = studies.flags() | {"algorithm": ",".join(committed["methods"]), "out": str(tmp_path / "out")}
    with flagsaver.as_parsed(**given):
        tune.main()
    capsys.readouterr()
    assert not trained
    assert json.loads((tmp_path / "out" / "tune.json").read_text()) == committed


@pytest.mark.parametrize("path", TUNED, ids=lambda path: path.name)
def test_folders_of_the_tuning_are_small_whole_and_of_a_commit(path):
    assert {file.name for file in path.iterdir()} == {"experiment.json", "results.jsonl.xz", "timings.jsonl.xz"}
    assert sum(file.stat().st_size for file in path.iterdir()) < 1_000_000
    content = folder.description(path)
    assert all(re.fullmatch("[0-9a-f]{40}", origin["commit"]) for origin in content["origins"])
    for run, rows in again.recorded(path).items():
        assert again.as_run(rows[0], content["task"]).id == run


def test_the_words_of_verdicts_are_explained():
    section = (ROOT / "docs" / "statistics.md").read_text().split("### The words of Findings")[1].split("\n## ")[0]
    assert tuple(re.findall(r"^\| ([\w ]+) \| (?!when)", section, re.MULTILINE)) == claims.VERDICTS


def test_committed_theory_is_of_a_commit_and_judged_as_the_code_does():
    made = proofs.read(ROOT / theory.FIGURES)
    assert re.fullmatch("[0-9a-f]{40}", made.environment["commit"])  # and of no changed tree
    assert made.claims == proofs.judged(made.figures)
    assert (ROOT / theory.FIGURES).stat().st_size < 200_000


def test_verdicts_on_theory_are_those_of_its_figures():
    """Claim 18 is a theorem of two parts, of which the first fails; claim 19 is one statement, which holds."""
    found = {one.claim: one.verdict for one in theory.record().claims}
    regression = [verdict for claim, verdict in found.items() if "regression, losses after training" in claim]
    assert regression == ["fails", "fails"]
    assert [verdict for claim, verdict in found.items() if "outlier; by Definition 3.1" in claim] == ["holds"]
    assert next(verdict for claim, verdict in found.items() if claim.startswith("on the toy case")) == "fails"
    assert "**Verdict:** does not hold" in SECTIONS[18]
    assert proofs.on_convergence(theory.record().figures)[0].verdict == "holds"
    assert "**Verdict:** holds (" in SECTIONS[19]


DOCTORED = [
    (("fairness", "maps", "regression", "definition", 4, 0), {"docs/theory.md", "FINDINGS.md"}),
    (("fairness", "maps", "convex", "proof", 2, 3), {"docs/theory.md"}),
    (("toy", "cases", 1, "variance"), {"docs/theory.md", "FINDINGS.md"}),
    (("toy", "fairer_above"), {"docs/theory.md", "FINDINGS.md"}),
    (("limits", "on_the_worst"), {"docs/theory.md"}),
    (("convergence", "fedavg", 0), {"docs/theory.md", "FINDINGS.md"}),
    (("federations",), {"docs/theory.md", "FINDINGS.md"}),
]


@pytest.mark.parametrize(("place", "pages"), DOCTORED, ids=[".".join(map(str, place)) for place, _ in DOCTORED])
def test_a_figure_of_the_theory_with_another_digit_is_noticed(monkeypatch, tmp_path, place, pages):
    content = json.loads((ROOT / theory.FIGURES).read_text())
    *way, last = place
    held = content
    for step in way:
        held = held[step]
    held[last] *= 0.9
    (tmp_path / proofs.FILE).write_text(json.dumps(content))
    doctored = proofs.read(tmp_path / proofs.FILE)
    monkeypatch.setattr(theory, "record", lambda: doctored)
    changed = {
        file
        for file, parts in generate.PARTS.items()
        for name, make in parts.items()
        if (file == "docs/theory.md" or name in ("claim 18", "claim 19")) and make() not in (ROOT / file).read_text()
    }
    assert changed == pages
