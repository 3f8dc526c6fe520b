"""Tables beside the paper's: intervals, differences, verdicts, and what was not run."""

import csv
import io

import pytest

from experiments.execution import folder
from experiments.paper import claims, comparison, costs, drawing, evidence, presets, standing
from experiments.paper.presets import Panel
from experiments.paper.rows import Row
from tests.support import folders
from tests.support.folders import write_folder

PERFORMANCE = presets.presets()["performance"]
TASK = "fashion_mnist_mlp"
SEEDS = tuple(range(8))
FEDAVG, EBA = (
    next(row for row in PERFORMANCE.rows if (row.task, row.label) == (TASK, label))
    for label in ("fedavg", "fedeba_plus tau=0.1 alpha=0.9")
)


def with_options(name, server):
    return Row(TASK, name, {"server": server} if server else {})


def figures_of(row, seed):
    """Accuracy and variance: FedEBA+ has 30 to 38 less variance at every seed, and no other accuracy on average."""
    shift = 0.0 if row.algorithm == "fedavg" else 30.0 + seed
    sign = (-1) ** seed if shift else 0
    return [(86.0 + 0.1 * seed + 0.2 * sign, 90.0 + seed - shift)] * 5


def write(path, rows, seeds=SEEDS, timings=()):
    """A folder with made-up figures of these rows at 2,000 rounds."""
    runs = [run for row in rows for run in row.runs(seeds)]
    made = []
    for row in rows:
        for run in row.runs(seeds):
            record = folder.cleaned(run.record)
            made.append(
                folders.Run(
                    run.algorithm, {"test": figures_of(row, run.seed)}, record["hparams"], run.seed, record["settings"],
                    planned=10,
                )
            )  # fmt: skip
    assert len(runs) == len(made)
    return write_folder(path, made, task=TASK, timings=timings)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    root = tmp_path_factory.mktemp("results")
    write(root / TASK, [FEDAVG, EBA], timings=[{"runs": ["0"], "rounds": 10, "seconds": 5.0, "compiled": False}])
    series = evidence.gather(evidence.folders_in(root)).values()
    assert len(series) == 2 * len(SEEDS)
    return evidence.gather(evidence.folders_in(root))


def sheet(found, rows=None, **options):
    rows = rows or [row for row in PERFORMANCE.rows if row.task == TASK]
    return comparison.sheet(PERFORMANCE, TASK, rows, lambda row: row.runs(SEEDS), found, **options)


@pytest.fixture(autouse=True)
def ten_rounds(monkeypatch):
    """The made-up runs have ten rounds, so the asked ones have, too."""
    whole = Row.runs
    monkeypatch.setattr(
        Row, "runs", lambda row, seeds, changes=None: whole(row, seeds, {"rounds": 10, **(changes or {})})
    )


def test_ours_stands_beside_the_papers_with_a_verdict(found):
    made = sheet(found)
    by_label = {entry.row.label: entry for entry in made.entries}
    cell = by_label[EBA.label].cells["variance"]
    assert cell.mean == pytest.approx(60.0)
    assert cell.interval == pytest.approx((60.0, 60.0))
    assert cell.printed == (43.41, 4.34)
    assert cell.difference == pytest.approx(60.0 - 43.41)
    assert cell.inside is False
    assert cell.against.verdict == "better"
    assert cell.against.difference == pytest.approx(-33.5)
    assert by_label[EBA.label].cells["mean"].against.verdict == "no difference shown"
    assert by_label["fedavg"].cells["variance"].against is None
    low, high = by_label["fedavg"].cells["mean"].interval
    assert low < 86.35 < high
    assert by_label["fedavg"].cells["mean"].inside is (low <= 86.49 <= high)
    assert by_label["qffl q=0.5"].status == "not run"
    assert [column.key for column in made.columns] == ["mean", "variance", "variance_corrected", "worst5", "best5"]
    assert any("PropFair" in note for note in made.notes)


def test_the_terminal_markdown_and_csv_say_the_same(found, capsys):
    made = sheet(found, [FEDAVG, EBA, Row(TASK, "qffl", {"q": "0.5"})])
    comparison.show(made)
    shown = capsys.readouterr().out
    for text in (
        "60.00 [60.00, 60.00]",
        "paper 43.41 ± 4.34: +16.59, outside",
        "FedAvg: -33.50 [-35.50, -31.50]",
        "p 0.0078, better",
        "not run",
        "0 of 8",
    ):
        assert text in shown
        assert text in comparison.to_markdown(made)
    rows = list(csv.DictReader(io.StringIO(comparison.to_csv(made))))
    variance = next(row for row in rows if row["row"] == EBA.label and row["measure"] == "variance")
    assert float(variance["difference"]) == pytest.approx(16.59)
    assert (variance["verdict"], variance["inside"]) == ("better", "False")
    assert next(row for row in rows if row["row"].startswith("qffl"))["status"] == "not run"


