"""Private training equals its NumPy twins, changes no bit where it is off, and draws fair samples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedeba_jax
from fedeba_jax import privacy
from fedeba_jax.privacy import poisson_sample, private_keys
from tests.support.for_twins import as_twin_problem
from tests.support.marks import slow_but
from tests.support.private import INF, KEY, ROUNDS, client_of, close, numpy, run, server_noise
from tests.support.problems import COUNTS, tiny
from tests.twins import TWINS
from tests.twins.algebra import add, scale
from tests.twins.privacy import client_level, clipped, entropy_rule, example_level, fedavg_rule

# Twins

CLIENT = privacy.client(sigma=0.7, clip=0.2, loss_clip=1.2, weight_cap=1.5)
PAPER = privacy.paper(2.0, clip=0.3)
ENTROPY = {"tau": 0.5, "prior": None, "loss_clip": 1.2, "weight_cap": 1.5}
CLIENT_CASES = [
    ("fedavg", {"weighting": "uniform"}, lambda p: fedavg_rule(p, weighting="uniform", weight_cap=1.5)),
    ("fedavg", {"weighting": "examples"}, lambda p: fedavg_rule(p, weighting="examples", weight_cap=1.5)),
    ("fedeba", {"tau": 0.5}, lambda p: entropy_rule(p, **ENTROPY)),
    ("fedeba", {"tau": 20.0}, lambda p: entropy_rule(p, **ENTROPY | {"tau": 20.0})),
    ("fedeba", {"tau": 0.5, "prior": "examples"}, lambda p: entropy_rule(p, **ENTROPY | {"prior": "examples"})),
    ("prac_fedeba_plus", {"tau": 0.5, "alpha": 0.6, "theta": 0.0}, lambda p: entropy_rule(p, **ENTROPY, alpha=0.6)),
    ("prac_fedeba_plus", {"tau": 0.5, "alpha": 0.6, "theta": 90.0},
     lambda p: entropy_rule(p, **ENTROPY, alpha=0.6, gate_open=False, steps=3)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "hparams", "rule"), slow_but(CLIENT_CASES[1::2], CLIENT_CASES))
def test_client_level_equals_its_twin(x64, name, hparams, rule):
    problem = tiny()
    state, info = run(name, CLIENT, problem=problem, **hparams)
    slow = as_twin_problem(problem, jax.random.key(KEY), np.asarray(info["cohort"]))
    noise = server_noise(problem)
    expected = client_level(slow, rule(slow), sigma=0.7, clip=0.2, loss_clip=1.2, noise=noise)
    close(state.server.params, expected)


@pytest.mark.parametrize("theta", slow_but([20.0], [0.0, 20.0, 180.0]))  # both branches
def test_the_papers_noise_equals_its_twin(x64, theta):
    problem, hparams = tiny(), {"tau": 0.5, "alpha": 0.6, "theta": theta}
    state, info = run("fedeba_plus", PAPER, problem=problem, rounds=5, **hparams)
    noise = server_noise(problem, 5)

    def perturb(t, z):
        return add(clipped(z, 0.3), scale(2.0 * 0.3 / problem.batch_size, noise[t]))

    cohorts = np.asarray(info["cohort"])
    twin = TWINS["fedeba_plus"](as_twin_problem(problem, jax.random.key(KEY), cohorts), **hparams, perturb=perturb)
    close(state.server.params, twin.params[-1])


@pytest.mark.parametrize(
    ("name", "hparams"),
    [("fedavg", {"weighting": "uniform"}), ("fedprox", {"mu": 0.7}), ("fedsgd", {})],
)
def test_example_level_equals_its_twin(x64, name, hparams):
    """The same Poisson samples and the same noise, each example's gradient by itself, in NumPy."""
    problem = tiny()
    state, info = run(name, privacy.example(0.8, clip=0.5), problem=problem, **hparams)
    batch_size, steps = (None, 1) if name == "fedsgd" else (problem.batch_size, problem.steps)
    params = problem.model.init(jax.random.key(0))
    batches, noise = [], []
    for t, cohort in enumerate(np.asarray(info["cohort"]).tolist()):
        batches.append({}), noise.append({})
        for i in cohort:
            who = client_of(problem, t, i)
            batches[t][i] = [np.flatnonzero(np.asarray(poisson_sample(who, k, batch_size))) for k in range(steps)]
            noise[t][i] = [numpy(privacy.noise(private_keys(who, k)[1], params)) for k in range(steps)]
    slow = as_twin_problem(problem, jax.random.key(KEY), np.asarray(info["cohort"]))
    slow.batches = batches
    expected = example_level(slow, batch_size=batch_size, sigma=0.8, clip=0.5, noise=noise, **hparams)
    close(state.server.params, expected)


