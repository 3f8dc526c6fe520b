"""`train` as a user meets it: what it writes and says, killed and resumed, and what it refuses."""

import json
import signal
import time
from types import SimpleNamespace

import pytest
from absl import flags
from absl.testing import flagsaver

from experiments import train
from experiments.command import cli
from experiments.command.opening import opened
from experiments.command.tasks import TASKS
from experiments.execution import devices, folder, runner, session
from experiments.execution.batches import How
from experiments.reporting import loading
from fedeba_jax import ALGORITHMS
from tests.support.runs import MINI, TINY_FLAGS, binary, compilations, make, start

pytestmark = pytest.mark.usefixtures("parsed_flags")
RESULT_FILES = (folder.MARK, folder.RESULTS, folder.ROUNDS, folder.SUMMARY)


def contents(out):
    return {name: (out / name).read_bytes() for name in RESULT_FILES}


# In this process.


@pytest.fixture
def call(monkeypatch):
    """main() with flags, on the suite's devices."""
    monkeypatch.setattr(session, "set_up", lambda: None)

    def run(*arguments):
        with flagsaver.flagsaver():
            flags.FLAGS(["train", *TINY_FLAGS, "--algorithm=fedavg", *arguments])
            train.main()

    return run


def test_what_it_writes_and_shows(call, tmp_path, capsys):
    call(f"--out={tmp_path / 'out'}", "--seeds=0,1")
    shown = capsys.readouterr().out
    assert "global acc. %" in shown
    assert f"results: {tmp_path / 'out'}" in shown
    found = {path.name for path in (tmp_path / "out").iterdir()}
    assert found == {*folder.OURS, folder.LOCK, "curves.png", "curves.svg"}
    assert (tmp_path / "out" / "curves.png").stat().st_size > 10_000
    before = contents(tmp_path / "out")
    call(f"--out={tmp_path / 'out'}", "--seeds=0,1", "--noplot")
    again = capsys.readouterr().out
    assert "2 runs, done before" in again
    assert "global acc. %" in again
    assert contents(tmp_path / "out") == before
    with pytest.raises(ValueError, match=r"holds a run that is not asked for \(lr=0.1 there, 0.2 now\)"):
        call(f"--out={tmp_path / 'out'}", "--seeds=0,1", "--lr=0.2")
    assert contents(tmp_path / "out") == before
    call(f"--out={tmp_path / 'out'}", "--seeds=0,1", "--lr=0.2", "--noplot", "--overwrite")
    assert {row["settings"]["lr"] for row in folder.read_rows(tmp_path / "out" / folder.RESULTS)} == {0.2}


def test_divergence_is_told_with_what_to_turn(call, tmp_path):
    arguments = ["--algorithm=fedeba_plus", "--hparams=fair_scale=1000", "--lr=50", "--rounds=3", "--noplot"]
    arguments.append("--model=mlp")
    with pytest.raises(cli.RunError) as error:
        call(*arguments, f"--out={tmp_path}")
    (setting,) = json.loads((tmp_path / "summary.json").read_text())["settings"]
    bad_round = setting["diverged"]["0"]
    assert bad_round in (1, 2, 3)
    assert setting["models"]["global"]["last_evaluation"]["mean"]["values"] == [None]
    rows = folder.read_rows(tmp_path / "results.jsonl")
    assert rows[-1]["mean"] is None
    assert rows[-1]["final"]
    message = str(error.value)
    clients = ", ".join(map(str, rows[-1]["diverged_clients"]))
    assert len(rows[-1]["diverged_clients"]) == 3
    assert message.startswith(f"diverged (seed 0 in round {bad_round}, which sampled clients {clients}): the model is ")
    assert "not finite; lower fair_scale=1000" in message
    assert f"what was done is in {tmp_path}" in message
    (loaded,) = loading.group(loading.load([tmp_path]))
    assert train.divergence(make("fedavg", lr=50.0)[0], loaded).endswith("lower --lr=50")


def test_clients_that_are_known_to_have_sent_what_is_not_finite_are_named():
    runs = [SimpleNamespace(seed=0, diverged=3, diverged_clients=[7]), SimpleNamespace(seed=1, diverged=None)]
    message = train.divergence(make("fedavg", lr=50.0)[0], SimpleNamespace(runs=runs))
    assert message.startswith("diverged (seed 0 in round 3, broken by clients 7): the model or a client's reply is")


