"""README, FINDINGS and results/ agree: figures are generated, claims are judged only where results are committed."""

import importlib.util
import re

import pytest

from experiments.execution import again, folder
from experiments.paper import claims, evidence, presets
from tests.support.pages import ROOT

FINDINGS = (ROOT / "FINDINGS.md").read_text()
SECTIONS = {
    int(number): text for number, text in re.findall(r"^## (\d+)\. (.*?)(?=^## )", FINDINGS, re.MULTILINE | re.DOTALL)
}
FOLDERS = evidence.folders_in(ROOT / "results")


@pytest.fixture(scope="module")
def generate():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_every_claim_has_a_section_and_a_verdict():
    assert list(SECTIONS) == list(claims.CLAIMS)
    for number, text in SECTIONS.items():
        (verdict,) = re.findall(r"^\*\*Verdict:\*\* (.*?)(?: \(.*\))?\.$", text, re.MULTILINE)
        assert verdict in claims.VERDICTS, f"claim {number}: {verdict}"


def test_only_claims_with_committed_results_are_judged(generate):
    """`not testable here` needs none; what theory and figures show is judged by hand, with a link to what shows it."""
    for number, witnesses in claims.CLAIMS.items():
        judged = not re.search(r"\*\*Verdict:\*\* not (yet judged|testable here)", SECTIONS[number])
        found = [generate.NOTHING not in generate.findings(number).split("\n\n")[0]] if witnesses else []
        assert not judged or any(found) or "](" in SECTIONS[number], f"claim {number} is judged without results"


@pytest.mark.parametrize("number", [number for number, witnesses in claims.CLAIMS.items() if witnesses])
def test_witnesses_are_rows_of_presets(number):
    for table, task, rows, measures, control in claims.CLAIMS[number]:
        preset = presets.presets()[table]
        known = {row.label for row in preset.rows if row.task == task}
        assert set(rows) <= known, set(rows) - known
        assert set(measures) <= {*preset.measures, "variance_corrected"}
        assert not control or control in rows


def test_a_figure_in_findings_changes_with_the_results(generate, monkeypatch):
    """No number stands in a generated part that is not from results/: with other rows, other numbers stand there."""
    with monkeypatch.context() as patch:
        patch.setattr(generate, "committed", dict)
        generate.sheet.cache_clear()
        for number, witnesses in claims.CLAIMS.items():
            assert generate.findings(number).count(generate.NOTHING) == len(witnesses)
        assert "no run" in generate.main_results().lower()
        parts = (generate.noise, generate.alone, generate.other_settings)
        for part in (*parts, generate.readings_of_the_paper, generate.by_the_best, generate.steadiness):
            generate.sheets_by_reading.cache_clear()
            assert part() == generate.NOTHING
    generate.sheet.cache_clear()
    generate.sheets_by_reading.cache_clear()


def test_committed_folders_are_small_whole_and_of_a_commit():
    assert FOLDERS
    for path in FOLDERS:
        assert folder.is_packed(path), f"{path}: pack it (experiments.archive)"
        assert {file.name for file in path.iterdir()} == {"experiment.json", "results.jsonl.xz", "timings.jsonl.xz"}
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
