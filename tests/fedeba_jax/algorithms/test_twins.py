"""The fast code equals the loop-and-NumPy twins: float64, 5 rounds, 1e-8, ragged clients."""

import jax
import numpy as np
import pytest

import fedeba_jax
from fedeba_jax import tree
from fedeba_jax.algorithms.rank_core_fed import mixtures
from fedeba_jax.hyperparameters import hyperparameters
from fedeba_jax.method import uses_everybody
from tests.support.for_twins import ROUNDS, as_twin_problem, to_numpy
from tests.support.marks import slow_but
from tests.support.one_round import COHORT, IDS, KEY, program
from tests.support.problems import tiny
from tests.twins import TWINS

GATED = ["fedeba_plus", "prac_fedeba_plus"]
CASES = [
    ("fedavg", {}),
    ("fedavg", {"weighting": "uniform"}),
    ("fedsgd", {}),
    ("fedprox", {"mu": 0.7}),
    ("qffl", {"q": 0.0}),
    ("qffl", {"q": 0.5}),
    ("qffl", {"q": 15.0}),
    *(("fedmgda_plus", {"eps": eps}) for eps in (0.0, 0.1, 1.0)),
    ("fedmgda_plus", {"eps": 0.1, "eta": 0.3, "prior": "none"}),
    ("fedfv", {"alpha": 0.0, "window": 0}),
    ("fedfv", {"alpha": 0.5, "window": 1}),
    ("fedfv", {"alpha": 0.1, "window": 2}),
    ("fedfv", {"alpha": 0.1, "window": 1, "fv_window": "current"}),
    ("fedfv", {"alpha": 1.0, "window": 3, "fv_window": "current"}),
    ("ditto", {"lam": 0.5}),
    ("ditto", {"lam": 0.0, "weighting": "uniform"}),
    ("focus", {}),
    ("focus", {"clusters": 3, "pi_damping": 0.5}),
    ("lp_proj", {"dim": 4, "outer": 2, "inner": 2}),  # fewer visits than batches
    ("lp_proj", {"dim": 4, "lam": 0.7, "p": 2, "outer": 3, "inner": 4, "clip": 0.5}),  # every batch four times
    ("lp_proj", {"dim": 5, "lam": 2.0, "outer": 2, "inner": 3, "damped": True, "train_all": True}),
    ("rank_core_fed", {}),
    ("rank_core_fed", {"candidates": 0}),
    ("mime_lite", {"beta": 0.9}),
    ("mime_lite", {"beta": 0.4, "weighting": "uniform"}),
    ("fedeba", {"tau": 0.5}),
    ("fedeba", {"tau": 2.0, "prior": "examples"}),
    ("fedeba_plus", {"tau": 0.5, "alpha": 0.6, "theta": 0.0}),
    ("fedeba_plus", {"tau": 0.5, "alpha": 0.6, "theta": 14.0}),  # the gate opens in some rounds only
    ("fedeba_plus", {"tau": 1.0, "alpha": 0.9, "theta": 180.0, "prior": "examples"}),
    ("fedeba_plus", {"tau": 1.0, "alpha": 0.5, "theta": 0.0, "fair_scale": 1.0, "prior": "examples"}),
    ("fedeba_plus", {"tau": 0.5, "alpha": 0.6, "theta": 14.0, "weigh_by": "before"}),
    ("prac_fedeba_plus", {"tau": 0.5, "alpha": 0.6, "theta": 0.0}),
    ("prac_fedeba_plus", {"tau": 0.5, "alpha": 0.6, "theta": 14.0, "prior": "examples"}),
    ("prac_fedeba_plus", {"tau": 0.5, "alpha": 0.6, "theta": 180.0}),
    (
        "robust_fedeba_plus",
        {"tau": 0.5, "alpha": 0.6, "theta": 0.0, "trust": "relu", "loss_clip": 2.0, "outliers": "clip"},
    ),
    ("robust_fedeba_plus", {"tau": 0.5, "alpha": 0.6, "theta": 10.0, "loss_clip": 1.5, "prior": "examples"}),
    (
        "robust_fedeba_plus",
        {"tau": 0.1, "alpha": 0.5, "theta": 180.0, "trust": "sign", "weight_cap": 1.5},
    ),
    ("robust_fedeba_plus", {"tau": 0.1, "alpha": 0.6, "theta": 0.0, "level": "loss_only", "loss_clip": 0.5}),
    ("fedavg_align", {"tau": 0.5, "alpha": 0.6, "theta": 14.0, "weighting": "uniform"}),
    ("fedavg_align", {"tau": 0.5, "alpha": 0.6, "theta": 0.0, "weighting": "examples"}),
    ("afl", {"gamma": 0.1}),
    ("afl", {"gamma": 0.3, "order": "old", "average_iterate": True}),
    ("afl", {"gamma": 0.1, "participation": "full_simplex"}),
    ("afl", {"gamma": 0.1, "participation": "full_simplex", "order": "old"}),
    ("afl", {"gamma": 0.1, "participation": "all"}),
    ("afl", {"gamma": 0.1, "participation": "all", "order": "new", "average_iterate": False}),
    ("term", {"t": 1.5}),
    ("term", {"t": -0.7, "prior": "examples"}),
    ("term", {"t": 1.5, "normalised": False}),
    ("term", {"t": -1.5, "normalised": False}),
    ("propfair", {"M": 2.0}),
    ("propfair", {"M": 1.0, "eps": 0.3, "huber": True, "weighting": "uniform"}),  # both branches
    ("aaggff", {}),
    *(("aaggff", {"cdf": cdf}) for cdf in ("exponential", "weibull", "frechet", "gumbel", "logistic")),
    ("aaggff", {"published_code": True}),
    ("aaggff", {"variant": "S"}),
    ("aaggff", {"variant": "S", "cdf": "gumbel", "published_code": True}),
    ("corefed", {"M": 3.0}),
    ("corefed", {"M": 1.0, "eps": 0.5}),  # losses beyond M
    ("fedwavg", {"alpha": 0.3}),
    ("fedwavg", {"alpha": 0.8, "forget_every": 2, "prior": "examples"}),
    ("feddisco", {"a": 0.1, "b": 0.1}),
    ("feddisco", {"a": 0.6, "b": 0.1, "metric": "kl"}),
    ("feddisco", {"a": 9.0, "b": 0.0}),  # no term is positive
    ("local_only", {}),
]

