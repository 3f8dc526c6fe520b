"""What faults leave in a folder, put in order: every one is noticed, and no finished row is lost."""

import random
import shutil

import pytest

from experiments.execution import folder, recovery, rows
from fedeba_jax import ALGORITHMS, checkpoint
from tests.support.runs import Killed, execute, kill_after, make

pytestmark = [pytest.mark.xdist_group("runner"), pytest.mark.usefixtures("shared_programs")]
CHECKPOINTS = (folder.CHECKPOINT, folder.EARLIER)
FOLDER = (folder.RESULTS, folder.ROUNDS, folder.TIMINGS, folder.MARK)
RUNS = {"grid": ("lr=0.1,0.2",), "seeds": (0, 1), "rounds": 3}
HOW = {"batch_runs": 2, "log_rounds": True}


@pytest.fixture(scope="module")
def whole(tmp_path_factory, shared_programs):
    """Four runs in two batches of three chunks, left alone."""
    out = tmp_path_factory.mktemp("whole") / "out"
    execute(make("fedavg", **RUNS), out, **HOW)
    return out


@pytest.fixture(scope="module")
def half(tmp_path_factory, shared_programs):
    """The same, killed in the second batch after its second chunk."""
    out = tmp_path_factory.mktemp("half") / "out"
    with pytest.raises(Killed):
        execute(make("fedavg", **RUNS), out, kill_after(5), **HOW)
    return out


def tables(out):
    return {name: (out / name).read_bytes() for name in folder.TABLES}


def results(out):
    """The rows, in whatever order they came."""
    return sorted((out / folder.RESULTS).read_text().splitlines())


def damage(path, rng):
    """One fault of a disk: a flipped bit, a file that ends too early, or none at all."""
    content, kind = bytearray(path.read_bytes()), rng.choice(("flip", "flip", "cut", "gone"))
    if kind == "gone":
        path.unlink()
    else:
        place = rng.randrange(len(content))
        content[place] ^= (1 << rng.randrange(8)) if kind == "flip" else 0
        path.write_bytes(content[:place] if kind == "cut" else content)
    return kind


def finished_lines(out):
    """The lines of runs that are done, as text."""
    found = folder.lines(out / folder.RESULTS)
    done = folder.finished([line.row for line in found if line.row])
    return {line.text for line in found if line.row and line.row["run"] in done}


def held(out):
    """All lines that a folder holds, in its table or beside it."""
    names = (folder.RESULTS, f"{folder.RESULTS}.aside")
    return {line.text for name in names for line in folder.lines(out / name)}


def check_damaged(origin, out, rng, names, resume):
    """Copy, damage a file, put in order; with `resume` also run what is missing. What was said."""
    shutil.copytree(origin, out)
    name = rng.choice(names)
    kind = damage(out / name, rng)
    before, said = finished_lines(out), []
    try:
        if resume:
            execute(make("fedavg", **RUNS), out, **HOW)
        elif folder.is_new(out) is False:
            recovery.recover(out, said.append)
    except ValueError as error:
        said.append(str(error))
    if name == folder.MARK:
        assert len(said) == 1
    assert not any("\n" in line for line in said)
    assert before <= held(out), (name, kind)
    if name != folder.MARK:
        assert before <= finished_lines(out), (name, kind)
    return name, kind, said


def was_harmless(origin, out, name, kind):
    """Whether a fault took nothing away: of a file that is not needed, or a line that would have been written anew."""
    return (name in (*CHECKPOINTS, folder.TIMINGS) and kind == "gone") or tables(out) == tables(origin)


@pytest.mark.parametrize("origin", ["whole", "half"])
@pytest.mark.parametrize("names", [CHECKPOINTS, FOLDER], ids=["checkpoints", "folder"])
def test_every_fault_is_noticed_and_no_finished_row_is_lost(request, tmp_path, origin, names):
    origin, rng = request.getfixturevalue(origin), random.Random(0)
    for number in range(100):
        out = tmp_path / str(number)
        name, kind, said = check_damaged(origin, out, rng, names, resume=False)
        assert said or was_harmless(origin, out, name, kind), (number, name, kind)


def test_what_lost_its_rows_is_run_again_to_the_same_rows(whole, half, tmp_path):
    """Damaged in the first batch, which was finished: its runs start over, and the second one is resumed."""
    for origin in (whole, half):
        out = tmp_path / origin.parent.name
        shutil.copytree(origin, out)
        lines = (out / folder.RESULTS).read_text().splitlines(keepends=True)
        (out / folder.RESULTS).write_text("".join([lines[0].replace("fedavg", "fedavh"), *lines[1:]]))
        told = []
        execute(make("fedavg", **RUNS), out, told.append, **HOW)
        again = [] if origin == whole else [2]
        assert [chunk.start for chunk in told] == [*again, 0, 1, 2]
        assert sorted((out / folder.RESULTS).read_text().splitlines()) == sorted(
            (whole / folder.RESULTS).read_text().splitlines()
        )
        assert (out / f"{folder.RESULTS}.aside").exists()


def test_a_row_that_is_damaged_in_the_middle_of_a_batch_is_not_counted_by_a_later_one(whole, half, tmp_path):
    """Of the four rows of the stopped batch the first is gone: the checkpoint before counts two, three are there."""
    out = tmp_path / "out"
    shutil.copytree(half, out)
    lines = (out / folder.RESULTS).read_text().splitlines(keepends=True)
    lines[-4] = lines[-4].replace("fedavg", "fedavh")
    (out / folder.RESULTS).write_text("".join(lines))
    execute(make("fedavg", **RUNS), out, **HOW)
    assert results(out) == results(whole)


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_damaged_checkpoint_costs_a_chunk_at_most(whole, half, tmp_path, capsys, name):
    out = tmp_path / "out"
    shutil.copytree(half, out)
    content = (out / name).read_bytes()
    (out / name).write_bytes(content[:-1])
    told = []
    execute(make("fedavg", **RUNS), out, told.append, **HOW)
    assert [chunk.start for chunk in told] == [1, 2] if name == folder.CHECKPOINT else [2]
    assert f"{out / name} is damaged (its checksum is wrong); it is not used" in capsys.readouterr().out
    assert tables(out) == tables(whole)


