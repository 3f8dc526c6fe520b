"""What FedEBA+ adds to FedAvg's averaging at the server: weights, gate, mixing; and to a local step: the blend.

    python -m benchmarks.overhead --models=mlp,cnn

Each function runs alone on the round's shapes, inside a compiled loop on one device (no dispatch), interleaved with
whole rounds of FedAvg and FedEBA+; shown is its time and its share of each. The blend is what an aligned local step
takes longer than a plain one, times the steps of a round, over the devices that share them. --out: a JSON file.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags

from benchmarks.tools import inside, measure
from benchmarks.tools.work import Work, compile_round, make_round, random_data
from experiments.command import cli
from experiments.execution import session
from fedeba_jax import tree
from fedeba_jax.gradients import blend
from fedeba_jax.weights import entropy_based, fairness_angle

FLAGS = flags.FLAGS
for _flag in ("models", "repeats", "seconds", "out"):
    flags.declare_key_flag(_flag)

TAU, ALPHA, THETA, RATE = 1.0, 0.9, 0.0, 0.1
ADDED = ("weights", "gate", "mixing")  # beyond FedAvg's averaging


def functions(work: Work) -> dict[str, Callable[[int], float]]:
    """Each as (count) -> seconds."""
    params = make_round(work).model.init(jax.random.key(0))
    deltas = jax.tree.map(lambda p: jnp.stack([p] * work.cohort), params)
    losses = jnp.linspace(1.0, 2.0, work.cohort)
    gradient, target = tree.scale(0.5, params), tree.scale(0.25, params)
    mixed = blend()

    def weights(losses: jax.Array) -> jax.Array:
        return entropy_based(losses, TAU) + entropy_based(2 * losses, TAU)  # of the updates and of the fair gradient

    def gate(losses: jax.Array) -> jax.Array:
        return jnp.where(fairness_angle(losses) > THETA, losses, losses + 1)

    def averaging(mean: Any) -> Any:
        share = jnp.full((work.cohort,), 1 / work.cohort) + 0 * jax.tree.leaves(mean)[0].ravel()[0]
        return tree.weighted_sum(deltas, share)

    def plain_step(params: Any) -> Any:
        return jax.tree.map(lambda p, g: p - RATE * g, params, gradient)

    def aligned_step(params: Any) -> Any:
        context = {"target": target, "weight": jnp.float32(ALPHA), "num_steps": jnp.int32(work.steps)}
        direction, _ = mixed.update(gradient, (), params, **context)
        return jax.tree.map(lambda p, g: p - RATE * g, params, direction)

    return {
        "averaging": inside.repeated(averaging, params),
        "weights": inside.repeated(weights, losses),
        "gate": inside.repeated(gate, losses),
        "mixing": inside.repeated(lambda delta: tree.mix(jnp.float32(ALPHA), delta, gradient), params),
        "plain step": inside.repeated(plain_step, params),
        "aligned step": inside.repeated(aligned_step, params),
    }


def measure_model(model: str) -> list[dict[str, Any]]:
    work = Work(model)
    data = random_data(work)
    rounds = {name: compile_round(Work(model, name), data).run for name in ("fedavg", "fedeba_plus")}
    seconds = measure.interleaved(rounds | functions(work))
    seconds["weights, gate and mixing"] = sum(seconds[name] for name in ADDED)
    blending = seconds.pop("aligned step") - seconds.pop("plain step")
    seconds["blend in all local steps"] = blending * work.steps * -(-work.cohort // jax.device_count())
    return [
        {
            "model": model, "what": name, "seconds": float(np.median(taken)),
            **{f"share_of_{r}": float(np.median(taken / seconds[r])) for r in rounds},
        }
        for name, taken in seconds.items()
    ]  # fmt: skip


def main() -> None:
    session.set_up()
    measure.warn_if_busy()
    rows = [row for model in FLAGS.models for row in measure_model(model)]
    shown = [
        [f"{r['model']} {r['what']}", f"{r['seconds'] * 1e6:.1f}",
         *(f"{100 * r[f'share_of_{name}']:.3f} %" for name in ("fedavg", "fedeba_plus"))]
        for r in rows
    ]  # fmt: skip
    print(measure.table(["", "us", "of a FedAvg round", "of a FedEBA+ round"], shown))
    measure.write(FLAGS.out, "overhead", rows, {})


if __name__ == "__main__":
    cli.run(main)