def test_example_level_with_local_epochs_equals_its_twin(x64):
    problem = tiny(epochs=2)
    state, info = run("fedavg", privacy.example(0.8, clip=0.5), problem=problem, rounds=1)
    params = problem.model.init(jax.random.key(0))
    batches, noise = [{}], [{}]
    for i in np.asarray(info["cohort"])[0].tolist():
        who, steps = client_of(problem, 0, i), 2 * -(-COUNTS[i] // problem.batch_size)
        batches[0][i] = [np.flatnonzero(np.asarray(poisson_sample(who, k, problem.batch_size))) for k in range(steps)]
        noise[0][i] = [numpy(privacy.noise(private_keys(who, k)[1], params)) for k in range(steps)]
    slow = as_twin_problem(problem, jax.random.key(KEY), np.asarray(info["cohort"]), epochs=2)
    slow.batches = batches
    close(state.server.params, example_level(slow, batch_size=4, sigma=0.8, clip=0.5, noise=noise))


# Off is off

OFF = privacy.client(0.0, INF, INF, INF)
OFF_CASES = [
    ("fedavg", OFF, {}),
    ("fedeba", OFF, {"tau": 0.3}),
    ("prac_fedeba_plus", OFF, {"theta": 0.0}),
    ("prac_fedeba_plus", OFF, {"theta": 90.0}),
    ("fedeba_plus", privacy.paper(0.0, INF), {"theta": 20.0}),
]


@pytest.mark.parametrize(("name", "mode", "hparams"), slow_but(OFF_CASES[3:], OFF_CASES))
def test_no_noise_and_no_clip_changes_no_bit(name, mode, hparams):
    plain, _ = run(name, privacy.none(), **hparams)
    off, _ = run(name, mode, **hparams)
    close(off, plain, 0)


def test_example_level_without_noise_and_clip_is_sgd_on_the_sample(x64):
    """Sampling is what remains: the step is the mean gradient of the sample times its size over the expected one."""
    problem, i = tiny(), 2
    rule = privacy.PerExample(0.0, INF)
    local = fedeba_jax.LocalTraining(
        fedeba_jax.cross_entropy(problem.model), 0.3, steps=1, batch_size=4, per_example=rule
    )
    params, who = problem.model.init(jax.random.key(1)), client_of(problem, 0, i)
    chosen = np.flatnonzero(np.asarray(poisson_sample(who, 0, 4)))
    slow = as_twin_problem(problem, jax.random.key(KEY), np.zeros((ROUNDS + 2, 1), int))
    x, y = slow.data[i]
    gradient = slow.gradient(numpy(params), x[chosen], y[chosen])
    close(local.train(who, params).delta, scale(-0.3 * len(chosen) / 4, gradient))


# DP-SGD's samples


def test_poisson_samples_have_their_rate():
    problem = tiny()

    def sample(t):
        return poisson_sample(client_of(problem, t, 2), t % 7, 4)  # 12 examples

    chosen = np.asarray(jax.jit(jax.vmap(sample))(jnp.arange(6000)))
    np.testing.assert_allclose(chosen.mean(0), 4 / 12, atol=0.025)
    sizes = chosen.sum(1)
    assert sizes.var() == pytest.approx(12 * (4 / 12) * (8 / 12), rel=0.1)  # binomial: independent draws
    assert sizes.max() > 8, "larger than two chunks: samples are not cut short"
    correlation = np.corrcoef(chosen.T.astype(float)) - np.eye(12)
    assert np.abs(correlation).max() < 0.06


def test_whoever_holds_at_most_a_batch_takes_everything():
    problem = tiny()
    for i, count in enumerate(COUNTS):
        taken = np.asarray(poisson_sample(client_of(problem, 0, i), 0, 4))
        assert taken[count:].sum() == 0
        if count <= 4:
            assert taken[:count].all()
    everything = poisson_sample(client_of(problem, 0, 2), 0, None)
    assert int(everything.sum()) == 12


def test_padding_contributes_nothing(x64):
    """Entries of the index beyond a client's count may point anywhere."""
    problem = tiny()
    federation = problem.federation
    beyond = jnp.arange(federation.rows.shape[1])[None] >= federation.num_examples[:, None]
    moved = federation._replace(rows=jnp.where(beyond, 17, federation.rows))

    @jax.jit
    def one_round(data):
        algorithm = problem.algorithm("fedavg", privacy=privacy.example(0.5))
        state = algorithm.init(jax.random.key(0), problem.model.init, problem.sizes)
        return fedeba_jax.run_round(
            algorithm, data, state, jax.random.key(1), jnp.asarray(0), sizes=problem.sizes, client_map=jax.vmap
        )

    close(one_round(federation)[0], one_round(moved)[0], 0)