TWIN_SPELLING = {  # of hyper-parameters that the twin names otherwise
    "term": lambda prior="none", **h: {"size_prior": prior == "examples", **h},
    "aaggff": lambda published_code=False, **h: {"repo_exact": published_code, **h},
    "fedwavg": lambda prior="none", **h: {"prior": {"none": "uniform", "examples": "size"}[prior], **h},
    "feddisco": lambda **h: {"num_classes": 3, **h},
    "fedmgda_plus": lambda prior="examples", **h: {"prior": {"none": "uniform", "examples": "size"}[prior], **h},
}
KEPT = {  # what an algorithm keeps besides its model, by the twin's name for it in its last round
    "afl": lambda state: {"lambda": state.server.memory.mixture, "average": state.server.memory.average},
    "aaggff": lambda state: {"p": state.server.memory.p},
    "fedwavg": lambda state: {"forgotten": state.clients.forgotten},
    "robust_fedeba_plus": lambda state: dict(zip(("history",), state.server.memory.history[1:], strict=False)),
}


def twin_arguments(problem, key, cohorts, name, hparams):
    """Hyper-parameters as the twin takes them: with the draws that the fast code makes itself."""
    given = TWIN_SPELLING.get(name, lambda **h: {k: None if v == "none" else v for k, v in h.items()})(**hparams)
    if name in ("focus", "lp_proj"):
        start = problem.algorithm(name, **hparams).init(key, problem.model.init, problem.sizes)
    if name == "focus":
        given["clusters"] = models_of(start, name)
    elif name == "lp_proj":
        dim = given.pop("dim")
        given["projection"] = np.hstack([leaf.reshape(dim, -1) for leaf in jax.tree.leaves(start.server.projection)])
        given["personal"] = [to_numpy(tree.rows(start.clients, i)) for i in range(problem.sizes.num_clients)]
    elif name == "rank_core_fed":
        keys = [jax.random.split(jax.random.fold_in(key, t), 3)[2] for t in range(ROUNDS)]
        count = given.pop("candidates", 9)
        given["mixtures"] = [np.asarray(mixtures(k, c, count)) for k, c in zip(keys, cohorts, strict=True)]
    return given


def models_of(state, name):
    """What a twin's trace keeps after each round."""
    if name == "focus":
        return [to_numpy(tree.rows(state.server.params, m)) for m in range(state.clients.shape[1])]
    if name in ("lp_proj", "local_only"):
        return jax.tree.map(lambda leaf: leaf.mean(0), state.clients)
    return state.server.params


