"""The fast code equals the loop-and-NumPy twins: float64, 5 rounds, 1e-8, ragged clients."""

import jax
import numpy as np
import pytest

import fedeba_jax
from fedeba_jax.local import Client, Shard
from tests.problems import tiny
from tests.reference import TWINS, Problem

ROUNDS = 5
CASES = [
    ("fedavg", {}),
    ("fedavg", {"weighting": "uniform"}),
    ("fedsgd", {}),
    ("fedprox", {"mu": 0.7}),
    ("fedeba", {"tau": 0.5}),
    ("fedeba", {"tau": 2.0, "prior": "examples"}),
    ("fedeba_plus", {"tau": 0.5, "alpha": 0.6, "theta": 0.0}),
    ("fedeba_plus", {"tau": 0.5, "alpha": 0.6, "theta": 20.0}),  # the gate opens in some rounds only
    ("fedeba_plus", {"tau": 1.0, "alpha": 0.9, "theta": 180.0, "prior": "examples"}),
    ("fedeba_plus", {"tau": 1.0, "alpha": 0.5, "theta": 0.0, "fair_scale": 1.0, "prior": "examples"}),
    ("prac_fedeba_plus", {"tau": 0.5, "alpha": 0.6, "theta": 0.0}),
    ("prac_fedeba_plus", {"tau": 0.5, "alpha": 0.6, "theta": 20.0, "prior": "examples"}),
    ("prac_fedeba_plus", {"tau": 0.5, "alpha": 0.6, "theta": 180.0}),
    ("fedavg_align", {"tau": 0.5, "alpha": 0.6, "theta": 20.0, "weighting": "uniform"}),
    ("fedavg_align", {"tau": 0.5, "alpha": 0.6, "theta": 0.0, "weighting": "examples"}),
]


def drawn(problem, key, cohorts, epochs=None):
    """The batches that the fast code draws, as the twin takes them."""
    local = fedeba_jax.LocalTraining(
        objective=None, learning_rate=0.0, steps=problem.steps, batch_size=problem.batch_size, epochs=epochs
    )
    federation = problem.federation

    def one(t, i):
        _, clients, _ = jax.random.split(jax.random.fold_in(key, t), 3)
        shard = Shard(federation.x, federation.y, federation.index[i], federation.count[i])
        return local.batches(Client(i, jax.random.fold_in(clients, i), shard, (), t))

    over_clients = jax.vmap(one, in_axes=(None, 0))
    position, mask, steps = jax.tree.map(np.asarray, jax.jit(jax.vmap(over_clients))(np.arange(len(cohorts)), cohorts))
    return [
        {i: [position[t, j, k][mask[t, j, k]] for k in range(steps[t, j])] for j, i in enumerate(ids)}
        for t, ids in enumerate(cohorts.tolist())
    ]


def as_twin_problem(problem, key, cohorts, epochs=None):
    index, count = np.asarray(problem.federation.index), np.asarray(problem.federation.count)
    x, y = np.asarray(problem.federation.x, np.float64) / 255, np.asarray(problem.federation.y)
    data = [(x[row[:c]], y[row[:c]]) for row, c in zip(index, count, strict=True)]
    params = [tuple(np.asarray(leaf) for leaf in layer) for layer in problem.model.init(key)]
    return Problem(
        params=params, data=data, cohorts=cohorts.tolist(), batches=drawn(problem, key, cohorts, epochs),
        learning_rate=lambda t: problem.rate * 0.9**t,
    )  # fmt: skip


def test_every_algorithm_has_a_twin():
    assert set(TWINS) == set(fedeba_jax.ALGORITHMS) == {name for name, _ in CASES}


@pytest.mark.parametrize(("name", "hparams"), CASES, ids=lambda v: v if isinstance(v, str) else None)
def test_fast_equals_twin(x64, name, hparams):
    problem, key = tiny(), jax.random.key(3)
    state, info, _ = jax.jit(lambda key: problem.run(problem.algorithm(name, **hparams), key, rounds=ROUNDS))(key)
    compare(problem, key, state, info, name, hparams)


@pytest.mark.parametrize("name", ["fedavg", "fedeba_plus", "prac_fedeba_plus"])
@pytest.mark.parametrize("theta", [0.0, 180.0])
def test_fast_equals_twin_with_unequal_steps(x64, name, theta):
    """With local epochs clients take different numbers of steps."""
    problem, key = tiny(epochs=2), jax.random.key(3)
    hparams = {} if name == "fedavg" else {"tau": 0.5, "alpha": 0.6, "theta": theta}
    state, info, _ = jax.jit(lambda key: problem.run(problem.algorithm(name, **hparams), key, rounds=ROUNDS))(key)
    compare(problem, key, state, info, name, hparams, epochs=2)


def compare(problem, key, state, info, name, hparams, epochs=None):
    twin_hparams = {k: None if v == "none" else v for k, v in hparams.items()}
    twin = TWINS[name](as_twin_problem(problem, key, np.asarray(info["cohort"]), epochs), **twin_hparams)
    for fast, slow in zip(state.server.params, twin.params[-1], strict=True):
        for a, b in zip(fast, slow, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-8, rtol=0)
    for diagnostic in ("angle", "gate"):
        if diagnostic in info:
            np.testing.assert_allclose(info[diagnostic], [d[diagnostic] for d in twin.diagnostics], atol=1e-8)
    np.testing.assert_allclose(info["weight_max"], [d["weights"].max() for d in twin.diagnostics], atol=1e-8)
    if "theta" in hparams and hparams["theta"] == 20.0:
        assert 0 < np.sum(info["gate"]) < ROUNDS, "choose theta so that both branches run"
