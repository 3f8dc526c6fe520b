"""The smallest non-i.i.d. problem with ragged clients that shows the point, for laws and twins."""

import dataclasses
import functools

import jax
import numpy as np
import optax

import fedeba_jax
from fedeba_jax.data.federation import federate, held_out
from fedeba_jax.types import Federation, HeldOut, Model, Sizes

COUNTS = (7, 3, 12, 5, 9, 1)  # ragged: below, at and above the batch size of 4
FEATURES, HIDDEN, CLASSES = 5, 4, 3


def tiny_mlp() -> Model:
    """Params are [(W, b), (W, b)], the twins' own structure."""

    def init(key):
        keys = jax.random.split(key, 4)
        shapes = [(FEATURES, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,)]
        w1, b1, w2, b2 = (jax.random.normal(k, s) for k, s in zip(keys, shapes, strict=True))
        return [(w1, b1), (w2, b2)]

    def apply(params, x):
        (w1, b1), (w2, b2) = params
        return jax.nn.relu(x @ w1 + b1[None]) @ w2 + b2[None]

    return Model(init, apply)


@dataclasses.dataclass(frozen=True)
class Tiny:
    model: Model
    federation: Federation
    test: HeldOut
    sizes: Sizes
    steps: int = 3
    batch_size: int = 4
    rate: float = 0.3
    epochs: int | None = None

    def algorithm(self, name, *, rate=None, decay=0.9, server=None, privacy=None, **hparams):
        local = fedeba_jax.LocalTraining(
            objective=fedeba_jax.cross_entropy(self.model),
            learning_rate=fedeba_jax.schedules.decay(self.rate if rate is None else rate, decay),
            steps=self.steps,
            batch_size=self.batch_size,
            epochs=self.epochs,
            apply=self.model.apply,
            block=5,  # several blocks a client, the last one partial
        )
        mode, server = privacy or fedeba_jax.privacy.none(), server or fedeba_jax.descent(optax.sgd(1.0))
        return fedeba_jax.ALGORITHMS[name](mode.local(local), mode.server(server), **hparams)

    def relabelled(self, order):
        """The same federation with client `order[i]` as client i."""
        federation = self.federation._replace(
            rows=self.federation.rows[order], num_examples=self.federation.num_examples[order]
        )
        return dataclasses.replace(self, federation=federation, test=held_out(federation))

    def run(self, algorithm, key, *, rounds=5, client_map=fedeba_jax.client_map.mapped, **changes):
        arguments = {"sizes": self.sizes, "test": self.test, "apply": self.model.apply, "eval_every": rounds}
        arguments |= {"init_key": key}
        return fedeba_jax.simulate(
            algorithm, self.federation, self.model.init, key,
            rounds=rounds, client_map=client_map, **(arguments | changes),
        )  # fmt: skip

    def start(self, algorithm, key, state_dtype=None):
        return fedeba_jax.start(algorithm, self.model.init, key, sizes=self.sizes, state_dtype=state_dtype)

    def train(self, algorithm, key, *, state=None, rounds=5, client_map=fedeba_jax.client_map.mapped):
        """(state, info) of `run`, without its evaluation: half as much to compile; less, if `state` is given."""
        state = self.start(algorithm, key) if state is None else state
        return fedeba_jax.run_rounds(
            algorithm, self.federation, state, key, 0, rounds=rounds, sizes=self.sizes, client_map=client_map
        )


def tiny(cohort_size=4, counts=COUNTS, seed=0, **changes) -> Tiny:
    """Every client draws its features around its own centre and its labels unevenly."""
    return dataclasses.replace(_tiny(cohort_size, counts, seed, jax.config.jax_enable_x64), **changes)


@functools.cache
def _tiny(cohort_size, counts, seed, x64):
    del x64  # a part of the cache's key
    rng = np.random.default_rng(seed)
    x, y, owners, start = [], [], [], 0
    for count in counts:
        centre = rng.uniform(60, 190, FEATURES)
        x.append(np.clip(rng.normal(centre, 40, (count, FEATURES)), 0, 255).astype(np.uint8))
        y.append(rng.choice(CLASSES, count, p=rng.dirichlet(np.ones(CLASSES))).astype(np.int32))
        owners.append(np.arange(start, start + count))
        start += count
    federation = federate(np.concatenate(x), np.concatenate(y), owners)
    model = tiny_mlp()
    sizes = fedeba_jax.sizes_of(federation, model.init, cohort_size)
    return Tiny(model, federation, held_out(federation), sizes)