def test_on_another_task_the_papers_numbers_are_left_out(found):
    made = sheet(found, same=False)
    assert all(cell.printed is None for entry in made.entries for cell in entry.cells.values())
    assert made.notes == ["ours: the mean of the last 2 evaluations"]


def test_a_difference_has_one_verdict_whatever_else_is_shown(tmp_path):
    """p-values are corrected over all rows on the task that were run, of whichever table, each once."""
    others = [row for row in PERFORMANCE.rows if row.task == TASK and row.algorithm in ("qffl", "term")]
    angles = [row for row in presets.presets()["theta"].rows if (row.task, row.given.get("theta")) == (TASK, "0")]
    write(tmp_path / TASK, [FEDAVG, EBA, *others])
    found = evidence.gather([tmp_path / TASK])
    adjusted = {
        sheet(found, rows).entries[0].cells["mean"].against.adjusted
        for rows in ([EBA], [EBA, FEDAVG], [EBA, *others], angles)
    }
    assert len(adjusted) == 1
    few = write(tmp_path / "few", [FEDAVG, EBA])
    assert sheet(evidence.gather([few]), [EBA]).entries[0].cells["variance"].against.adjusted == 2 / 2**8


def test_few_seeds_have_no_interval_and_no_verdict(tmp_path):
    write(tmp_path / TASK, [FEDAVG, EBA], seeds=(0, 1))
    made = sheet(evidence.gather([tmp_path / TASK]), [FEDAVG, EBA])
    cell = made.entries[1].cells["variance"]
    assert (cell.interval, cell.inside, cell.against.verdict) == (None, None, "too few seeds")
    assert comparison.texts(cell, 2)[0] == "60.00 ± 0.00"
    assert [entry.asked for entry in made.entries] == [8, 8]


def test_a_row_that_diverged_says_so(tmp_path):
    (run,) = FEDAVG.runs((0,))
    record = folder.cleaned(run.record)
    made = folders.Run(
        "fedavg", {"test": [(1.0, 1.0)] * 5}, record["hparams"], 0, record["settings"], planned=10, diverged=2
    )
    write_folder(tmp_path / TASK, [made], task=TASK)
    (entry,) = sheet(evidence.gather([tmp_path / TASK]), [FEDAVG]).entries
    assert entry.status == "diverged: seed 0 in round 2"
    assert comparison.texts(entry.cells["mean"], 2) == ["diverged"]


def test_rows_with_options_are_compared_with_a_fedavg_that_has_them():
    plain = with_options("fedavg", "")
    momentum, eba = (with_options(name, "momentum(0.9)") for name in ("fedavg", "fedeba_plus"))
    rows = [eba, plain, momentum]
    assert [comparison.baseline(number, rows) for number in range(3)] == [2, None, 1]
    assert comparison.baseline(0, [eba, plain]) == 1
    assert comparison.baseline(0, [eba]) is None


def test_a_cell_names_its_baseline_where_it_is_not_plain_fedavg(tmp_path):
    momentum, eba = (with_options(name, "momentum(0.9)") for name in ("fedavg", "fedeba_plus"))
    rows = [FEDAVG, momentum, eba]
    write(tmp_path / TASK, rows)
    made = sheet(evidence.gather([tmp_path / TASK]), rows)
    cells = [entry.cells["variance"] for entry in made.entries]
    assert [cell.baseline for cell in cells] == ["fedavg", "fedavg", momentum.label]
    assert comparison.texts(cells[1], 2)[-2:] == ["FedAvg: +0.00 [+0.00, +0.00]", "p 1, no difference shown"]
    assert comparison.texts(cells[2], 2)[-3:] == [f"{momentum.label}:", "-33.50 [-35.50, -31.50]", "p 0.016, better"]
    witness = claims.Witness("performance", TASK, tuple(row.label for row in rows), ("variance",))
    told = [line[-1] for line in claims.lines(witness, made)]
    assert told == [
        "",
        "+0.00 [+0.00, +0.00], p 1, no difference shown",
        "-33.50 [-35.50, -31.50] against `fedavg server=momentum(0.9)`, p 0.016, better",
    ]
    written = csv.DictReader(io.StringIO(comparison.to_csv(made)))
    assert {(row["row"], row["baseline"] or "") for row in written} == {
        (FEDAVG.label, ""), (momentum.label, "fedavg"), (eba.label, momentum.label),
    }  # fmt: skip