@pytest.mark.parametrize(
    ("algorithm", "text", "changes", "found"),
    [
        ("fedavg", "", {}, ["--lr=0.1"]),
        ("fedavg", "", {"server": "sgd(1e30)"}, ["--server=sgd(1e+30)", "--lr=0.1"]),
        ("term", "t=-100", {}, ["t=-100", "--lr=0.1"]),
        ("term", "t=0.05", {}, ["--lr=0.1"]),
        ("qffl", "q=50", {}, ["q=50", "--lr=0.1"]),
        ("fedprox", "mu=decay(1000)", {}, ["mu=decay(1000.0)", "--lr=0.1"]),
        ("fedeba_plus", "fair_scale=9", {}, ["fair_scale=9 (fair_scale=none is 1/K, the stable reading)", "--lr=0.1"]),
        ("fedavg", "", {"privacy": "client(50)"}, ["the noise of --privacy=client(50.0)", "--lr=0.1"]),
    ],
)
def test_likely_causes_of_divergence_are_those_in_use(algorithm, text, changes, found):
    assert train.causes(make(algorithm, text, **changes)[0]) == found


BAD = [
    (["--cohort_size=60"], "--cohort_size=60 exceeds --clients=50"),
    (["--hparams=tau=0"], "tau=0 is not valid for fedeba_plus; give tau=0.1 (> 0)"),
    (["--hparams=alpha=1.5"], "alpha=1.5 is not valid"),
    (["--hparams=tau=abc"], "tau=abc is not valid"),
    (["--hparams=tau=nan"], "tau=nan is not valid"),
    (["--hparams=tau=inf"], "tau=inf (not finite in programs) is not valid for fedeba_plus; give tau=0.1 (> 0)"),
    (["--hparams=tau=1e400"], "tau=1e400 (not finite in programs) is not valid"),
    (["--hparams=tau=1e-50"], "tau=1e-50 (0 in programs) is not valid"),
    (["--hparams=tau=solve(inf)"], "target=inf (not finite in programs) is not valid for solve"),
    (["--hparams=tau=solve(1.2, of=quantile)"], "target=1.2 is no quantile; give a number in (0, 1], or of=mean"),
    ([f"--hparams=tau={'(' * 5000}"], " is not valid for fedeba_plus; give tau=0.1 (> 0)"),
    (["--algorithm=qffl", "--hparams=q=inf"], "q=inf (not finite in programs) is not valid for qffl"),
    (["--algorithm=term", "--hparams=t=nan"], "t=nan is not valid for term"),
    (["--algorithm=focus", "--hparams=clusters=3000000000"], "clusters=3000000000 (beyond int32) is not valid"),
    (["--server=momentum(,0.5)"], "--server=momentum(,0.5): beta= is not valid for momentum; give beta=0.9"),
    (["--server=sgd(1.0,)"], "--server=sgd(1.0,): sgd takes no '' there"),
    (["--server=sgd(inf)"], "learning_rate=inf (not finite in programs) is not valid for sgd"),
    (["--hparams=tua=1"], "fedeba_plus has no 'tua'; it takes tau=0.1 (> 0), alpha=0.9 (in [0, 1])"),
    (["--hparams=prior=sizes"], "give prior=none (none | examples)"),
    (["--algorithm=fedprox", "--hparams=tau=1"], "fedprox has no 'tau'; it takes mu=0.1"),
    (["--algorithm=nothing"], "--algorithm=nothing is not known; choose one of fedavg"),
    (["--task=nothing"], "--task=nothing is not known"),
    (["--model=nothing"], "--model=nothing is not known"),
    (["--dataset=nothing"], "--dataset=nothing is not known"),
    (["--rounds=0"], "--rounds=0 is not valid"),
    (["--lr=-1"], "--lr=-1.0 is not valid"),
    (["--lr=1e-50"], "--lr=1e-50 is not valid; give a positive number that float32 can hold"),
    (["--lr=1e50"], "--lr=1e+50 is not valid"),
    *(
        ([f"--{field}=3000000000"], f"--{field}=3000000000 is not valid; give at most 2147483647")
        for field in ("steps", "rounds", "eval_every", "local_epochs", "batch_size", "clients", "cohort_size")
    ),
    (["--algorithm="], "--algorithm= names 0; train takes one"),
    (["--seed=-1"], "--seed: -1 is not a seed; give whole numbers from 0 to 2147483647"),
    (["--data_seed=-1"], "--data_seed: -1 is not a seed; give whole numbers from 0 to 2147483647"),
    (["--seeds=0:100000"], "--seeds=0:100000 makes 100000 runs, more than --max_runs=10000"),
    (["--validation=1"], "--validation=1.0 is not a fraction"),
    (["--seeds=0,0"], "must name different seeds"),
    (["--seeds=a"], "'a' is not a seed"),
    (["--hparams=lr=0.1"], "fedeba_plus has no 'lr'; it takes"),  # a field of the task has a flag of its own
    (["--algorithm=fedavg,fedprox"], "--algorithm=fedavg,fedprox names 2; train takes one"),
    (["--seed=1", "--seeds=0,1"], "--seed and --seeds are both given"),
    (
        ["--partition=random"],
        "--partition=random is not valid; choose one of auto, shards, dirichlet, iid, quantity, natural",
    ),
    (["--test_split=none"], "choose one of auto, sharded_official, holdout, natural"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[" ".join(a) for a, _ in BAD])
def test_bad_flags_are_told_before_anything_runs(arguments, message):
    with flagsaver.flagsaver():
        flags.FLAGS(["train", f"--task={MINI}", *arguments])
        with pytest.raises(ValueError) as error:
            train.runs()
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_one_seed_is_the_same_as_seeds_with_one_entry():
    with flagsaver.flagsaver():
        flags.FLAGS(["train", f"--task={MINI}", "--seed=3"])
        (one,) = train.runs()
    assert one.seed == 3
    with flagsaver.flagsaver():
        flags.FLAGS(["train", f"--task={MINI}", "--seeds=3"])
        assert train.runs() == [one]


@pytest.mark.parametrize(
    ("arguments", "folder"),
    [
        ([], "fedavg"),
        (["--hparams=weighting=uniform"], "fedavg-weighting=uniform"),
        (["--server=adam(0.02, b1=0.8)", "--label_noise=0.5"], "fedavg-server=adam(0.02,b1=0.8)-label_noise=0.5"),
    ],
)
def test_runs_that_differ_in_options_have_folders_of_their_own(arguments, folder):
    with flagsaver.flagsaver():
        flags.FLAGS(["train", "--task=fashion_mnist_mini_mlp", "--algorithm=fedavg", *arguments])
        assert train.folder(train.runs()[0]) == f"runs/fashion_mnist_mini_mlp/{folder}"


# What only the data or the memory tells; nothing is compiled, or written.

TEXT = {"dataset": "synthetic_text(clients=20)", "partition": "natural", "clients": 0, "model": "lstm_words"}
FEATURES = {"dataset": "synthetic_logistic", "partition": "natural", "clients": 0, "model": "logistic"}
MANY = 2_000_000_000
ABSURD = [
    ("fedavg", "", {"steps": MANY}, f"--steps={MANY}: one array of the program takes"),
    ("fedavg", "", {"local_epochs": MANY}, f"--local_epochs={MANY}: one array of the program takes"),
    ("fedavg", "", {"rounds": MANY, "eval_every": MANY}, f"--eval_every={MANY}: one array of the program takes"),
    ("lp_proj", f"inner={MANY}", {}, f"inner={MANY}: one array of the program takes"),
    ("rank_core_fed", f"candidates={MANY}", {}, f"candidates={MANY}: the program cannot count so far; give a smaller"),
    ("lp_proj", f"dim={MANY}", {}, f"GiB are free; give a smaller dim={MANY} or"),
    ("fedfv", f"window={MANY}", {}, f"GiB are free; give a smaller window={MANY} or"),
    ("focus", "clusters=1000000000", {}, "GiB are free; give a smaller clusters=1000000000 or"),
    ("fedavg", "", {"clients": MANY, "partition": "iid"}, f"for --clients={MANY} needs more examples than the 10000 "),
    ("fedavg", "", {"shards_per_client": MANY}, "there are 10000; lower --clients or --shards_per_client"),
    ("fedavg", "", {"partition": "dirichlet", "clients": 500}, "tries; raise --dirichlet, or lower --clients=500"),
    ("fedavg", "", FEATURES | {"partition": "shards"}, "--clients=0 is not valid; partition shards needs at least 1"),
    (
        "fedavg",
        "",
        FEATURES | {"clients": 99},
        "--clients=99 is more than the 30 that synthetic_logistic has; lower --c",
    ),
    ("fedavg", "", FEATURES | {"dataset": f"synthetic_logistic(clients={MANY})"}, "give at most 10000000"),
    (
        "fedavg",
        "",
        FEATURES | {"dataset": "synthetic_logistic(seed=-1)"},
        "--dataset=synthetic_logistic(seed=-1) is no",
    ),
    ("fedavg", "", FEATURES | {"model": "cnn"}, "model=cnn takes images [H, W, C] of at least 16x16"),
    ("fedavg", "", FEATURES | {"objective": "lsr"}, "only images have views; give lsr(views=same), or cross_entropy"),
    ("fedavg", "", TEXT | {"objective": "lsr"}, "--objective=lsr with synthetic_text(clients=20): it takes one label"),
    ("fedavg", "", {"privacy": "client(1e10)"}, "--privacy=client(10000000000.0): no epsilon can be computed for so"),
    ("fedavg", "", {"privacy": "client(1e30)"}, "--privacy=client(1e+30): no epsilon can be computed for so much"),
]


@pytest.mark.parametrize(("algorithm", "text", "changes", "message"), ABSURD, ids=[m for *_, m in ABSURD])
def test_what_cannot_be_done_is_told_before_anything_is_compiled(
    tmp_path, monkeypatch, algorithm, text, changes, message
):
    monkeypatch.setattr(devices, "free_memory", lambda: 8 * 2**30)
    with pytest.raises(ValueError) as error, compilations() as compiled:
        runner.plan(*opened(make(algorithm, text, **changes), None), set(), How())
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert not compiled
    assert not (tmp_path / "out").exists()


def test_more_rounds_than_can_be_counted_are_refused():
    with pytest.raises(ValueError, match=r"--rounds=2000000000 with --privacy=example\(1.0\).*at most 1000000 rounds"):
        runner.plan(*opened(make("fedavg", privacy="example(1)", rounds=2_000_000_000), None), set(), How())


@pytest.mark.parametrize("privacy", ["client(1e-10)", "client(1, clip=1e30)", "example(1e10)", "example(1e-10)"])
def test_claims_are_known_before_training(tmp_path, privacy):
    plan = runner.plan(*opened(make("fedavg", privacy=privacy), None), set(), How())
    assert len(plan.missing) == 1


# As a process.


def test_the_binary_trains_lists_and_fails_in_one_line(tmp_path):
    """One process each: --list, a run from a flagfile, a bad flag (exit code 2, one line, no traceback)."""
    listed = binary("experiments.train", "--list")
    assert listed.returncode == 0
    assert all(name in listed.stdout for name in [*ALGORITHMS, *TASKS, "cnn", "cifar10", "solve(target, of)"])
    preset = tmp_path / "tiny.flags"
    preset.write_text("\n".join([*TINY_FLAGS, "--algorithm=fedavg"]) + "\n")
    arguments = [f"--flagfile={preset}", f"--out={tmp_path}/run", "--compilation_cache="]
    trained = binary("experiments.train", *arguments, "--noplot")
    assert trained.returncode == 0, trained.stderr
    assert "global acc. %" in trained.stdout
    assert trained.stderr == ""
    unknown = binary("experiments.train", "--aplha=1")
    assert (unknown.returncode, unknown.stderr.count("\n")) == (2, 1)
    assert "aplha" in unknown.stderr


def arguments(out, cache, rounds):
    changes = [f"--rounds={rounds}", "--eval_every=2", "--seeds=0,1", "--algorithm=fedavg", "--noplot"]
    return [*TINY_FLAGS, *changes, f"--compilation_cache={cache}", f"--out={out}"]


def length(out):
    table = out / folder.RESULTS
    return table.stat().st_size if table.exists() else 0


def wait_for_rows(process, out, seconds=300):
    """Until the process has written rows of its own."""
    before, end = length(out), time.monotonic() + seconds
    while length(out) <= before:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.005)