def test_a_foreign_checkpoint_is_not_used(whole, half, tmp_path, capsys):
    out = tmp_path / "out"
    shutil.copytree(half, out)
    for name in CHECKPOINTS:
        (out / name).write_bytes(b"a picture of somebody")
    told = []
    execute(make("fedavg", **RUNS), out, told.append, **HOW)
    assert [chunk.start for chunk in told] == [0, 1, 2]
    assert "checkpoint.bin is not a checkpoint of this fedeba_jax" in capsys.readouterr().out
    assert tables(out) == tables(whole)


def test_a_checkpoint_of_long_ago_takes_no_finished_row_away(whole, half, tmp_path):
    """Restored from a copy that was made earlier: what was finished since stays."""
    out = tmp_path / "out"
    shutil.copytree(whole, out)
    shutil.copy(half / folder.CHECKPOINT, out)
    told = []
    execute(make("fedavg", **RUNS), out, told.append, **HOW)
    assert not told
    assert tables(out) == tables(whole)


def test_told_to_end_it_saves_what_is_done_since_the_last_checkpoint(whole, tmp_path):
    def stop(chunk):
        if chunk.start == 1:
            raise KeyboardInterrupt

    out, runs = tmp_path / "out", make("fedavg", **RUNS)
    with pytest.raises(KeyboardInterrupt):
        execute(runs, out, stop, checkpoint_every=100, **HOW)
    assert checkpoint.load(out / folder.CHECKPOINT)[0]["done"] == 2
    told = []
    execute(runs, out, told.append, checkpoint_every=100, **HOW)
    assert [chunk.start for chunk in told] == [2, 0, 1, 2]
    assert tables(out) == tables(whole)


def test_killed_before_its_first_checkpoint_it_leaves_nothing_aside(whole, tmp_path, monkeypatch):
    """Rows of the first chunk are there, its checkpoint is not: they come again."""
    out, runs = tmp_path / "out", make("fedavg", **RUNS)
    with monkeypatch.context() as patch:
        patch.setattr(rows, "of_rounds", lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            execute(runs, out, **HOW)
    folder.append_rows(out / folder.RESULTS, folder.read_rows(whole / folder.RESULTS)[:1])
    execute(runs, out, **HOW)
    assert tables(out) == tables(whole)
    assert not list(out.glob("*.aside"))


@pytest.mark.parametrize("after", [1, 2])
def test_killed_between_checkpoints_it_goes_back_to_the_last_one(whole, tmp_path, after):
    out, runs = tmp_path / "out", make("fedavg", **RUNS)
    with pytest.raises(Killed):
        execute(runs, out, kill_after(after), checkpoint_every=2, **HOW)
    told = []
    execute(runs, out, told.append, checkpoint_every=2, **HOW)
    assert [chunk.start for chunk in told] == [*range(after // 2 * 2, 3), 0, 1, 2]
    assert tables(out) == tables(whole)


def test_data_that_changed_since_is_refused(whole, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(whole, out)
    content = folder.description(out)
    content["origins"][0]["data"]["md5"]["x_train"] = "0123"
    folder.write_mark(out, content)
    before = tables(out)
    with pytest.raises(
        ValueError, match=r"holds rows of another fashion_mnist_mini \(x_train: md5 0123 there, "
    ) as error:
        execute(make("fedavg", **RUNS), out, **HOW)
    assert "restore the data, or give another folder" in str(error.value)
    assert tables(out) == before


FEW = [(name, {}) for name in ALGORITHMS]
MORE = [
    ("fedeba_plus", {"server": "varp(1.0)"}),
    ("fedeba_plus", {"server": "momentum(0.9)"}),
    ("fedavg", {"server": "adam(0.02)"}),
    ("fedavg", {"objective": "lsr", "label_noise": 0.3}),
    ("fedavg", {"privacy": "client(1.0)"}),
    ("fedavg", {"local_epochs": 1}),
]


@pytest.mark.parametrize(
    ("name", "options"),
    # Of options: that a file changes no bit of any state is a law (tests/fedeba_jax/algorithms/test_laws.py).
    [*FEW, *(pytest.param(*case, marks=pytest.mark.slow) for case in MORE)],
)
def test_what_is_resumed_has_the_same_bytes(tmp_path, name, options):
    runs = make(name, **options)
    execute(runs, tmp_path / "whole", log_rounds=True)
    with pytest.raises(Killed):
        execute(runs, tmp_path / "killed", kill_after(1), log_rounds=True)
    execute(runs, tmp_path / "killed", log_rounds=True)
    assert tables(tmp_path / "killed") == tables(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("origin", ["whole", "half"])
@pytest.mark.parametrize("names", [CHECKPOINTS, FOLDER], ids=["checkpoints", "folder"])
def test_two_hundred_faults_end_with_the_rows_of_a_run_left_alone(request, whole, tmp_path, origin, names):
    """All the way: what is missing is run, and the table holds the rows of the undisturbed run, in whatever order."""
    origin, rng = request.getfixturevalue(origin), random.Random(1)
    for number in range(100):
        out = tmp_path / str(number)
        name, kind, said = check_damaged(origin, out, rng, names, resume=True)
        if not said:
            assert results(out) == results(whole), (number, name, kind)
