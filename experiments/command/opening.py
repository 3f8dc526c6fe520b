"""Runs as their data has them: what flags left open is filled in once the data is there.

A task may leave to the data how many clients there are (natural partitions), how it is dealt, what clients are tested
on, and which network fits. Everything after this module sees numbers and names.
"""

import contextlib
import dataclasses
import re
from collections.abc import Iterator, Sequence

from experiments.command import compatibility, datasets, tasks
from experiments.command.runs import Run
from fedeba_jax.data.sources import Dataset

SMALLEST_IMAGE = 16  # pixels on a side that the CNN needs
FLAG_OF = {"num_clients": "clients", "alpha": "dirichlet"}  # what the library calls otherwise
_NAMES = (  # arguments as the library names them; a plain word (clients, partition) only where it is the argument
    r"num_clients|alpha|shards_per_client|test_split|label_noise|(?:partition|clients)(?==)|(?<=lower )clients"
    r"|(?<=give )clients"
)


def opened(
    runs: Sequence[Run], data_dir: str | None, known: dict[str, Dataset] | None = None
) -> tuple[list[Run], dict[str, Dataset]]:
    """The runs as their data has them, and the data sets by the texts that name them; those that are known grow."""
    known = {} if known is None else known
    found = {}
    for text in {run.task.dataset: None for run in runs}:
        found[text] = known[text] = known[text] if text in known else datasets.load(text, data_dir)
    each = [settled(run, found[run.task.dataset]) for run in runs]
    return list({run.id: run for run in each}.values()), found


@contextlib.contextmanager
def naming_flags() -> Iterator[None]:
    """Errors of the library on how data is dealt name the flags that say so."""
    try:
        yield
    except ValueError as error:
        told = re.sub(rf"(?<![\w-])(?:{_NAMES})\b", lambda name: f"--{FLAG_OF.get(name[0], name[0])}", str(error))
        raise ValueError(told) from None


def settled(run: Run, dataset: Dataset) -> Run:
    """The run with all that is automatic as this data set has it."""
    with naming_flags():
        dealing = run.dealing.settled(dataset)
    dealt = {name: getattr(dealing, name) for name in ("clients", "partition", "test_split")}
    model = fitting_model(dataset) if run.task.model == tasks.AUTO else run.task.model
    task = tasks.checked(dataclasses.replace(run.task, **dealt, model=model))
    _check_objective(task, dataset)
    if task.attack.name == "label_flipping" and dataset.y_train.ndim > 1:
        raise ValueError(
            f"--attack={task.attack} with {task.dataset}: an example has not one label; give another attack"
        )
    task = compatibility.everybody(run.algorithm, run.hparams, task)
    compatibility.check(run.algorithm, run.hparams, task)
    return run if task == run.task else dataclasses.replace(run, task=task)


def _check_objective(task: tasks.Task, dataset: Dataset) -> None:
    """An error if the objective cannot be that of this data."""
    place = f"--objective={task.objective} with {task.dataset}"
    if task.objective.name == "lsr" and dataset.y_train.ndim > 1:
        raise ValueError(f"{place}: it takes one label for each example, not a sequence; give cross_entropy")
    if task.objective.name == "lsr" and task.objective.arguments["views"] != "same" and dataset.x_train.ndim != 4:
        raise ValueError(f"{place}: only images have views; give lsr(views=same), or cross_entropy")


def fitting_model(dataset: Dataset) -> str:
    """The network that suits the shape of an example: of tokens, of images large enough for a CNN, of features."""
    shape = dataset.x_train.shape[1:]
    if dataset.y_train.ndim > 1:
        return "lstm_words"
    if len(shape) == 1:
        return "logistic"
    return "cnn" if min(shape[:2]) >= SMALLEST_IMAGE else "mlp"