def test_killed_interrupted_and_terminated_it_is_resumed_to_the_same_bytes(tmp_path, monkeypatch):
    """kill -9, Ctrl-C and SIGTERM in the middle of training; then the same command to its end, its cache damaged."""
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")  # fast machines compile in less than 1 s
    whole, out, cache, rounds = tmp_path / "whole", tmp_path / "out", tmp_path / "cache", 100
    done = binary("experiments.train", *arguments(whole, cache, rounds))
    assert done.returncode == 0, done.stderr
    for sent, code, word in [
        (signal.SIGKILL, -9, None), (signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")
    ]:  # fmt: skip
        process = start("experiments.train", *arguments(out, cache, rounds))
        wait_for_rows(process, out)
        process.send_signal(sent)
        _, stderr = process.communicate(timeout=300)
        assert process.returncode == code, stderr
        if word:
            assert stderr == f"error: {word}: what is done is in {out}; the same command resumes it\n"
    assert 0 < length(out) < length(whole)
    kept = list(cache.glob("*-cache"))
    for number, compiled in enumerate(kept):
        compiled.write_bytes(compiled.read_bytes()[:-9] if number % 2 else b"something else")
    ended = binary("experiments.train", *arguments(out, cache, rounds))
    assert ended.returncode == 0, ended.stderr
    assert kept
    assert ended.stderr.splitlines()
    for line in ended.stderr.splitlines():  # ignored, and said
        assert line.startswith("warning: Error reading persistent compilation cache entry for ")
    assert contents(out) == contents(whole)
    assert {path.name for path in out.iterdir()} == {path.name for path in whole.iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "code", "word"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_told_to_end_while_it_compiles_it_says_so_in_one_line(tmp_path, sent, code, word):
    process = start("experiments.train", *arguments(tmp_path / "out", "", 4))
    process.stdout.readline()  # the plan: what follows is compilation
    process.send_signal(sent)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == code
    assert stderr.startswith(f"error: {word}: nothing was evaluated yet; it belongs in {tmp_path / 'out'}")
    assert stderr.count("\n") == 1
    assert binary("experiments.train", *arguments(tmp_path / "out", "", 4)).returncode == 0