def test_with_other_rounds_the_papers_number_stands_there_and_is_not_compared(found):
    """The made-up runs have ten rounds; a paper that has 2,000 is asked for its own."""

    class Longer(Row):
        def runs(self, seeds, changes=None):
            return super().runs(seeds, changes or {"rounds": 2000})

    row = Longer(*EBA)
    made = comparison.sheet(PERFORMANCE, TASK, [row], lambda row: row.runs(SEEDS, {"rounds": 10}), found)
    cell = made.entries[0].cells["variance"]
    assert (cell.printed, cell.paper_rounds) == ((43.41, 4.34), 2000)
    assert (cell.difference, cell.inside) == (None, None)
    assert comparison.texts(cell, 2)[:2] == ["60.00 [60.00, 60.00]", "paper 43.41 ± 4.34 after 2000 rounds"]
    written = next(row for row in csv.DictReader(io.StringIO(comparison.to_csv(made))) if row["measure"] == "variance")
    assert [written[name] for name in ("paper", "paper_rounds", "difference", "inside")] == ["43.41", "2000", "", ""]


def test_rows_of_older_code_lack_settings_that_had_their_defaults(tmp_path):
    (run,) = EBA.runs((0,))
    record = folder.cleaned(run.record)
    hparams = {name: value for name, value in record["hparams"].items() if name != "fair_scale"}
    settings = {name: value for name, value in record["settings"].items() if name != "state_dtype"} | {"eval_every": 7}
    old = folders.Run(run.algorithm, {"test": [(1.0, 1.0)]}, hparams, 0, settings, planned=2)
    other = old._replace(hparams=hparams | {"fair_scale": 1.0})
    write_folder(tmp_path / "old", [old, other], task=TASK)
    found = evidence.gather([tmp_path / "old"])
    (run,) = EBA.runs((0,), {"rounds": 2})
    assert evidence.key(run) in found
    assert len(found) == 2


def test_standings_count_rows_and_tell_what_is_missing(found, tmp_path):
    one = standing.standings(PERFORMANCE, found, str(tmp_path))[0]
    assert (one.task, one.done, one.runs, one.state) == (TASK, 2, 12, standing.PARTLY)
    assert one.missing == 6 * (one.rows - 2)
    assert "measured" in str(one.per_row["fedavg"])  # 5 s for 10 rounds of one run
    assert one.per_row["fedavg"].seconds == pytest.approx(6 * 5.0)
    assert "estimated" in str(one.per_row["qffl q=0.5"])
    told = standing.described(PERFORMANCE, standing.standings(PERFORMANCE, found, str(tmp_path)), rows=True)
    assert told[0] == "table performance: partly done"
    assert any("make data DATASET=cifar10" in line for line in told)
    assert any("erratum" in line for line in told)
    reddit = presets.presets()["reddit"]
    assert standing.state(reddit, standing.standings(reddit, found, str(tmp_path))) == standing.NOT_HERE
    small = PERFORMANCE._replace(rows=(FEDAVG, EBA))
    assert standing.state(small, standing.standings(small, found, str(tmp_path))) == standing.DONE
    assert "it is a drawing" in "\n".join(standing.described(presets.presets()["gradient_alignment_sketch"], []))


def test_costs_are_said_as_people_say_them():
    assert [costs.duration(seconds) for seconds in (3, 200, 7000, 200_000)] == ["3 s", "3.3 min", "1.9 h", "2.3 days"]
    unknown = costs.Cost(None, measured=False)
    assert str(costs.total([unknown, costs.Cost(1.0, measured=True)])) == "time not known"
    assert str(costs.total([costs.Cost(1.0, measured=True)] * 2)) == "2 s (measured)"


def test_every_kind_of_pane_is_drawn(found, tmp_path):
    kinds = (("plane", ("mean", "variance")), ("curves", ("mean",)), ("bars", ("worst5", "best5")), ("line", ("mean",)))
    panels = tuple(Panel(kind, TASK, (FEDAVG, EBA), measures, "tau") for kind, measures in kinds)
    settings = [(row.label, evidence.setting(row.runs(SEEDS), row.given, found)) for row in (FEDAVG, EBA)]
    files = drawing.draw(PERFORMANCE._replace(panels=panels), [settings] * 4, tmp_path)
    assert [file.name for file in files] == ["performance.png", "performance.svg"]
    assert {kind for kind, _ in kinds} == drawing.KINDS.keys()
    drawn = files[1].read_text()
    assert drawn.count(f"{TASK}, seeds 0 to 7") == 4
    with pytest.raises(drawing.Skipped, match="nothing of it was run yet"):
        drawing.draw(PERFORMANCE._replace(panels=panels), [[]] * 4, tmp_path)


def test_the_rows_of_a_claim_are_compared_with_its_control(found):
    """Here FedAvg is the control: the last column says what the one before it says."""
    witness = claims.Witness("performance", TASK, (FEDAVG.label, EBA.label), ("variance",), control=FEDAVG.label)
    of_fedavg, of_eba = claims.lines(witness, sheet(found))
    assert of_fedavg[-1] == ""
    assert of_eba[-1] == of_eba[-2] == "-33.50 [-35.50, -31.50], p 0.0078, better"
    without = claims.lines(witness._replace(control=""), sheet(found))
    assert without == [of_fedavg[:-1], of_eba[:-1]]
