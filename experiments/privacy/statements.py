"""What a run may claim about privacy, as a record of plain values that stands in its results."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fedeba_jax
from experiments.command.runs import Run
from experiments.command.tasks import Task
from experiments.command.values import Call, plain
from experiments.privacy import accounting
from fedeba_jax.method import declared
from fedeba_jax.privacy import Limits, sensitivity
from fedeba_jax.rounds import participations
from fedeba_jax.types import Sizes

NOT_COVERED = "evaluations and diagnostics of this run, further seeds on the same data, the choice of hyper-parameters"
"""What the guarantee of one run says nothing of."""
TEXT = (
    "epsilon {epsilon:.4g} at delta {delta:g} ({unit} level, {relation}; {accountant}): {sampling}, clip {clip:g}, "
    "sigma {sigma:g}, {releases} releases; released: {released}, to {to}; not covered: {not_covered}"
)
"""A guarantee in one line."""
NOISE_INJECTION = "noise injection into the alignment variable, as in the paper; all else is released as it is"


MOST_ROUNDS = 1_000_000  # of which the cohorts are drawn to count how often an example was used: half a minute


def statement(run: Run, *, rounds: int, counts: Sequence[int] | np.ndarray) -> dict[str, Any]:
    """What a run guarantees; epsilon is None where it guarantees nothing.

    Args:
      run: the run.
      rounds: rounds that are done.
      counts: number of training examples of each client.
    """
    call = run.task.privacy
    if call.name == "none":
        return _no_guarantee(call, "nothing is clipped or noised")
    if call.name == "paper":
        return _no_guarantee(call, NOISE_INJECTION)
    population = run.task.clients if call.name == "client" else int(np.sum(counts))
    if not call.arguments["sigma"]:
        return _no_guarantee(call, "sigma = 0 adds no noise")
    if call.arguments["delta"] > 1 / population:
        return _no_guarantee(call, f"delta is above 1/{population}: it would let one {call.name} be published")
    try:
        claimed = _of_clients(run, rounds) if call.name == "client" else _of_examples(run, rounds, counts)
    except ArithmeticError:
        told = f"--privacy={call}: no epsilon can be computed for so much noise, or so little"
        raise ValueError(f"{told}; give a sigma nearer to 1") from None
    claim = {**_basis(call, guarantee=True), **claimed, "not_covered": NOT_COVERED}
    return {**claim, "text": TEXT.format(**claim)}


def _of_clients(run: Run, rounds: int) -> dict[str, Any]:
    task, given = run.task, run.task.privacy.arguments
    strata = task.sampling.arguments.get("strata", 1)  # a client is in one, and the others are drawn without it
    drawn, clients = task.cohort_size // strata, task.clients // strata
    who = "clients of each stratum" if strata > 1 else "clients"
    epsilon = accounting.fixed_size(given["sigma"], drawn, clients, rounds, given["delta"])
    most = most_weight(run.hparams, task)
    return {
        "epsilon": epsilon.value,
        "accountant": epsilon.accountant,
        "unit": "client",
        "relation": "replace one client",
        "sampling": f"{drawn} of {clients} {who} in each round, without replacement",
        "releases": rounds,
        "released": "the model of every round",
        "to": "anyone; the server, which sees updates and losses, is trusted",
        "most_weight": most,
        "sensitivity": float(sensitivity(given["clip"], most)),
    }


def most_weight(hparams: dict[str, Any], task: Task) -> float:
    """The most that one client of a cohort may weigh; of a scheduled temperature, in any round."""
    if hparams.get("weighting") == "uniform":
        return 1 / task.cohort_size
    given, tau = task.privacy.arguments, hparams.get("tau")
    limits = Limits(given["clip"], given["loss_clip"], given["weight_cap"])
    return float(limits.most_weight(task.cohort_size, None if isinstance(tau, Call) else tau))


def _of_examples(run: Run, rounds: int, counts: Sequence[int] | np.ndarray) -> dict[str, Any]:
    task, given = run.task, run.task.privacy.arguments
    steps, epochs, batch_size = task.steps, task.local_epochs or None, task.batch_size or None
    if declared(fedeba_jax.ALGORITHMS[run.algorithm]).one_full_step:
        steps, epochs, batch_size = 1, None, None
    local = fedeba_jax.LocalTraining(lambda *_: jnp.zeros(()), 1.0, steps=steps, epochs=epochs, batch_size=batch_size)
    sizes = Sizes(task.clients, task.cohort_size, capacity=max(counts), model_size=0)
    if rounds > MOST_ROUNDS:
        raise ValueError(
            f"--rounds={rounds} with --privacy={run.task.privacy}: who takes part in which round is counted before "
            f"training; give at most {MOST_ROUNDS} rounds"
        )
    took_part = np.asarray(participations(jax.random.key(run.seeds.sample), rounds, sizes, task.sampling.make()))
    held = np.asarray(counts)
    releases = took_part * np.asarray(local.num_steps(jnp.asarray(held)))
    rates = np.minimum(batch_size or held, held) / np.maximum(held, 1)
    pairs = _not_dominated({(float(q), int(t)) for q, t in zip(rates, releases, strict=True) if q > 0 and t > 0})
    claims = [(accounting.poisson(given["sigma"], *pair, given["delta"]), *pair) for pair in pairs]
    epsilon, rate, most = max(claims, default=(accounting.Epsilon(0.0, "none"), 0.0, 0))
    return {
        "epsilon": epsilon.value,
        "accountant": epsilon.accountant,
        "unit": "example",
        "relation": "add or remove one example of one client",
        "sampling": f"Poisson, rate {rate:.4g} in each local step",
        "releases": most,
        "released": "the updates of each client, noised by itself (figures of the one with the largest epsilon)",
        "to": "the server, and through it anyone; how many examples a client holds is known",
        "sensitivity": given["clip"],
    }


def _not_dominated(pairs: set[tuple[float, int]]) -> list[tuple[float, int]]:
    """Those that no other pair exceeds in both: epsilon grows with each."""
    kept: list[tuple[float, int]] = []
    for rate, releases in sorted(pairs, reverse=True):
        if not kept or releases > kept[-1][1]:
            kept.append((rate, releases))
    return kept


def _basis(call: Call, *, guarantee: bool) -> dict[str, Any]:
    return {"mode": call.name, "guarantee": guarantee, **plain(call.arguments)}


def _no_guarantee(call: Call, reason: str) -> dict[str, Any]:
    return {**_basis(call, guarantee=False), "epsilon": None, "reason": reason, "text": f"no guarantee: {reason}"}
