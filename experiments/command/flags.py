"""Flags that binaries share: algorithm, task and its fields, seeds, data, devices, output, choice of the best.

A binary declares those that have an effect in it as its own: --help shows them, and others are an error (`cli`).
"""

import itertools
from collections.abc import Sequence
from typing import Any

from absl import flags

from experiments.command import datasets, grids
from experiments.command.grids import Assignment
from experiments.command.runs import Run
from experiments.command.tasks import CHOICES, FIELDS, HELP, OPTIONS, TASKS
from experiments.command.values import shown
from fedeba_jax.client_map import NAMES as MAPS
from fedeba_jax.hyperparameters import INT32
from fedeba_jax.metrics import SHOWN

FLAGS = flags.FLAGS
MOST_DEVICES = 1024  # a CPU device has a thread of its own
flags.DEFINE_list("algorithm", ["fedeba_plus"], "Algorithm, or several where several are compared: fedavg,fedeba_plus.")
flags.DEFINE_string("task", "fashion_mnist_mlp", f"One of {', '.join(TASKS)}.")
flags.DEFINE_list("seeds", ["0"], "Seeds, one run for each: 0,1,2 or 0:3.")
flags.DEFINE_integer("data_seed", None, "Seed of the data split; default: the seed of the run.")
flags.DEFINE_integer("init_seed", None, "Seed of the initial model; default: the seed of the run.")
flags.DEFINE_integer("sample_seed", None, "Seed of client and batch sampling; default: the seed of the run.")
flags.DEFINE_float("validation", None, "Fraction of each client's training data held back and evaluated.")
flags.DEFINE_string("out", None, "Folder (of benchmarks: file) of the results; the default is in the description.")
flags.DEFINE_string("results", "results", "Folder of committed results, which are not run again; empty for none.")
flags.DEFINE_bool("overwrite", False, "Replace the experiment that --out holds.")
flags.DEFINE_bool("dry_run", False, "Show the plan, with memory and time from ten rounds or fewer, and stop.")
flags.DEFINE_bool("list", False, "Show everything that has a name (of reproduce: what is done and missing), and stop.")
flags.DEFINE_integer("batch_runs", 0, "Runs at once; 0 chooses by the cores, or by an accelerator's memory.")
flags.DEFINE_integer("random_seed", 0, "Seed of random points.")
flags.DEFINE_bool("plot", True, "Write a picture (needs the plot extra).")
flags.DEFINE_enum("select_on", "validation", ["validation", "test"], "Which split the best points are chosen on.")
flags.DEFINE_enum("metric", "mean", list(SHOWN), "What the best points are chosen by.")
flags.DEFINE_string("data", None, "Your own data: an npz file, or a folder of one for each client.")
flags.DEFINE_string("data_dir", None, "Where data sets live; default $FEDEBA_DATA, or ./data.")
flags.DEFINE_string("client_map", "auto", f"How the clients of a round run: {MAPS}.")
flags.DEFINE_string("run_map", "auto", f"How several runs run: {MAPS}.")
flags.DEFINE_enum("state_dtype", "float32", ["float32", "bfloat16"], "How personal models are kept between rounds.")
flags.DEFINE_float("data_budget", None, "GiB of examples that may lie on the devices; default half of what is free.")
flags.DEFINE_integer("host_devices", 0, "CPU devices to make; 0 is one per core.", upper_bound=MOST_DEVICES)
flags.DEFINE_integer("max_runs", grids.MOST_RUNS, "The most runs; more are likely a mistake.", upper_bound=1_000_000)
flags.DEFINE_integer(
    "checkpoint_every", 1, "Evaluations between checkpoints; there is also one when it is told to end.", lower_bound=1
)
flags.DEFINE_bool(
    "distributed", False, "One of several processes that run this together; a cluster's scheduler says which."
)
flags.DEFINE_string("coordinator_address", None, "HOST:PORT of process 0, where no scheduler says it.")
flags.DEFINE_integer("process_id", None, "Which of the processes this is, from 0; where no scheduler says it.")
flags.DEFINE_integer("num_processes", None, "How many there are; where no scheduler says it.")
flags.DEFINE_string("compilation_cache", None, "Folder that keeps compiled programs; empty for none.")
_DEFINE = {int: flags.DEFINE_integer, float: flags.DEFINE_float}
for _field, _kind in FIELDS.items():
    _names = CHOICES.get(_field) or OPTIONS.get(_field)
    _valid = f" ({', '.join(_names)})" if _names else ""
    _define: Any = _DEFINE.get(_kind, flags.DEFINE_string)
    _define(_field, None, f"Of the task, if changed: {HELP[_field]}{_valid}.")


