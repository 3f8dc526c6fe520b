"""What devices send each other in a round, by method, counted from the compiled program; nothing is run.

    python -m benchmarks.communication --host_devices=8 --algorithms=fedavg,fedeba_plus,ditto

One round of the MLP (199,210 numbers) with --cohort_size of --num_clients clients over --host_devices devices. "models"
is what one device receives in a round, in units of the model, of branches the larger one; "meetings" is how often all
devices wait for each other; "state" and "temp" are MiB of one device: what is kept between rounds, and what the round
needs beside it. --out: a JSON file.

Where clients keep rows between rounds, the rows of those travel that find no place at home (`fedeba_jax.ownership`), in
turns. How many turns a round has depends on who is sampled (--sampling). "turns" is their mean over 500 cohorts that
the sampler draws, and "models" and "meetings" count so many.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax
from absl import flags

import fedeba_jax
from benchmarks.tools import collectives, measure
from experiments.command import calls, cli
from experiments.execution import session
from fedeba_jax import client_map as maps
from fedeba_jax import ownership, tree
from fedeba_jax.rounds import cohorts, run_round, sizes_from, start
from fedeba_jax.sampling import SAMPLERS, Sampler
from fedeba_jax.types import Federation, Sizes

FLAGS = flags.FLAGS
flags.DEFINE_integer("num_clients", 1000, "Clients M.", lower_bound=1)
flags.DEFINE_list("servers", [], "Servers beside sgd, each with fedavg: varp.")
for _flag in ("algorithms", "cohort_size", "host_devices", "sampling", "out"):
    flags.declare_key_flag(_flag)
EXAMPLES, STEPS, BATCH = 20, 2, 10
DRAWN = 500  # cohorts
STATIC: dict[str, dict[str, Any]] = {"lp_proj": {"dim": 100}}


def compiled(name: str, server: str, clients: int, cohort: int, sample: Sampler) -> tuple[jax.stages.Compiled, int]:
    """A round over all devices, and the bytes of a model."""
    model = fedeba_jax.make_model("mlp", "mnist", (28, 28, 1), 10)
    local = fedeba_jax.LocalTraining(
        fedeba_jax.cross_entropy(model), 0.1, steps=STEPS, batch_size=BATCH, apply=model.apply
    )
    descend = fedeba_jax.descent(optax.sgd(1.0)) if server == "sgd" else fedeba_jax.server.SERVERS[server](1.0)
    algorithm = fedeba_jax.ALGORITHMS[name](local, descend, **STATIC.get(name, {}))
    sizes = sizes_from(model.init, clients, cohort, EXAMPLES)
    mesh = maps.device_mesh()
    federation = Federation(
        jax.ShapeDtypeStruct((clients * EXAMPLES, 28, 28, 1), jnp.uint8),
        jax.ShapeDtypeStruct((clients * EXAMPLES,), jnp.int32),
        jax.ShapeDtypeStruct((clients, EXAMPLES), jnp.int32),
        jax.ShapeDtypeStruct((clients,), jnp.int32),
    )
    client_map = maps.sharded(mesh)
    state = jax.eval_shape(
        lambda: ownership.padded(client_map, start(algorithm, model.init, jax.random.key(0), sizes=sizes))
    )

    def one(state: Any, federation: Federation, seed: jax.Array) -> Any:
        key = jax.random.key(seed)
        common: Any = {"sizes": sizes, "client_map": client_map, "sample": sample}
        return run_round(algorithm, federation, state, key, jnp.asarray(1), **common)

    copies, divided = maps.replicated(mesh), ownership.placement(client_map, state)
    jitted = jax.jit(one, in_shardings=(divided, copies, copies), out_shardings=(divided, copies), donate_argnums=0)
    number = jax.ShapeDtypeStruct((), jnp.uint32)
    return jitted.lower(state, federation, number).compile(), tree.num_bytes(jax.eval_shape(model.init, _key()))


def _key() -> Any:
    return jax.eval_shape(functools.partial(jax.random.key, 0))


def mean_turns(clients: int, cohort: int, devices: int, sample: Sampler) -> float:
    """Turns of a round in which rows travel, one way: the mean over cohorts that are drawn as runs draw them."""
    sizes = Sizes(clients, cohort, EXAMPLES, 0)

    def turns(ids: jax.Array) -> jax.Array:
        return ownership.seated(ownership.ordered(ids, clients, devices), clients, devices).turns[-1]

    return float(jax.jit(lambda: jax.lax.map(turns, cohorts(jax.random.key(0), 0, DRAWN, sizes, sample)))().mean())


def row(name: str, server: str, clients: int, cohort: int, sample: Sampler) -> dict[str, Any]:
    (program, model), devices = compiled(name, server, clients, cohort, sample), jax.device_count()
    turns, memory = mean_turns(clients, cohort, devices, sample), program.memory_analysis()
    found = collectives.exchanged(program.as_text(), turns)
    method = name if server == "sgd" else f"{name}, {server}"
    return {
        "method": method, "devices": devices, "cohort": cohort, "clients": clients,
        "models": found.num_bytes / model, "meetings": found.meetings,
        "turns": turns,
        "state": memory.output_size_in_bytes / 2**20, "temp": memory.temp_size_in_bytes / 2**20,
    }  # fmt: skip


def main() -> None:
    session.set_up()
    clients, cohort = FLAGS.num_clients, FLAGS.cohort_size or 64
    sample = calls.parse(SAMPLERS, FLAGS.sampling or "uniform", "--sampling").make()
    known = [(name, "sgd") for name in FLAGS.algorithms or fedeba_jax.ALGORITHMS]
    rows = []
    print(
        f"{'method':24}{'devices':>8}{'n':>6}{'M':>9}{'models':>9}{'meetings':>9}{'state MiB':>11}{'temp MiB':>10}"
        f"{'turns':>7}"
    )
    for name, server in [*known, *(("fedavg", server) for server in FLAGS.servers)]:
        rows.append(row(name, server, clients, cohort, sample))
        told = rows[-1]
        print(
            f"{told['method']:24}{told['devices']:8}{told['cohort']:6}{told['clients']:9}{told['models']:9.2f}"
            f"{told['meetings']:9.1f}{told['state']:11.1f}{told['temp']:10.1f}{told['turns']:7.1f}",
            flush=True,
        )
    measure.write(FLAGS.out, "communication", rows, {})


if __name__ == "__main__":
    cli.run(main)
