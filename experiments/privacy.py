"""What a run may claim about privacy: refused before it starts where nothing could be, stated in its results."""

import functools
import inspect
import math
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np
import optax

import fedeba_jax
from experiments import accounting, calls, hparams
from experiments.tasks import Task
from fedeba_jax.privacy import MODES, REASONS, sensitivity
from fedeba_jax.simulate import participations
from fedeba_jax.types import Sizes

NOT_COVERED = "evaluations and diagnostics of this run, further seeds on the same data, the choice of hyper-parameters"
"""What the guarantee of one run says nothing of."""


def check(algorithm: str, values: dict[str, Any], task: Task) -> None:
    """An error, in one line, if the algorithm with these hyper-parameters cannot take the task's mode of privacy."""
    call = calls.parse(MODES, task.privacy, "--privacy")
    if call.name == "none":
        return
    place = f"--privacy={task.privacy} with --algorithm={algorithm}"
    sigma, clip = call.arguments["sigma"], call.arguments["clip"]
    _check_algorithm(place, algorithm, values, task, call)
    if sigma and math.isinf(clip):
        raise ValueError(f"{place}: nothing bounds what noise shall hide; give a finite clip")
    if call.name == "paper" and not task.batch_size:
        raise ValueError(f"{place}: its noise is divided by the batch size; give --batch_size")
    if call.name == "client":
        if "theta" in values and not _fixed_gate(values["theta"]):
            raise ValueError(f"{place}: a gate that looks at the losses (theta={values['theta']}) lets one client move "
                             "every weight; give theta=0 (open) or theta=90 (closed)")  # fmt: skip
        if call.arguments["delta"] > 1 / task.clients:
            raise ValueError(f"{place}: delta={call.arguments['delta']:g} lets one of {task.clients} clients be "
                             "published; give at most 1 over their number")  # fmt: skip
    if call.name != "paper" and sigma:
        accounting.require()


def _check_algorithm(place: str, algorithm: str, values: dict[str, Any], task: Task, call: calls.Call) -> None:
    """Factories refuse what they cannot take; those without a parameter for it take nothing."""
    factory = fedeba_jax.ALGORITHMS[algorithm]
    if "privacy" not in inspect.signature(factory).parameters:
        raise ValueError(f"{place} is not possible: {REASONS[call.name]}")
    local = fedeba_jax.LocalTraining(lambda *_: 0.0, 1.0, epochs=task.local_epochs or None)
    server = fedeba_jax.descent(optax.identity())
    make = functools.partial(factory, local, server, privacy=MODES[call.name](**call.arguments))
    try:
        fedeba_jax.scheduled(make, **hparams.together(*hparams.traced(algorithm, values)))
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


def _fixed_gate(theta: Any) -> bool:
    return not isinstance(theta, str) and (theta == 0 or theta >= 90)


def statement(
    algorithm: str, values: dict[str, Any], task: Task, *, rounds: int, counts: Sequence[int], sample_seed: int
) -> dict[str, Any]:
    """What a run guarantees, as a record of plain values; epsilon is None where it guarantees nothing.

    Args:
      algorithm: its name.
      values: its hyper-parameters.
      task: the task.
      rounds: rounds that were done.
      counts: number of training examples of each client.
      sample_seed: the seed that cohorts are drawn from.
    """
    call = calls.parse(MODES, task.privacy, "--privacy")
    if call.name == "none":
        return _no_guarantee(call, "nothing is clipped or noised")
    if call.name == "paper":
        return _no_guarantee(call, "noise injection into the alignment variable, as in the paper; all else is released "
                                   "as it is")  # fmt: skip
    population = task.clients if call.name == "client" else int(np.sum(counts))
    if not call.arguments["sigma"]:
        return _no_guarantee(call, "sigma = 0 adds no noise")
    if call.arguments["delta"] > 1 / population:
        return _no_guarantee(call, f"delta is above 1/{population}: it would let one {call.name} be published")
    if call.name == "client":
        claimed = _of_clients(values, task, call, rounds)
    else:
        claimed = _of_examples(algorithm, task, call, rounds, counts, sample_seed)
    return _told({**_basis(call, guarantee=True), **claimed, "not_covered": NOT_COVERED})


