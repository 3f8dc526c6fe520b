"""The rule that chooses a point, the verdicts of a tuning, and what its table says."""

import json
import math

import pytest

from experiments.execution.folder import cleaned
from experiments.reporting import tuning
from experiments.reporting.loading import load
from experiments.reporting.statistics import BETTER, NO_DIFFERENCE, TOO_FEW, WORSE
from experiments.reporting.tables import plain_markdown
from experiments.reporting.tuning import Method, Trial
from tests.support.folders import Run, write_folder

NAN = math.nan


def trials(*figures):
    return [Trial(10, accuracy, variance) for accuracy, variance in figures]


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ([(80, 50), (90, 70)], [1, 0]),  # accuracy
        ([(89.6, 50), (90, 70), (89.4, 1)], [0, 1, 2]),  # of those within half a point, the fairest
        ([(89.5, 50), (90, 70)], [0, 1]),  # half a point is within
        ([(70, 5), (80, 9), (90, 70)], [2, 1, 0]),  # the others by accuracy, however fair
        ([(NAN, NAN), (10, 5)], [1]),  # diverged
        ([(NAN, NAN)], []),
        ([(90, 50), (90, 50)], [0, 1]),  # a tie goes to the earlier point
    ],
)
def test_the_rule(figures, expected):
    assert tuning.ordered(trials(*figures)) == expected


def test_rungs_and_tests_have_figures_by_the_same_rule(tmp_path):
    """Of five evaluations the last two."""
    figures = {"test": [(10.0 * i, 1.0) for i in range(1, 6)], "validation": [(5.0 * i, 2.0) for i in range(1, 6)]}
    series = load([write_folder(tmp_path / "f", [Run("fedavg", figures)])])
    assert tuning.trial(series, 10) == Trial(10, 22.5, 2)
    assert tuning.tested(series)["mean"] == {0: 45}
    assert tuning.tested(series)["variance_corrected"] == {0: 0.9}, "the noise is a tenth"


def test_figures_are_what_their_file_has(tmp_path):
    """To the bit, so that intervals and verdicts are the same from both."""
    figures = {"test": [(70.1 + i / 3, 1 / (i + 3)) for i in range(6)]}
    found = tuning.tested(load([write_folder(tmp_path / "f", [Run("fedavg", figures)])]))
    for metric in tuning.MEASURED:
        assert json.loads(json.dumps(cleaned(found[metric]))) == {"0": found[metric][0]}


def method(algorithm, accuracy, variance, *, prediction="global", chosen=0):
    """A method whose test figures, tuned and not, are these plus a little for each of six seeds."""

    def by_seed(value):
        return {seed: value + 0.01 * seed**2 for seed in range(6)}

    figures = {"mean": by_seed(accuracy), "variance": by_seed(variance), "variance_corrected": by_seed(variance - 8),
               "worst5": by_seed(accuracy - 20)}  # fmt: skip
    kinds = {} if chosen is None else {tuning.TUNED: figures}
    return Method(
        algorithm, {"lr": "0.01..1:log"}, [{"lr": 0.2}], [trials((accuracy, variance))], chosen,
        kinds | {tuning.UNTUNED: figures}, prediction,
    )  # fmt: skip


def test_methods_are_judged_against_fedavg_and_personal_ones_against_training_alone():
    """Six seeds give p = 1/32 at best. Adjusted over two methods it is 1/16, if the other does not differ."""
    found = tuning.verdicts(
        [
            method("fedavg", 80, 100),
            method("fedeba", 81, 90),
            method("qffl", 79, 100),
            method("ditto", 95, 10, prediction="personal"),
            method("local_only", 96, 9, prediction="personal"),
        ],
        tuning.TUNED,
    )
    assert set(found) == {"fedeba", "qffl", "ditto"}
    assert {name: one["mean"].verdict for name, one in found.items()} == {
        "fedeba": BETTER,
        "qffl": WORSE,
        "ditto": WORSE,
    }
    assert {name: (one["variance"].verdict, one["variance"].adjusted) for name, one in found.items()} == {
        "fedeba": (NO_DIFFERENCE, 1 / 16),
        "qffl": (NO_DIFFERENCE, 1),
        "ditto": (WORSE, 1 / 32),
    }
    assert found["ditto"]["mean"].difference == pytest.approx(-1)


