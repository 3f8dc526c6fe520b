"""From what a chunk of rounds returns to rows of the result tables."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.command.runs import Run
from experiments.execution import folder
from experiments.execution.judges import Judges
from experiments.execution.program import Evaluation
from experiments.privacy import statements
from fedeba_jax import metrics
from fedeba_jax.data.dealing import Owned, Pools, Tables

SPLITS = ("test", "validation")
BLAME = "offenders"  # a diagnostic for `diverged_clients` alone
PER_CLIENT = ("floats_down", "floats_up", "bytes_down", "bytes_up")  # what a round counts of one client


class Counters(NamedTuple):
    """What adds up over the rounds of each run of a batch, [R]."""

    bytes_down: np.ndarray
    bytes_up: np.ndarray
    exchanges: np.ndarray
    gate_open: np.ndarray  # -1: the algorithm has no gate
    diverged_round: np.ndarray  # 0: not
    diverged_clients: np.ndarray  # [R, n] who sent what is not finite in it; who was sampled in it, if not known
    attacker_weight: Any = None  # sum over rounds until it diverged; None without an attack, -1: not known
    excluded: Any = None  # clients who sent what is not finite and was left out, summed over rounds; as above


def no_counts(runs: int, cohort_size: int, *, attacked: bool = False) -> Counters:
    """Before the first round."""
    zero = np.zeros(runs, np.int64)
    under_attack = (np.zeros(runs), zero) if attacked else (None, None)
    return Counters(zero, zero, zero, zero, zero, np.zeros((runs, cohort_size), np.int64), *under_attack)


def add(counters: Counters, info: dict[str, np.ndarray], start: int, cohort_size: int) -> Counters:
    """The counters after the rounds from start + 1 on, whose diagnostics these are."""

    def total(name: str) -> np.ndarray:
        return info[name].astype(np.int64).sum(axis=1)

    bad = ~info["finite"]
    if "excluded" not in info:  # a round in which nobody counts is no round; robust rules do not look at weights
        bad = bad | (info["weight_max"] == 0)
    place = np.argmax(bad, axis=1)
    bad_now = (counters.diverged_round == 0) & bad.any(axis=1)
    clients = blamed(info)[np.arange(len(place)), place]
    gates = counters.gate_open + total("gate") if "gate" in info else np.full(place.shape, -1)
    # A run counts up to and with its first bad round, as it is divided by the rounds until then.
    live = (counters.diverged_round == 0)[:, None] & (np.cumsum(bad, axis=1) - bad == 0)
    under_attack: list[Any] = []
    for name in ("attacker_weight", "excluded") if counters.excluded is not None else ():
        before = getattr(counters, name)
        after = _summed(before, info[name], live, start) if name in info else np.full(place.shape, -1)
        under_attack.append(after.astype(before.dtype))
    return Counters(
        counters.bytes_down + cohort_size * total("bytes_down"),
        counters.bytes_up + cohort_size * total("bytes_up"),
        counters.exchanges + total("exchanges"),
        gates.astype(np.int64),
        np.where(bad_now, start + 1 + place, counters.diverged_round),
        np.where(bad_now[:, None], clients, counters.diverged_clients),
        *under_attack,
    )


def blamed(info: dict[str, np.ndarray]) -> np.ndarray:
    """Who sent what is not finite in each round, [R, rounds, n], -1 for the others; the cohort, if it is not known."""
    sampled, odd = info["cohort"], info.get(BLAME, np.zeros((1, 1, 1), bool))
    return np.where(odd | ~odd.any(axis=-1, keepdims=True), sampled, -1)


def _summed(before: np.ndarray, values: np.ndarray, live: np.ndarray, start: int) -> np.ndarray:
    """The sum over `start` rounds before and over the live ones of these; one that is NaN counts as the mean of all."""
    known = live & ~np.isnan(values)
    total, count = before + np.where(known, values, 0).sum(axis=1), start + known.sum(axis=1)
    unknown = live.sum(axis=1) - known.sum(axis=1)
    mean = np.divide(total, count, out=np.full(count.shape, np.nan), where=count > 0)
    return np.where(unknown > 0, total + unknown * mean, total)


def of_rounds(
    runs: Sequence[Run], info: dict[str, np.ndarray], diverged_before: np.ndarray, start: int
) -> list[dict[str, Any]]:
    """One row per run and round; a run that diverged in an earlier chunk has no more."""
    rows = []
    for i, run in enumerate(runs):
        scale = dict.fromkeys(PER_CLIENT, run.task.cohort_size)
        for t in range(info["finite"].shape[1] if not diverged_before[i] else 0):
            diagnostics = {name: values[i, t] * scale.get(name, 1) for name, values in info.items() if name != BLAME}
            rows.append({"run": run.id, "seed": run.seed, "round": start + t + 1, **diagnostics})
    return rows


def judged_on(pools: Pools, tables: Tables) -> dict[str, np.ndarray]:
    """How many held-out targets each client of each run has, [R, M], by split: examples, or of text the tokens."""
    held = {"test": (pools.test[1], tables.test), "validation": (pools.train[1], tables.validation)}
    return {split: _targets(y, owned) for split, (y, owned) in held.items() if owned is not None}


def _targets(y: np.ndarray, owned: Owned) -> np.ndarray:
    """Of labels y [N], or of sequences [N, ...] where -1 does not count."""
    if y.ndim == 1:
        return owned.num_examples
    each, clients = (y >= 0).reshape(len(y), -1).sum(axis=1), owned.num_examples.shape[1]
    lists = zip(owned.owner, owned.example, strict=True)  # of each run; the owner of padding is number `clients`
    counts = [np.bincount(owner, each[example], minlength=clients)[:clients] for owner, example in lists]
    return np.stack(counts).astype(np.int64)


def of_evaluation(
    runs: Sequence[Run],
    tables: Tables,
    targets: Mapping[str, np.ndarray],
    scores: Evaluation,
    counters: Counters,
    done: int,
    *,
    over: bool,
    origin: int,
    flipped: Sequence[int] | None = None,
    judges: Sequence[Judges | None] | None = None,
) -> list[dict[str, Any]]:
    """One row per run, split and model; the metrics of a run that diverged are null.

    Args:
      runs: the runs of the batch (padding runs have no rows).
      tables: who holds what in each.
      targets: how many each client is judged on, by split (`judged_on`).
      scores: of the evaluation.
      counters: so far.
      done: rounds so far.
      over: whether these are the last rows of the runs.
      origin: where the rows come from, as experiment.json numbers it.
      flipped: how many training labels of each run are wrong; None without label noise.
      judges: by whose scores each run is judged; None: by everybody's.
    """
    rows = []
    for i, run in enumerate(runs):
        diverged, clients = int(counters.diverged_round[i]), counters.diverged_clients[i]
        common = {"run": run.id, **run.record, "round": done, "rounds": run.task.rounds}
        costs: dict[str, Any] = {
            "gate_open": None if counters.gate_open[i] < 0 else int(counters.gate_open[i]),
            "exchanges": int(counters.exchanges[i]),
            "bytes_down": int(counters.bytes_down[i]),
            "bytes_up": int(counters.bytes_up[i]),
            "status": "diverged" if diverged else "ok",
            "diverged_round": diverged or None,
            "diverged_clients": clients[clients >= 0] if diverged else None,
            "final": over,
            "origin": origin,
        }
        measures = [(split, model, score) for split in SPLITS for model, score in scores.get(split, {}).items()]
        if over:
            costs["rows"] = len(measures) * -(-done // run.task.eval_every)  # of the run in all
        if over and run.task.privacy.name != "none":
            costs["privacy"] = statements.statement(run, rounds=done, counts=tables.train.num_examples[i])
        if over and flipped:
            costs["flipped_labels"] = flipped[i]
        for split, model, score in measures:
            each = score.accuracy[i], score.loss[i], targets[split][i]
            measured, who = metrics_of(*each), judges[i] if judges else None
            if who is not None:
                costs["attacked"] = attacked(who, measured, each[0], counters, i, done)
                measured = metrics_of(*(values[who.honest] for values in each))
            row = {**common, "split": split, "model": model, **measured, **costs}
            if diverged:
                row |= dict.fromkeys(measured)
            elif split == "test" and counts(run, done):
                row["client_accuracy"] = each[0]
                row |= {"client_loss": each[1], "client_examples": each[2]} if over else {}
            rows.append(row)
    return rows


def counts(run: Run, done: int) -> bool:
    """Whether the evaluation after so many rounds is one of the last, of which the figure of the run is the mean."""
    so_far, every = (-(-rounds // run.task.eval_every) for rounds in (done, run.task.rounds))
    return every - so_far < folder.averaged(every)


def attacked(
    who: Judges, everybody: dict[str, float], accuracy: Any, counters: Counters, run: int, done: int
) -> dict[str, Any]:
    """What a row of a run under attack says beside the metrics, which are of honest clients."""
    weight, excluded = (float(known[run]) for known in (counters.attacker_weight, counters.excluded))
    rounds = int(counters.diverged_round[run]) or done
    finite = bool(np.isfinite(accuracy).all())
    return {
        "attackers": np.flatnonzero(~who.honest).tolist(),
        "minority": np.flatnonzero(who.minority).tolist(),
        "minority_accuracy": float(accuracy[who.minority].mean()) if finite and who.minority.any() else None,
        "attacker_weight": weight / rounds if weight >= 0 else None,
        "excluded": int(excluded) if excluded >= 0 else None,
        "all_clients": everybody if finite else None,
    }


def metrics_of(accuracy: Any, loss: Any, count: Any) -> dict[str, float]:
    """All metrics of one evaluation of one model; `count` is the clients' number of held-out targets."""
    return {
        **{key: float(value) for key, value in metrics.summarize(accuracy).items()},
        "noise": float(metrics.sampling_noise(accuracy, count)),
        "pooled_accuracy": float(np.average(accuracy, weights=np.asarray(count))),
        "loss": float(np.mean(loss)),
        "loss_std": float(np.std(loss)),
        "loss_variance": float(np.var(loss)),
    }


def on_host(tree: Any) -> Any:
    """Arrays as NumPy has them, floats in float64: the losses of a diverging run overflow when squared."""
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64 if leaf.dtype == np.float32 else None), tree)