def worst(statements: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Of runs that differ in their seed, the statement of the one that guarantees least."""
    return max(statements, key=lambda s: (not s["guarantee"], s["epsilon"] or 0.0))


def _of_clients(values: dict[str, Any], task: Task, call: calls.Call, rounds: int) -> dict[str, Any]:
    given = call.arguments
    epsilon = accounting.fixed_size(given["sigma"], task.cohort_size, task.clients, rounds, given["delta"])
    most = _most_weight(values, task, call)
    return {
        "epsilon": epsilon.value, "accountant": epsilon.accountant, "unit": "client", "relation": "replace one client",
        "sampling": f"{task.cohort_size} of {task.clients} clients a round, without replacement", "releases": rounds,
        "released": "the model of every round", "to": "anyone; the server, which sees updates and losses, is trusted",
        "most_weight": most, "sensitivity": float(sensitivity(given["clip"], most)),
    }  # fmt: skip


def _most_weight(values: dict[str, Any], task: Task, call: calls.Call) -> float:
    """The most that one client of a cohort may weigh; of a scheduled temperature, in any round."""
    if values.get("weighting") == "uniform":
        return 1 / task.cohort_size
    tau = values.get("tau")
    return float(MODES["client"](**call.arguments).cap(task.cohort_size, None if isinstance(tau, str) else tau))


def _of_examples(
    algorithm: str, task: Task, call: calls.Call, rounds: int, counts: Sequence[int], sample_seed: int
) -> dict[str, Any]:
    given = call.arguments
    steps, epochs, batch_size = task.steps, task.local_epochs or None, task.batch_size or None
    if algorithm == "fedsgd":  # whatever the task says
        steps, epochs, batch_size = 1, None, None
    local = fedeba_jax.LocalTraining(lambda *_: 0.0, 1.0, steps=steps, epochs=epochs, batch_size=batch_size)
    sizes = Sizes(task.clients, task.cohort_size, capacity=max(counts), model_size=0)
    took_part = np.asarray(participations(jax.random.key(sample_seed), rounds, sizes))
    held = np.asarray(counts)
    releases = took_part * np.asarray(local.num_steps(held))
    rates = np.minimum(batch_size or held, held) / np.maximum(held, 1)
    pairs = _not_dominated({(float(q), int(t)) for q, t in zip(rates, releases, strict=True) if q > 0 and t > 0})
    epsilons = {pair: accounting.poisson(given["sigma"], *pair, given["delta"]) for pair in pairs}
    (rate, most), epsilon = max(
        epsilons.items(), key=lambda item: item[1].value, default=((0.0, 0), accounting.Epsilon(0.0, "none"))
    )
    return {
        "epsilon": epsilon.value, "accountant": epsilon.accountant, "unit": "example",
        "relation": "add or remove one example of one client",
        "sampling": f"Poisson, rate {rate:.4g} a local step", "releases": most,
        "released": "the updates of each client, noised by itself (figures of the one with the largest epsilon)",
        "to": "the server, and through it anyone; how many examples a client holds is known",
        "sensitivity": given["clip"],
    }  # fmt: skip


def _not_dominated(pairs: set[tuple[float, int]]) -> list[tuple[float, int]]:
    """Those that no other pair exceeds in both: epsilon grows with each."""
    kept: list[tuple[float, int]] = []
    for rate, releases in sorted(pairs, reverse=True):
        if not kept or releases > kept[-1][1]:
            kept.append((rate, releases))
    return kept


def _basis(call: calls.Call, *, guarantee: bool) -> dict[str, Any]:
    return {"mode": call.name, "guarantee": guarantee, **call.arguments}


def _no_guarantee(call: calls.Call, reason: str) -> dict[str, Any]:
    return {**_basis(call, guarantee=False), "epsilon": None, "reason": reason, "text": f"no guarantee: {reason}"}


def _told(claim: dict[str, Any]) -> dict[str, Any]:
    template = (
        "epsilon {epsilon:.4g} at delta {delta:g} ({unit} level, {relation}; {accountant}): {sampling}, clip {clip:g}, "
        "sigma {sigma:g}, {releases} releases; released: {released}, to {to}; not covered: {not_covered}"
    )
    return {**claim, "text": template.format(**claim)}
