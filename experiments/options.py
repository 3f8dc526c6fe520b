"""Which algorithm takes which option: one table, for the errors of wrong combinations and for their tests."""

from typing import Any

from experiments import calls, privacy
from experiments.tasks import OPTIONS, Task
from fedeba_jax import ALGORITHMS
from fedeba_jax.algorithms.signature import hyperparameters
from fedeba_jax.weights import RULES

EVERY = frozenset(ALGORITHMS)
_KNOWN = {name: hyperparameters(factory).values() for name, factory in ALGORITHMS.items()}

TABLE: dict[str, frozenset[str]] = {
    "an optimizer": EVERY,
    "varp": EVERY - {"focus", "lp_proj", "rank_core_fed"},
    "lsr": EVERY,
    "label_noise": EVERY,
    "paper": frozenset({"fedeba_plus", "fedavg_align"}),
    "example": frozenset({"fedavg", "fedsgd", "fedprox"}),
    "client": frozenset({"fedavg", "fedsgd", "fedprox", "fedeba", "prac_fedeba_plus"}),
    "a schedule": frozenset(name for name, known in _KNOWN.items() if any(h.traced for h in known)),
    "solve": frozenset(name for name, known in _KNOWN.items() if any(h.rule == "temperature" for h in known)),
}
"""Option -> the algorithms that take it; who takes schedules and `solve` is in the signatures."""

WHY = {
    "varp": "its server step is not a weighted sum of the clients' updates; choose another --server",
    **{mode: f"{reason}; choose another --privacy, or none" for mode, reason in privacy.REASONS.items()},
}
"""Why the others do not."""

CLASHES = {
    ("varp", "client"): "FedVARP uses old updates again, which the round's noise does not hide; give --server=sgd(1.0)",
    ("solve", "client"): "a solved temperature depends on all losses, so weights have no bound fixed beforehand; "
    "give tau a number",
}
"""Options that do not go together, under any algorithm."""


def chosen(values: dict[str, Any], task: Task) -> list[str]:
    """The options, as the table names them, that hyper-parameters and task ask for."""
    named = {field: calls.parse(table, getattr(task, field), f"--{field}").name for field, table in OPTIONS.items()}
    names = [*named.values(), *["an optimizer"] * (named["server"] != "varp")]
    texts = [str(value).partition("(")[0] for value in values.values() if isinstance(value, str) and "(" in value]
    rules = {name for table in RULES.values() for name in table}
    names += [text if text in rules else "a schedule" for text in texts]
    return [name for name in names if name in TABLE] + ["label_noise"] * bool(task.label_noise)


def check(algorithm: str, values: dict[str, Any], task: Task) -> None:
    """An error, in one line, if the algorithm does not take an option, or two options do not go together."""
    options = chosen(values, task)
    for option in options:
        if algorithm not in TABLE[option]:
            raise ValueError(f"--{_flag(option, task)} with --algorithm={algorithm} is not possible: {WHY[option]}")
    for pair, reason in CLASHES.items():
        if set(pair) <= set(options):
            raise ValueError(f"{pair[0]} with --privacy={task.privacy} is not possible: {reason}")
    privacy.check(algorithm, values, task)


def _flag(option: str, task: Task) -> str:
    return f"server={task.server}" if option == "varp" else f"privacy={task.privacy}"
