"""Whatever is written on the command line is read and written again as the same, or refused in one line.

Texts are valid ones with pieces cut out, doubled or put in, and some of any letters. The draws are fixed.
"""

import functools
import tempfile
from pathlib import Path

import pytest
from absl import flags
from absl.testing import flagsaver
from hypothesis import strategies as st

from experiments import sweep, train
from experiments.command import calls, cli, datasets, grids, hparams, tasks, values
from experiments.command import flags as common_flags
from fedeba_jax import ALGORITHMS
from fedeba_jax.data.synthetic import SYNTHETIC
from fedeba_jax.schedules import SCHEDULES
from fedeba_jax.weights import RULES
from tests.support.fuzzing import fuzz, refused
from tests.support.runs import MINI

pytestmark = pytest.mark.usefixtures("parsed_flags")
FEW, MANY = 60, 1500  # examples of each property

CALLS = [
    "sgd(1.0)", "momentum(0.9, 1.0, form=heavy_ball)", "adam(0.02, b1=0.8)", "varp(1.0)", "cross_entropy",
    "lsr(gamma=0.1)", "lsr(entropy=none, mode=reference, per_batch=true)", "none", "client(3.125, clip=inf)",
    "paper(2, clip=0.5)", "example(1, delta=1e-6)", "anneal(0.5, kappa=0.01, shape=convex)", "decay(1)",
    "linear_schedule(1.0, 0.1, 100)", "piecewise_constant_schedule(1, {9: 0.5})",
    "exponential_decay(1, 10, 0.999, staircase=True)", "solve(1.2)", "solve(0.9, of=quantile)",
    "synthetic_logistic(alpha=0.5, beta=0.5)", "synthetic_uniform(clients=9)",
]  # fmt: skip
ASSIGNMENTS = [
    "tau=0.1,alpha=0.9,theta=0", "tau=anneal(0.5, 0.01),prior=examples", "tau=solve(1.2)", "fair_scale=none", "q=0.5",
    "window=3,alpha=0.1,fv_window=current", "clusters=2,pi_damping=0.5", "t=-1,normalised=false", "p=2,damped=true",
    "lr=0.1,server=adam(0.1)", "rounds=3,steps=2", "weighting=uniform", "dataset=custom(../a.npz)", "label_noise=0.2",
    "tau=piecewise_interpolate_schedule(linear, 1, {9: 0.5})", "mu=0,lr_decay=1", "tau=0.01..10:log",
]  # fmt: skip
FLAGS = [
    "--grid=tau=0.1,1", "--grid=tau=0.01..10:log", "--random=3", "--random_seed=7", "--point=tau=1,alpha=0",
    "--seeds=0:3", "--seeds=0,2", "--data_seed=4", "--algorithm=fedavg,fedeba_plus", "--algorithm=fedeba",
    "--rounds=3", f"--task={MINI}", "--server=adam(0.1)", "--privacy=client(2)", "--lr=0.1", "--batch_runs=2",
    "--validation=0.1", "--select_on=test", "--metric=cv", "--overwrite", "--nodry_run", "--partition=dirichlet",
    "--dirichlet=0.1", "--clients=20", "--max_runs=9", "--out=runs/a", "--dataset=synthetic_logistic(beta=2)",
    "--data=a.npz", "--model=mlp", "# a comment", "",
]  # fmt: skip
TOKENS = [
    *",=()[]{}:;#'\"-. \n\t\0", "..", "((", "))", "()", ",,", "inf", "nan", "-inf", "1e400", "1e-50", "-1", "0", "3.0",
    "9" * 30, "none", "true", "None", "é", "٣", "\u2028", "$(x)", "--", "=" * 3, "(" * 300, "[" * 300, "\\", "1_0",
    "0x9", "tau", "fedavg",
]  # fmt: skip


@st.composite
def mutated(draw, pieces):
    """A valid text, or one with up to three changes."""
    text = draw(st.sampled_from(pieces))
    for _ in range(draw(st.integers(0, 3))):
        begin = draw(st.integers(0, len(text)))
        end = min(len(text), begin + draw(st.integers(0, 8)))
        put = draw(st.sampled_from([*TOKENS, text[begin:end] * 2, draw(st.sampled_from(pieces))]))
        text = text[:begin] + put + text[end:]
    return text


def written(pieces):
    return st.one_of(mutated(pieces), mutated(pieces), mutated(pieces), st.text(max_size=30))


TABLES = {**tasks.OPTIONS, "schedule": SCHEDULES, "dataset": SYNTHETIC, "rule": RULES["temperature"]}