def test_p_values_are_adjusted_over_the_methods():
    """Six seeds give p = 1/32 at best; of one method alone that is enough, of one among three it is not."""
    alike = [method(name, 80, 100) for name in ("fedavg", "qffl", "afl")]
    for others, verdict in ((alike[:1], BETTER), (alike, NO_DIFFERENCE)):
        found = tuning.verdicts([*others, method("fedeba", 81, 100)], tuning.TUNED)
        assert found["fedeba"]["mean"].verdict == verdict


def test_without_the_reference_there_is_no_verdict():
    assert tuning.verdicts([method("fedeba", 80, 90), method("ditto", 90, 10, prediction="personal")], "tuned") == {}


def test_few_seeds_have_no_interval_and_no_verdict():
    def few(one):
        figures = {
            kind: {m: {s: v for s, v in own.items() if s < 2} for m, own in by.items()}
            for kind, by in one.figures.items()
        }
        return one._replace(figures=figures)

    rows = tuning.rows([few(method("fedavg", 80, 100)), few(method("fedeba", 81, 90))])
    assert rows[0][2] == "80.00"
    assert TOO_FEW in rows[2][6]


def test_rows_have_the_chosen_point_and_the_defaults():
    rows = tuning.rows([method("fedavg", 80, 100), method("afl", 70, 50, chosen=None)])
    assert [row[:2] for row in rows] == [
        ["fedavg", "lr=0.2"], ["fedavg", "defaults"], ["afl", "every point diverged"], ["afl", "defaults"]
    ]  # fmt: skip
    assert rows[0][2].startswith("80.09 [80.0")
    assert rows[0][3].startswith("100.09 [100.0")
    assert rows[0][4].startswith("92.09 [92.0"), "corrected"
    assert rows[2][2:] == [""] * 6
    assert rows[3][6] == "-10.00: worse"


def test_a_chosen_point_that_diverges_on_test_seeds_is_told():
    broken = method("fedeba", 81, 90)
    broken.figures[tuning.TUNED]["mean"][3] = NAN
    row = tuning.rows([method("fedavg", 80, 100), broken])[2]
    assert row[2] == "diverged"
    assert row[6] == "not comparable"


def test_what_is_written_is_read_again():
    """Also of a method of which every point diverged, and of one that diverged on a test seed."""
    gone = method("term", 70, 80)
    gone.figures[tuning.TUNED]["mean"][3] = NAN
    methods = [method("fedavg", 80, 60), method("qffl", 81, 50, chosen=None), gone]
    methods[1].trials[0][0] = Trial(10, NAN, NAN)
    written = json.dumps(cleaned({"methods": tuning.as_json(methods)}))
    found = tuning.from_json(json.loads(written))
    assert tuning.rows(found) == tuning.rows(methods)
    assert json.dumps(cleaned({"methods": tuning.as_json(found)})) == written


def test_markdown_has_every_row_and_note():
    table = tuning.table("title", [method("fedavg", 80, 100)], ["a | b"])
    assert table.head[2:6] == ["global acc. %", "variance", "corrected var.", "worst 5 %"]
    assert all(len(row) == len(table.head) for row in table.rows)
    text = plain_markdown(table)
    assert text.count("\n| fedavg |") == 2
    assert "- a \\| b" in text


@pytest.mark.parametrize(("worst", "told"), [(60, True), (75, False)])
def test_the_plane_leaves_out_points_far_below_the_best_of_every_method_and_says_so(tmp_path, worst, told):
    methods = [
        method("fedavg", 86, 90)._replace(trials=[trials((80, 90)), trials((worst, 500))]),
        method("fedfv", 88, 60)._replace(trials=[trials((95, 50)), trials((NAN, NAN))]),
    ]
    tuning.plane(methods, "title", tmp_path / "plane.png")
    drawn = (tmp_path / "plane.svg").read_text()
    assert ("(1 of 3 points are below 70 % and not shown)" in drawn) == told
    assert "validation data" in drawn
