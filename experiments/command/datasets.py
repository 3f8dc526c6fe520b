"""What --dataset and --data name: a set of the registry, a synthetic one as a call, or your own data.

    fashion_mnist    synthetic_logistic(alpha=0.5, beta=0.5)    custom(measurements.npz)

A set is known by its text: runs of the same text share its data.
"""

from experiments.command import calls
from experiments.command.values import shown
from fedeba_jax.data import custom, sources
from fedeba_jax.data.sources import DATASETS, Dataset
from fedeba_jax.data.synthetic import SYNTHETIC
from fedeba_jax.hyperparameters import collaborators

CUSTOM = custom.NAME
MOST_CLIENTS = 10_000_000  # of synthetic data


def own(path: str) -> str:
    """The text that names your own data."""
    return f"{CUSTOM}({path})"


def is_own(text: str) -> bool:
    """Whether a text names your own data."""
    return text.startswith(f"{CUSTOM}(")


def read(text: str) -> str:
    """The text of a data set as it is compared and recorded; an error, in one line, if it names none."""
    name, opened, _ = text.partition("(")
    if name in SYNTHETIC:
        call = calls.parse(SYNTHETIC, text, "--dataset")
        if call.arguments["clients"] > MOST_CLIENTS:
            raise ValueError(f"--dataset={shown(text)}: so many clients cannot be made; give at most {MOST_CLIENTS}")
        return str(call)
    if name == CUSTOM and (not opened or not text.endswith(")") or text == own("")):
        raise ValueError(f"--dataset={shown(text)} names no file; give --data=FILE.npz, or --data=FOLDER")
    if name != CUSTOM and text not in DATASETS:
        known = ", ".join([*DATASETS, *SYNTHETIC, CUSTOM])
        raise ValueError(f"--dataset={shown(text)} is not known; choose one of {known}")
    return text


def has_test_labels(text: str) -> bool:
    """Whether it is known, before it is loaded, that the set has a test set with a label for each example."""
    return text in DATASETS and not DATASETS[text].tokens


def load(text: str, data_dir: str | None) -> Dataset:
    """The data set that a text names, loaded or made, and checked."""
    name, _, inside = text.partition("(")
    if name == CUSTOM:
        return custom.load(inside.removesuffix(")"))
    if name in SYNTHETIC:
        call = calls.parse(SYNTHETIC, text, "--dataset")
        supplied = {"data_dir": data_dir} if "data_dir" in collaborators(call.function) else {}
        try:
            return call.make(**supplied)
        except ValueError as error:
            raise ValueError(f"--dataset={shown(text)} is not possible: {error}") from None
    return sources.load(text, data_dir)