def close(fast, slow):
    for a, b in zip(jax.tree.leaves(fast), jax.tree.leaves(slow), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-8, rtol=0)


def trained(name, hparams, cohort_size=COHORT, epochs=None):
    """(problem, key, cohorts, state, info) after five rounds.

    Cases that differ in traced numbers alone share a program, and most of them share it with the laws.
    """
    known = hyperparameters(fedeba_jax.ALGORITHMS[name])
    static = {k: v for k, v in hparams.items() if not known[k].traced}
    usual = {h.name: h.default for h in known.values() if h.traced and h.default is not None}
    numbers = {k: np.asarray(float(v)) for k, v in (usual | hparams).items() if k not in static}
    run = program(name, cohort_size=cohort_size, static=static, epochs=epochs)
    problem, key = tiny(cohort_size, epochs=epochs), jax.random.key(KEY)
    cohorts = [(IDS + t) % 6 if cohort_size == COHORT else np.arange(6) for t in range(ROUNDS)]
    state, infos = problem.start(problem.algorithm(name, **hparams), key), []
    for t, ids in enumerate(cohorts):
        arguments = (np.asarray(t), np.asarray(problem.rate), numbers, problem.federation)
        state, info = run(jax.device_get(state), ids, *arguments)
        infos.append(info)
    return problem, key, np.array(cohorts), state, jax.tree.map(lambda *rounds: np.stack(rounds), *infos)


def test_every_algorithm_has_a_twin():
    assert set(TWINS) == set(fedeba_jax.ALGORITHMS) == {name for name, _ in CASES}


SLOW = [
    ("aaggff", {"cdf": cdf}) for cdf in ("exponential", "weibull", "frechet", "logistic")
]  # vectors: test_online_methods
SLOW += [("aaggff", {"published_code": True}), ("afl", {"gamma": 0.1, "participation": "full_simplex", "order": "old"})]
IN_SUITE = [case for case in CASES if case not in SLOW]


@pytest.mark.parametrize(
    ("name", "hparams"), slow_but(IN_SUITE, CASES), ids=lambda v: v if isinstance(v, str) else None
)
def test_fast_equals_twin(x64, name, hparams):
    everybody = uses_everybody(fedeba_jax.ALGORITHMS[name], hparams)
    compare(*trained(name, hparams, 6 if everybody else COHORT), name, hparams)


@pytest.mark.parametrize(
    ("name", "hparams"),
    [
        ("fedavg", {}),
        *((name, {"tau": 0.5, "alpha": 0.6, "theta": theta}) for name in GATED for theta in (0.0, 180.0)),
        ("ditto", {"lam": 0.5}),
        ("focus", {}),
        ("lp_proj", {"dim": 4, "outer": 3, "inner": 3}),
    ],
)
def test_fast_equals_twin_with_unequal_steps(x64, name, hparams):
    """With local epochs clients take different numbers of steps."""
    compare(*trained(name, hparams, epochs=2), name, hparams, epochs=2)


def compare(problem, key, cohorts, state, info, name, hparams, epochs=None):
    given = twin_arguments(problem, key, cohorts, name, hparams)
    twin = TWINS[name](as_twin_problem(problem, key, cohorts, epochs), **given)
    close(models_of(state, name), twin.params[-1])
    if name in ("ditto", "lp_proj", "local_only"):
        close(state.clients, jax.tree.map(lambda *own: np.stack(own), *twin.personal[-1].values()))
    if name == "lp_proj":
        close(state.server.shared.params, twin.diagnostics[-1]["shared"])
    if name == "focus":
        close(state.clients, twin.diagnostics[-1]["pi"])
    kept = {k: v for k, v in KEPT.get(name, lambda _: {})(state).items() if v is not None}
    close(kept, {k: twin.diagnostics[-1][k] for k in kept})
    for diagnostic in ("angle", "gate", "winner"):
        if diagnostic in info:
            np.testing.assert_allclose(info[diagnostic], [d[diagnostic] for d in twin.diagnostics], atol=1e-8)
    np.testing.assert_allclose(info["weight_max"], [d["weights"].max() for d in twin.diagnostics], atol=1e-8)
    if 0 < hparams.get("theta", 0) < 90:
        assert 0 < np.sum(info["gate"]) < ROUNDS, "choose theta so that both branches run"
    if name == "fedfv" and hparams["window"] > ("fv_window" in hparams):
        assert any(d["history_weights"] for d in twin.diagnostics), "no past client was opposed"
