"""Flags that binaries share: algorithm, task and its fields, seeds, data, devices, output, choice of the best.

A binary adopts all of them, or declares those it takes as its own, so that --help shows them.
"""

import dataclasses

from absl import flags

from experiments import devices, show
from experiments.tasks import CHOICES, HELP, OPTIONS, TASKS, Task, resolve
from fedeba_jax.data.sources import DATASETS
from fedeba_jax.models import MODELS

FLAGS = flags.FLAGS
flags.DEFINE_list("algorithm", ["fedeba_plus"], "Algorithm, or several where several are compared: fedavg,fedeba_plus.")
flags.DEFINE_string("task", "fashion_mnist_mlp", f"One of {', '.join(TASKS)}.")
flags.DEFINE_list("seeds", ["0"], "Seeds, each a run: 0,1,2 or 0:3.")
flags.DEFINE_integer("data_seed", None, "Seed of the data split, if it shall not follow the seed.")
flags.DEFINE_integer("init_seed", None, "Seed of the initial model, if it shall not follow the seed.")
flags.DEFINE_integer("sample_seed", None, "Seed of client and batch sampling, if it shall not follow the seed.")
flags.DEFINE_float("validation", None, "Fraction of each client's training data held back and evaluated.")
flags.DEFINE_string("out", None, "Folder (of benchmarks: file) of the results; the default is in the description.")
flags.DEFINE_enum("select_on", "validation", ["validation", "test"], "Which split the best points are chosen on.")
flags.DEFINE_enum("metric", "mean", list(show.METRICS), "What the best points are chosen by.")
flags.DEFINE_string("data_dir", None, "Where data sets live; default $FEDEBA_DATA, or ./data.")
flags.DEFINE_string("client_map", "auto", f"How the clients of a round run: {devices.MAPS}.")
flags.DEFINE_string("run_map", "auto", f"How several runs run: {devices.MAPS}.")
flags.DEFINE_enum("state_dtype", "float32", ["float32", "bfloat16"],
                  "Type in which personal models are kept between rounds; bfloat16 halves their memory.")  # fmt: skip
flags.DEFINE_integer("host_devices", 0, "CPU devices to make; 0 is one a core.")
flags.DEFINE_string("compilation_cache", None, "Folder that keeps compiled programs; empty for none.")
_DEFINE = {int: flags.DEFINE_integer, float: flags.DEFINE_float, str: flags.DEFINE_string}
for _field in dataclasses.fields(Task):
    _names = CHOICES.get(_field.name) or OPTIONS.get(_field.name)
    _valid = f" ({', '.join(_names)})" if _names else ""
    _DEFINE[_field.type](_field.name, None, f"Of the task, if changed: {HELP[_field.name]}{_valid}.")  # type: ignore[index]


def set_up_devices() -> None:
    """Devices and cache as the flags say, before JAX starts."""
    devices.set_up(host_devices=FLAGS.host_devices, cache=FLAGS.compilation_cache)


def maps() -> tuple[str, str]:
    """The names of the client map and the run map, checked."""
    for flag in ("client_map", "run_map"):
        if FLAGS[flag].value != "auto":
            devices.by_name(FLAGS[flag].value, flag)
    return FLAGS.client_map, FLAGS.run_map


def task() -> Task:
    """The task with the fields that flags change."""
    return checked_task(FLAGS.task, {f.name: FLAGS[f.name].value for f in dataclasses.fields(Task)})


def checked_task(name: str, changes: dict[str, object]) -> Task:
    """A task with some fields changed (None: not), its names known."""
    chosen = resolve(name, {field: value for field, value in changes.items() if value is not None})
    for field, known in (("dataset", DATASETS), ("model", MODELS)):
        if getattr(chosen, field) not in known:
            raise ValueError(f"--{field}={getattr(chosen, field)} is not known; choose one of {', '.join(known)}")
    return chosen


def seeds() -> tuple[int, ...]:
    """--seeds as numbers: 0,1,2 or 0:3."""
    for flag in ("data_seed", "init_seed", "sample_seed"):
        if FLAGS[flag].value is not None:
            _seed(FLAGS[flag].value)
    numbers: list[int] = []
    for text in FLAGS.seeds:
        first, colon, end = text.partition(":")
        numbers += range(_seed(first), _seed(end)) if colon else [_seed(text)]
    if not numbers or len(set(numbers)) < len(numbers):
        raise ValueError(f"--seeds={','.join(FLAGS.seeds)} must name different seeds; give each once, as 0,1,2 or 0:3")
    return tuple(numbers)


def validation(default: float) -> float:
    fraction = default if FLAGS.validation is None else FLAGS.validation
    if not 0 <= fraction < 1:
        raise ValueError(f"--validation={fraction} is not a fraction; give a number in [0, 1)")
    return fraction


def _seed(text: str | int) -> int:
    try:
        seed = int(text)
    except ValueError:
        seed = -1
    if not 0 <= seed < 2**31:
        raise ValueError(f"--seeds: {text!r} is not a seed; give whole numbers from 0, as 0,1,2 or 0:3")
    return seed
