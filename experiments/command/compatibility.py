"""What goes with what: which algorithm takes which option, and which options exclude each other.

Who takes what is declared where the algorithm is defined (`fedeba_jax.method`), or follows from its signature; the
table here only turns it round, for errors, `--list`, docs and the tests of all pairs.
"""

import dataclasses
import math
from typing import Any

from experiments.command.tasks import OPTIONS, Task
from experiments.command.values import Call
from fedeba_jax import ALGORITHMS
from fedeba_jax.hyperparameters import hyperparameters
from fedeba_jax.method import declared, uses_everybody
from fedeba_jax.privacy import ATTACKED, REASONS
from fedeba_jax.weights import RULES

EVERY = frozenset(ALGORITHMS)
_KNOWN = {name: hyperparameters(factory).values() for name, factory in ALGORITHMS.items()}
_DECLARED = {name: declared(factory) for name, factory in ALGORITHMS.items()}

TABLE: dict[str, frozenset[str]] = {
    "an optimizer": EVERY,
    "varp": frozenset(name for name, method in _DECLARED.items() if method.weighted_sum),
    "a robust rule": frozenset(
        name for name, method in _DECLARED.items() if method.weighted_sum or method.guarded_sum is not None
    ),
    "an attack": EVERY,
    "lsr": EVERY,
    "label_noise": EVERY,
    **{mode: frozenset(name for name, method in _DECLARED.items() if mode in method.privacy) for mode in REASONS},
    "a schedule": frozenset(name for name, known in _KNOWN.items() if any(h.traced for h in known)),
    "solve": frozenset(name for name, known in _KNOWN.items() if any(h.rule == "temperature" for h in known)),
}
"""Option -> the algorithms that take it."""

WHY = {
    "a robust rule": "its server step is not a weighted sum of the clients' updates; give --aggregator=weighted_sum",
    "varp": "its server step is not a weighted sum of the clients' updates, or guards them, and old updates would pass "
    "unguarded; choose another --server",
    **{mode: f"{reason}; choose another --privacy, or none" for mode, reason in REASONS.items()},
}
"""Why the others do not."""

CLASHES = {
    ("varp", "a robust rule"): "FedVARP remembers the update of each client, which a robust rule does not tell apart; "
    "give --server=sgd(1.0)",
    ("a robust rule", "client"): "noise hides a client in a weighted sum, whose largest weight is known; give one of "
    "the two",
    ("varp", "client"): "FedVARP uses old updates again, which the round's noise does not hide; give --server=sgd(1.0)",
    ("an attack", "client"): ATTACKED,
    ("solve", "client"): "a solved temperature depends on all losses, so weights have no bound fixed beforehand; "
    "give tau a number",
}
"""Options that do not go together, under any algorithm."""


def everybody(algorithm: str, values: dict[str, Any], task: Task) -> Task:
    """The task with all clients in every cohort, if the method at these values uses every client by definition."""
    needed = uses_everybody(ALGORITHMS[algorithm], values)
    return dataclasses.replace(task, cohort_size=task.clients) if needed else task


def chosen(values: dict[str, Any], task: Task) -> list[str]:
    """The options, as the table names them, that hyper-parameters and task ask for."""
    named = {field: getattr(task, field).name for field in OPTIONS}
    names = [*named.values(), *["an optimizer"] * (named["server"] != "varp")]
    rules = {name for table in RULES.values() for name in table}
    varying = [value.name for value in values.values() if isinstance(value, Call)]
    names += [name if name in rules else "a schedule" for name in varying]
    others = {
        "label_noise": task.label_noise,
        "a robust rule": named["aggregator"] != "weighted_sum",
        "an attack": named["attack"] != "none",
    }
    return [name for name in names if name in TABLE] + [name for name, is_chosen in others.items() if is_chosen]


def check(algorithm: str, values: dict[str, Any], task: Task) -> None:
    """An error, in one line, if the algorithm does not take an option, or two options do not go together."""
    options = chosen(values, task)
    for option in options:
        if algorithm not in TABLE[option]:
            raise ValueError(f"{written(option, task)} with --algorithm={algorithm} is not possible: {WHY[option]}")
    for pair, reason in CLASHES.items():
        if set(pair) <= set(options):
            raise ValueError(f"{pair[0]} with {written(pair[1], task)} is not possible: {reason}")
    _check_privacy(algorithm, values, task)
    strata = task.sampling.arguments.get("strata", 1)
    if task.clients % strata or task.cohort_size % strata:
        raise ValueError(
            f"--sampling={task.sampling} does not divide --clients={task.clients} and "
            f"--cohort_size={task.cohort_size}; change one of the three"
        )


FLAG = {"varp": "server", "a robust rule": "aggregator"}
"""The flag by which an option is given, if it is not a mode of privacy."""


def written(option: str, task: Task) -> str:
    """The option as the command line has it."""
    flag = FLAG.get(option, "privacy")
    return f"--{flag}={getattr(task, flag)}"


def _check_privacy(algorithm: str, values: dict[str, Any], task: Task) -> None:
    """An error if the algorithm with these hyper-parameters cannot take the task's mode of privacy."""
    mode, given = task.privacy.name, task.privacy.arguments
    if mode == "none":
        return
    place = f"--privacy={task.privacy} with --algorithm={algorithm}"
    if given["sigma"] and math.isinf(given["clip"]):
        raise ValueError(f"{place}: nothing bounds what noise shall hide; give a finite clip")
    if mode == "paper" and not task.batch_size:
        raise ValueError(f"{place}: its noise is divided by the batch size; give --batch_size")
    if mode == "client":
        if "theta" in values and not _fixed_gate(values["theta"]):
            raise ValueError(
                f"{place}: a gate that looks at the losses (theta={values['theta']}) lets one client move "
                "every weight; give theta=0 (open) or theta=90 (closed)"
            )
        if "theta" in values and task.local_epochs:
            raise ValueError(f"{place}: local epochs give clients unequal numbers of steps, which weigh; give --steps")
        if task.clients and given["delta"] > 1 / task.clients:
            raise ValueError(
                f"{place}: delta={given['delta']:g} lets one of {task.clients} clients be "
                "published; give at most 1 over their number"
            )


def _fixed_gate(theta: Any) -> bool:
    return not isinstance(theta, Call) and (theta == 0 or theta >= 90)