def a_call(table, text):
    call = refused(calls.parse, TABLES[table], text, "--flag")
    assert call is None or calls.parse(TABLES[table], str(call), "--flag") == call


def some_hparams(algorithm, text):
    pairs = refused(hparams.pairs, text)
    read = refused(hparams.read, algorithm, pairs) if pairs is not None else None
    if read is not None:
        assert hparams.read(algorithm, {name: values.text(value) for name, value in read.items()}) == read


def a_field(field, text):
    task = refused(tasks.resolve, MINI, {field: text})
    assert task is None or tasks.resolve(MINI, values.plain(task)) == task


def a_data_set(text):
    name = refused(datasets.read, text)
    assert name is None or datasets.read(name) == name


def some_seeds(text):
    with flagsaver.flagsaver(seeds=text.split(",")):
        seeds = refused(common_flags.seeds)
    assert seeds is None or (0 < len(seeds) == len(set(seeds)) <= grids.MOST_RUNS and min(seeds) >= 0)


def points(axes, listed, count, algorithms):
    """Grids, random points and lists, as far as runs."""
    parsed = [refused(grids.parse_axis, text) for text in axes]
    found = [refused(grids.listed, listed)]
    if None not in parsed:
        found += [refused(grids.grid, parsed), refused(grids.sampled, parsed, count, 0)]
    for assignments in found:
        if assignments is None or len(assignments) > 50:
            continue
        asked = functools.partial(grids.make, algorithms, assignments, task_name=MINI, changes={}, seeds=(0, 1))
        runs = refused(asked)
        assert runs is None or [run.id for run in runs] == [run.id for run in asked()]
        for run in runs or ():
            assert tasks.resolve(MINI, values.plain(run.task)).lr == run.task.lr


@pytest.fixture(autouse=True)
def no_suggestions(monkeypatch):
    """absl takes long to find out which flag a long word might have been."""
    monkeypatch.setattr("absl.flags._helpers.get_flag_suggestions", lambda *_: [])


def a_command(binary, arguments):
    """Flags on the command line, and in a flag file."""
    for given_as in (arguments, _as_file(arguments)):
        with flagsaver.flagsaver():
            try:
                cli.check_flagfiles(given_as)
                flags.FLAGS([binary.__name__, *given_as])
            except (flags.Error, ValueError) as error:
                refusal = error
                assert type(refusal) is ValueError or isinstance(refusal, flags.Error)
                continue
            refused(cli.check_effect, binary.__name__)
            runs = refused(binary.runs)
            assert runs is None or len(runs) >= 1


def _as_file(arguments):
    path = Path(tempfile.gettempdir()) / "fedeba_jax_fuzz.flags"
    path.write_text("\n".join(arguments), errors="replace")
    return ["--flagfile", str(path)]


texts = written([*CALLS, *ASSIGNMENTS])
PROPERTIES = {
    a_call: st.tuples(st.sampled_from(list(TABLES)), written(CALLS)),
    some_hparams: st.tuples(st.sampled_from(list(ALGORITHMS)), written(ASSIGNMENTS)),
    a_field: st.tuples(st.sampled_from(list(tasks.FIELDS)), st.one_of(texts, st.sampled_from(TOKENS))),
    a_data_set: st.tuples(written([text for text in CALLS if "synthetic" in text] + ["mnist", "custom(a.npz)"])),
    some_seeds: st.tuples(
        st.one_of(st.text("0123456789:,-", max_size=12), written(["0:3", "0,1,2", "7,0:2", "0:9999999"]))
    ),
    points: st.tuples(
        st.lists(written(ASSIGNMENTS), max_size=3),
        st.lists(written(ASSIGNMENTS), max_size=2),
        st.one_of(st.integers(0, 3), st.just(10**9)),
        st.lists(st.sampled_from([*ALGORITHMS, "", "fedfoo"]), max_size=2),
    ),
    a_command: st.tuples(st.sampled_from([train, sweep]), st.lists(written(FLAGS), max_size=4)),
}


@pytest.mark.parametrize("check", PROPERTIES, ids=lambda check: check.__name__)
def test_text_is_read_or_refused_in_one_line(check):
    fuzz(check, PROPERTIES[check], FEW)


@pytest.mark.slow
@pytest.mark.parametrize("check", PROPERTIES, ids=lambda check: check.__name__)
def test_much_more_text_is_read_or_refused_in_one_line(check):
    fuzz(check, PROPERTIES[check], MANY)