flags.disclaim_key_flags()  # what `declare` declares is its caller's

EXECUTION = (
    *("client_map", "run_map", "data_budget", "host_devices", "compilation_cache"),
    *("overwrite", "max_runs", "checkpoint_every"),
    *("distributed", "coordinator_address", "process_id", "num_processes"),
)
"""Flags of how runs are executed: they have an effect in every binary that trains."""
TRAINING = (*FIELDS, "task", "algorithm", "seeds", "data_seed", "init_seed", "sample_seed", "validation", "state_dtype")
TRAINING += ("data", "data_dir", "out", *EXECUTION)
"""Flags that `train` and `sweep` share."""


def declare(*names: str) -> None:
    """Make these flags those of the calling module, a binary: they have an effect there."""
    for name in names:
        flags.declare_key_flag(name)


def set_defaults(defaults: dict[str, Any]) -> None:
    """Other defaults of flags for a binary, shown by its --help; called before the flags are parsed."""
    for name, value in defaults.items():
        FLAGS.set_default(name, value)


def runs(
    points: Sequence[Assignment], flag: str, *, algorithms: Sequence[str] = (), task: str = "", validation: float = 0.0
) -> list[Run]:
    """The runs that the flags ask for: these points of all algorithms on a task.

    Args:
      points: texts of hyper-parameters and fields of the task.
      flag: where they come from, for errors.
      algorithms: instead of --algorithm.
      task: instead of --task.
      validation: the default of --validation.
    """
    common = {"task_name": task or FLAGS.task, "changes": changes(), "seeds": seeds(), "most": FLAGS.max_runs}
    return grids.make(algorithms or FLAGS.algorithm, points, flag=flag, **common, **others(validation))


def changes() -> dict[str, Any]:
    """The fields of the task that flags change."""
    given = {field: FLAGS[field].value for field in FIELDS if FLAGS[field].value is not None}
    if FLAGS.data is None:
        return given
    if "dataset" in given:
        raise ValueError(f"--data={FLAGS.data} and --dataset={given['dataset']} are both given; give one of them")
    return {**given, "dataset": datasets.own(FLAGS.data)}


def others(validation: float) -> dict[str, Any]:
    """The fields of a run that flags set, beside algorithm, task and seed."""
    fraction = validation if FLAGS.validation is None else FLAGS.validation
    if not 0 <= fraction < 1:
        raise ValueError(f"--validation={fraction} is not a fraction; give a number in [0, 1)")
    given = {name: FLAGS[name].value for name in ("data_seed", "init_seed", "sample_seed")}
    chosen = {name: None if number is None else seed(name, number) for name, number in given.items()}
    return {**chosen, "validation": fraction, "state_dtype": FLAGS.state_dtype}


def seeds(flag: str = "seeds") -> tuple[int, ...]:
    """--seeds, or another flag like it, as numbers: 0,1,2 or 0:3."""
    given: list[str] = getattr(FLAGS, flag)
    written, ranges = shown(",".join(given)), []
    for text in given:
        first, colon, end = text.partition(":")
        begin = seed(flag, first)
        ranges.append(range(begin, seed(flag, end) if colon else begin + 1))
    grids.check_count(sum(map(len, ranges)), FLAGS.max_runs, f"--{flag}={written}")
    numbers = tuple(itertools.chain(*ranges))
    if not numbers or len(set(numbers)) < len(numbers):
        raise ValueError(f"--{flag}={written} must name different seeds; give each once, as 0,1,2 or 0:3")
    return numbers


def seed(flag: str, text: str | int) -> int:
    """A seed, of a flag that takes one or several."""
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0 or number not in INT32:
        several = ", as 0,1,2 or 0:3" if flag.endswith("seeds") else ""
        named = shown(text) if isinstance(text, str) else text
        raise ValueError(f"--{flag}: {named!r} is not a seed; give whole numbers from 0 to {INT32.high}{several}")
    return number
