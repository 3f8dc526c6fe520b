"""Private training: clips, noise and sensitivities, the NumPy twins, off where it is off, refused where it must be."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedeba_jax
from fedeba_jax import client_map as maps
from fedeba_jax import privacy, weights
from fedeba_jax.local import Client, Shard, private_keys
from fedeba_jax.simulate import participations, round_keys
from tests.problems import COUNTS, tiny
from tests.reference import TWINS
from tests.reference.algebra import add, scale
from tests.reference.privacy import capped_weights, client_level, clipped, entropy_rule, example_level, fedavg_rule
from tests.test_twins import as_twin_problem

INF = float("inf")
ROUNDS = 2
KEY = 5


def numpy(tree):
    return jax.tree.map(np.asarray, tree)


def close(fast, slow, tolerance=1e-8):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=tolerance, rtol=0), fast, slow)


def run(name, mode, *, problem=None, rounds=ROUNDS, client_map=maps.mapped, **hparams):
    """The state and diagnostics of a few rounds of the tiny problem; numbers are traced, as in a sweep."""
    problem = problem or tiny()
    key = jax.random.key(KEY)
    numbers = {k: v for k, v in hparams.items() if isinstance(v, float)}
    words = {k: v for k, v in hparams.items() if k not in numbers}

    @jax.jit
    def program(numbers):
        algorithm = problem.algorithm(name, privacy=mode, **words, **numbers)
        state = algorithm.init(key, problem.model.init, problem.sizes)
        return fedeba_jax.run_rounds(
            algorithm, problem.federation, state, key, 0, rounds=rounds, sizes=problem.sizes, client_map=client_map
        )

    return program(numbers)


def server_noise(problem, rounds=ROUNDS):
    """N(0, I) that the server draws in each round."""
    params = problem.model.init(jax.random.key(0))
    keys = [round_keys(jax.random.key(KEY), t)[2] for t in range(rounds)]
    return [numpy(privacy.noise(jax.random.fold_in(key, privacy.KEY), params)) for key in keys]


# Clips and noise


def test_clip_vectors():
    rows = jnp.array([[3.0, 4.0], [0.3, 0.4], [-6.0, 8.0]])
    total = jax.vmap(lambda row: privacy.clip(row, 1.0))(rows)
    np.testing.assert_allclose(total.sum(0), [0.3, 2.0], atol=1e-6)
    np.testing.assert_allclose(total.mean(0), [0.1, 0.66667], atol=1e-5)


def test_a_clip_takes_the_norm_of_all_leaves_and_never_lengthens():
    tree = {"a": jnp.array([3.0]), "b": jnp.array([[4.0]])}
    np.testing.assert_allclose(privacy.clip(tree, 1.0)["b"], [[0.8]])
    for limit in (5.0, 6.0, INF):
        close(privacy.clip(tree, limit), tree, 0)
    close(privacy.clip({"a": jnp.zeros(3)}, 1.0), {"a": np.zeros(3)}, 0)


@pytest.mark.parametrize("bad", [jnp.inf, -jnp.inf, jnp.nan])
def test_what_is_not_finite_counts_as_nothing(bad):
    close(privacy.clip(jnp.array([1.0, bad]), 1.0), np.zeros(2), 0)
    limits = privacy.Limits(1.0, 2.3)
    assert float(limits.loss(jnp.asarray(bad))) == pytest.approx(0.0 if bad == -jnp.inf else 2.3)


def test_losses_are_clipped_to_fixed_bounds():
    np.testing.assert_allclose(privacy.Limits(1.0, 2.0).loss(jnp.array([-1.0, 0.5, 3.0])), [0.0, 0.5, 2.0])


def test_noise_has_its_standard_deviation_and_differs_by_key_and_leaf():
    zeros = {"a": jnp.zeros((400, 100)), "b": jnp.zeros((40_000,))}
    first = privacy.add_noise(jax.random.key(0), zeros, 3.0, 0.5)
    for leaf in first.values():
        assert float(leaf.std()) == pytest.approx(1.5, rel=0.02)
        assert abs(float(leaf.mean())) < 0.03
    assert abs(np.corrcoef(first["a"].ravel(), first["b"])[0, 1]) < 0.02
    other = privacy.add_noise(jax.random.key(1), zeros, 3.0, 0.5)
    assert abs(np.corrcoef(first["b"], other["b"])[0, 1]) < 0.02
    close(privacy.add_noise(jax.random.key(0), zeros, 3.0, 0.5), first, 0)


def test_no_noise_is_exactly_nothing_even_of_infinite_sensitivity():
    x = jnp.array([0.1, -0.2, 1e-30])
    np.testing.assert_array_equal(privacy.add_noise(jax.random.key(0), x, 0.0, jnp.inf), x)


def test_rounds_draw_fresh_noise():
    """Between two rounds of a client-level run whose updates are all but nothing, only noise moves the model."""
    noise = server_noise(tiny())
    assert abs(np.corrcoef(noise[0][0][0].ravel(), noise[1][0][0].ravel())[0, 1]) < 0.6
    state, _ = run("fedavg", privacy.client(1.0), rate=0.0, weighting="uniform")
    start = tiny().model.init(jax.random.key(KEY))
    expected = start
    for draw in noise:
        expected = add(expected, scale(2 / 4, draw))  # S = 2 C / n
    close(state.server.params, expected, 1e-5)


# Weights and sensitivities


def test_capped_weight_vectors():
    losses = jnp.array([0.4, 0.5, 0.6, 0.7, 100.0])
    expected = {
        1.0: (0.12830293, 0.14179667, 0.15670956, 0.17319084, 0.4),
        0.1: (0.01923516, 0.05228659, 0.14212969, 0.38634856, 0.4),
    }
    for tau, p in expected.items():
        np.testing.assert_allclose(weights.entropy_based(losses, tau, cap=0.4), p, atol=2e-7)


@pytest.mark.parametrize(("loss_clip", "tau", "most"), [(1.0, 1.0, 0.2320), (1.0, 0.1, 0.9996), (2.3, 5.0, 0.1497)])
def test_the_most_that_entropy_based_weights_give(loss_clip, tau, most):
    assert float(weights.entropy_cap(10, tau, loss_clip)) == pytest.approx(most, abs=5e-5)
    losses = jnp.zeros(10).at[3].set(loss_clip)
    assert float(weights.entropy_based(losses, tau)[3]) == pytest.approx(most, abs=5e-5)
    mode = privacy.client(1.0, loss_clip=loss_clip, weight_cap=INF)
    assert float(privacy.sensitivity(1.0, mode.cap(10, tau))) == pytest.approx(2 * most, abs=1e-4)
    assert float(weights.entropy_cap(1, tau, loss_clip)) == 1.0


def test_capped_weights_are_those_of_bisection(x64):
    rng = np.random.default_rng(0)
    rule = jax.jit(lambda losses, tau, cap: weights.entropy_based(losses, tau, cap=cap))
    for _ in range(300):
        losses = rng.exponential(2.0, 8) * (rng.random(8) < 0.8)
        tau, cap = float(rng.choice([0.1, 1.0, 10.0])), float(rng.uniform(0.05, 1.0))
        p = np.asarray(rule(losses, tau, cap))
        softmax = np.exp((losses - losses.max()) / tau)
        np.testing.assert_allclose(p, capped_weights(softmax, max(cap, 0)), atol=3e-6)  # the slack of 1e-5 P
        assert p.max() <= cap * (1 + 1e-12)
        assert p.sum() == pytest.approx(min(1.0, 8 * cap), abs=2e-5)
        order = rng.permutation(8)
        np.testing.assert_allclose(rule(losses[order], tau, cap), p[order], atol=1e-12)


def test_a_cap_that_does_not_bind_changes_no_bit():
    losses = jnp.array([0.1, 0.7, 0.3])
    np.testing.assert_array_equal(weights.entropy_based(losses, 0.5, cap=1.0), weights.entropy_based(losses, 0.5))
    np.testing.assert_array_equal(weights.by_examples(losses, 0.9), weights.by_examples(losses))


def test_caps_at_the_edge():
    equal = weights.entropy_based(jnp.zeros(5), 1.0, cap=0.2)
    np.testing.assert_allclose(equal, np.full(5, 0.2), rtol=1e-6)
    np.testing.assert_allclose(weights.entropy_based(jnp.array([9.0, 0.0]), 0.01, cap=0.5), [0.5, 0.5], rtol=1e-5)
    np.testing.assert_allclose(weights.entropy_based(jnp.ones(3), 1.0, cap=0.1), np.full(3, 0.1))
    one = weights.by_examples(jnp.array([7]), 1.0)
    np.testing.assert_array_equal(one, [1.0])
    nobody = weights.by_examples(jnp.array([0, 0, 5]), 0.6)
    np.testing.assert_allclose(nobody, [0.0, 0.0, 0.6])


TRIALS = 2000
RULES = {
    "uniform": lambda n: (lambda losses, sizes: weights.uniform(losses.shape[0]) * losses.shape[0] / n, 1 / n),
    "examples": lambda n: (lambda losses, sizes: weights.by_examples(sizes, 2 / n), 2 / n),
    "entropy, capped": lambda n: (lambda losses, sizes: weights.entropy_based(losses, 0.2, cap=2 / n), 2 / n),
    "entropy, clipped losses": lambda n: (
        lambda losses, sizes: weights.entropy_based(losses, 1.0),
        weights.entropy_cap(n, 1.0, 1.0),
    ),
}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("change", ["replace", "remove"])
def test_one_client_moves_the_sum_by_no_more_than_the_sensitivity(x64, name, change):
    """Random cohorts and the worst: extreme losses, and updates that all point one way but the changed client's."""
    n, dimension, limit, loss_clip = 6, 3, 0.7, 1.0
    rule, most = RULES[name](n)
    if name == "entropy, clipped losses" and change == "remove":
        most = weights.entropy_cap(n - 1, 1.0, loss_clip)  # without a fixed cap, the smaller cohort's

    def total(deltas, losses, sizes):
        return rule(losses, sizes) @ jax.vmap(lambda d: privacy.clip(d, limit))(deltas)

    def cohort(key):
        kinds = jax.random.split(key, 5)
        aligned = jnp.ones((n, dimension)) * jnp.sign(jax.random.normal(kinds[0], (dimension,)))
        deltas = jnp.where(jax.random.bernoulli(kinds[1]), aligned, 2 * jax.random.normal(kinds[2], (n, dimension)))
        extreme = jnp.where(jax.random.bernoulli(kinds[3], 0.3, (n,)), loss_clip, 0.0)
        losses = jnp.where(
            jax.random.bernoulli(kinds[4]), extreme, jax.random.uniform(kinds[4], (n,), maxval=loss_clip)
        )
        return deltas, losses, 1 + jax.random.randint(kinds[3], (n,), 0, 50) ** 2

    def ratio(key):
        one, two = jax.random.split(key)
        deltas, losses, sizes = cohort(one)
        before = total(deltas, losses, sizes)
        if change == "remove":
            after = total(deltas[1:], losses[1:], sizes[1:])
        else:
            others, new_losses, new_sizes = cohort(two)
            opposite = jnp.where(jax.random.bernoulli(two), -deltas[0], others[0])
            after = total(
                deltas.at[0].set(opposite), losses.at[0].set(new_losses[0]), sizes.at[0].set(new_sizes[0])
            )
        return jnp.linalg.norm(after - before) / privacy.sensitivity(limit, most)

    ratios = jax.jit(jax.vmap(ratio))(jax.random.split(jax.random.key(0), TRIALS))
    assert float(ratios.max()) <= 1 + 1e-9
    assert float(ratios.max()) > 0.45, "the trials should come near the bound"


@pytest.mark.parametrize(("theta", "alpha"), [(0.0, 0.6), (90.0, 0.6), (0.0, 1.0)])
def test_prac_moves_by_no_more_than_its_sensitivity(x64, theta, alpha):
    """The method's own code, one client's data replaced: its models differ by at most S; sigma = 0 shows the sum."""
    problem = tiny(cohort_size=6)
    noiseless = privacy.client(0.0, clip=0.05, loss_clip=1.0, weight_cap=1.5)
    cap = noiseless.cap(6, 0.3)
    factor = 1.0 if theta == 0 else (1 - alpha) + alpha / problem.steps

    @jax.jit
    def model_after(federation):
        algorithm = problem.algorithm("prac_fedeba_plus", privacy=noiseless, tau=0.3, alpha=alpha, theta=theta)
        state = algorithm.init(jax.random.key(0), problem.model.init, problem.sizes)
        state, _ = fedeba_jax.run_round(
            algorithm, federation, state, jax.random.key(1), jnp.asarray(0), sizes=problem.sizes, client_map=jax.vmap
        )
        return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(state.server.params)])

    rng = np.random.default_rng(0)
    base, longest = model_after(problem.federation), 0.0
    for _ in range(60):
        client = int(rng.integers(6))
        rows = problem.federation.index[client, : COUNTS[client]]
        x = problem.federation.x.at[rows].set(rng.integers(0, 256, (len(rows), 5)).astype(np.uint8))
        y = problem.federation.y.at[rows].set(rng.integers(0, 3, len(rows)).astype(np.int32))
        moved = model_after(problem.federation._replace(x=x, y=y))
        longest = max(longest, float(jnp.linalg.norm(moved - base)))
    assert 0 < longest <= float(privacy.sensitivity(0.05, cap * factor)) + 1e-12


# Twins

CLIENT = {"sigma": 0.7, "clip": 0.2, "loss_clip": 1.2, "weight_cap": 1.5}
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


@pytest.mark.parametrize(("name", "hparams", "rule"), CLIENT_CASES)
def test_client_level_equals_its_twin(x64, name, hparams, rule):
    problem = tiny()
    state, info = run(name, privacy.client(**CLIENT), problem=problem, **hparams)
    slow = as_twin_problem(problem, jax.random.key(KEY), np.asarray(info["cohort"]))
    noise = server_noise(problem)
    expected = client_level(slow, rule(slow), sigma=0.7, clip=0.2, loss_clip=1.2, noise=noise)
    close(state.server.params, expected)


@pytest.mark.parametrize("theta", [0.0, 20.0, 180.0])
def test_the_papers_noise_equals_its_twin(x64, theta):
    problem, hparams = tiny(), {"tau": 0.5, "alpha": 0.6, "theta": theta}
    state, info = run("fedeba_plus", privacy.paper(2.0, clip=0.3), problem=problem, rounds=5, **hparams)
    noise = server_noise(problem, 5)

    def perturb(t, z):
        return add(clipped(z, 0.3), scale(2.0 * 0.3 / problem.batch_size, noise[t]))

    cohorts = np.asarray(info["cohort"])
    twin = TWINS["fedeba_plus"](as_twin_problem(problem, jax.random.key(KEY), cohorts), **hparams, perturb=perturb)
    close(state.server.params, twin.params[-1])


def client_of(problem, t, i, key=KEY):
    federation = problem.federation
    shard = Shard(federation.x, federation.y, federation.index[i], federation.count[i])
    clients = round_keys(jax.random.key(key), t)[1]
    return Client(i, jax.random.fold_in(clients, i), shard, (), t)


@pytest.mark.parametrize(
    ("name", "hparams"),
    [("fedavg", {"weighting": "uniform"}), ("fedprox", {"mu": 0.7}), ("fedsgd", {})],
)
def test_example_level_equals_its_twin(x64, name, hparams):
    """The same Poisson samples and the same noise, each example's gradient by itself, in NumPy."""
    problem = tiny()
    state, info = run(name, privacy.example(0.8, clip=0.5), problem=problem, **hparams)
    batch_size, steps = (None, 1) if name == "fedsgd" else (problem.batch_size, problem.steps)
    local = fedeba_jax.LocalTraining(None, 0.0, batch_size=batch_size)
    params = problem.model.init(jax.random.key(0))
    batches, noise = [], []
    for t, cohort in enumerate(np.asarray(info["cohort"]).tolist()):
        batches.append({}), noise.append({})
        for i in cohort:
            who = client_of(problem, t, i)
            batches[t][i] = [np.flatnonzero(np.asarray(local.poisson_sample(who, k))) for k in range(steps)]
            noise[t][i] = [numpy(privacy.noise(private_keys(who, k)[1], params)) for k in range(steps)]
    slow = as_twin_problem(problem, jax.random.key(KEY), np.asarray(info["cohort"]))
    slow.batches = batches
    expected = example_level(slow, batch_size=batch_size, sigma=0.8, clip=0.5, noise=noise, **hparams)
    close(state.server.params, expected)


def test_example_level_with_local_epochs_equals_its_twin(x64):
    problem = tiny(epochs=2)
    state, info = run("fedavg", privacy.example(0.8, clip=0.5), problem=problem, rounds=1)
    local = fedeba_jax.LocalTraining(None, 0.0, batch_size=problem.batch_size, epochs=2)
    params = problem.model.init(jax.random.key(0))
    batches, noise = [{}], [{}]
    for i in np.asarray(info["cohort"])[0].tolist():
        who, steps = client_of(problem, 0, i), 2 * -(-COUNTS[i] // problem.batch_size)
        batches[0][i] = [np.flatnonzero(np.asarray(local.poisson_sample(who, k))) for k in range(steps)]
        noise[0][i] = [numpy(privacy.noise(private_keys(who, k)[1], params)) for k in range(steps)]
    slow = as_twin_problem(problem, jax.random.key(KEY), np.asarray(info["cohort"]), epochs=2)
    slow.batches = batches
    close(state.server.params, example_level(slow, batch_size=4, sigma=0.8, clip=0.5, noise=noise))


# Off is off

OFF_CASES = [
    ("fedavg", privacy.client(0.0, INF, INF, INF), {}),
    ("fedeba", privacy.client(0.0, INF, INF, INF), {"tau": 0.3}),
    ("prac_fedeba_plus", privacy.client(0.0, INF, INF, INF), {"theta": 0.0}),
    ("prac_fedeba_plus", privacy.client(0.0, INF, INF, INF), {"theta": 90.0}),
    ("fedeba_plus", privacy.paper(0.0, INF), {"theta": 20.0}),
]


@pytest.mark.parametrize(("name", "mode", "hparams"), OFF_CASES)
def test_no_noise_and_no_clip_changes_no_bit(name, mode, hparams):
    plain, _ = run(name, privacy.NONE, **hparams)
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
    chosen = np.flatnonzero(np.asarray(local.poisson_sample(who, 0)))
    slow = as_twin_problem(problem, jax.random.key(KEY), np.zeros((ROUNDS + 2, 1), int))
    x, y = slow.data[i]
    gradient = slow.gradient(numpy(params), x[chosen], y[chosen])
    close(local.train(who, params).delta, scale(-0.3 * len(chosen) / 4, gradient))


# DP-SGD's samples


def test_poisson_samples_have_their_rate():
    problem = tiny()
    local = fedeba_jax.LocalTraining(None, 0.0, batch_size=4)

    def sample(t):
        return local.poisson_sample(client_of(problem, t, 2), t % 7)  # 12 examples

    chosen = np.asarray(jax.jit(jax.vmap(sample))(jnp.arange(6000)))
    np.testing.assert_allclose(chosen.mean(0), 4 / 12, atol=0.025)
    sizes = chosen.sum(1)
    assert sizes.var() == pytest.approx(12 * (4 / 12) * (8 / 12), rel=0.1)  # binomial: independent draws
    assert sizes.max() > 8, "larger than two chunks: samples are not cut short"
    correlation = np.corrcoef(chosen.T.astype(float)) - np.eye(12)
    assert np.abs(correlation).max() < 0.06


def test_whoever_holds_at_most_a_batch_takes_everything():
    problem, local = tiny(), fedeba_jax.LocalTraining(None, 0.0, batch_size=4)
    for i, count in enumerate(COUNTS):
        taken = np.asarray(local.poisson_sample(client_of(problem, 0, i), 0))
        assert taken[count:].sum() == 0
        if count <= 4:
            assert taken[:count].all()
    everything = fedeba_jax.LocalTraining(None, 0.0, batch_size=None).poisson_sample(client_of(problem, 0, 2), 0)
    assert int(everything.sum()) == 12


def test_padding_contributes_nothing(x64):
    """Entries of the index beyond a client's count may point anywhere."""
    problem = tiny()
    federation = problem.federation
    beyond = jnp.arange(federation.index.shape[1]) >= federation.count[:, None]
    moved = federation._replace(index=jnp.where(beyond, 17, federation.index))
    results = []
    for data in (federation, moved):

        @jax.jit
        def one_round(data):
            algorithm = problem.algorithm("fedavg", privacy=privacy.example(0.5))
            state = algorithm.init(jax.random.key(0), problem.model.init, problem.sizes)
            return fedeba_jax.run_round(
                algorithm, data, state, jax.random.key(1), jnp.asarray(0), sizes=problem.sizes, client_map=jax.vmap
            )

        results.append(one_round(data)[0])
    close(*results, 0)


# How it runs


@pytest.mark.parametrize(
    ("name", "mode"),
    [("fedavg", privacy.example(0.5)), ("fedeba", privacy.client(0.5)), ("fedeba_plus", privacy.paper(0.5))],
)
def test_client_maps_agree(x64, name, mode):
    expected, _ = run(name, mode)
    client_map = maps.sharded(maps.device_mesh(), jax.vmap)
    close(run(name, mode, client_map=client_map)[0], expected)


@pytest.mark.parametrize(
    ("name", "mode"),
    [("fedavg", privacy.example), ("prac_fedeba_plus", privacy.client), ("fedeba_plus", privacy.paper)],
)
def test_one_compilation_serves_all_noises_and_clips(name, mode):
    traces, problem = [], tiny()

    @jax.jit
    def program(sigma, clip):
        traces.append(name)
        algorithm = problem.algorithm(name, privacy=mode(sigma, clip))
        state = algorithm.init(jax.random.key(0), problem.model.init, problem.sizes)
        arguments = (problem.federation, state, jax.random.key(1), jnp.asarray(0))
        return fedeba_jax.run_round(algorithm, *arguments, sizes=problem.sizes, client_map=jax.vmap)[0]

    results = [program(*point) for point in ((0.0, 1.0), (2.0, 1.0), (2.0, 0.1))]
    assert len(traces) == 1
    first = [np.asarray(r.server.params[0][0]) for r in results]
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first[1], first[2])
    assert all(np.isfinite(leaf).all() for leaf in first)


def test_noise_on_a_closed_gates_variable_is_not_sent():
    """Bytes do not know of the noise: with the gate closed nothing was asked for, and nothing is sent on."""
    for theta in (0.0, 180.0):
        _, plain = run("fedeba_plus", privacy.NONE, theta=theta)
        _, noised = run("fedeba_plus", privacy.paper(1.0), theta=theta)
        for name in ("bytes_down", "bytes_up", "exchanges"):
            np.testing.assert_array_equal(plain[name], noised[name])


@pytest.mark.parametrize("name", ["fedavg", "fedeba", "prac_fedeba_plus"])
@pytest.mark.parametrize("cohort_size", [1, 6])
def test_degenerate_cohorts_stay_finite(name, cohort_size):
    """One client alone; everybody; updates of zero at rate zero leave the model where it was but for noise."""
    problem = tiny(cohort_size=cohort_size)
    state, _ = run(name, privacy.client(1.0), problem=problem)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state))
    still, _ = run(name, privacy.client(0.0), problem=problem, rate=0.0)
    close(still.server.params, problem.model.init(jax.random.key(KEY)), 0)


def test_participations_are_those_of_the_rounds():
    problem = tiny()
    _, info = run("fedavg", privacy.NONE, rounds=5)
    expected = np.bincount(np.asarray(info["cohort"]).ravel(), minlength=6)
    np.testing.assert_array_equal(participations(jax.random.key(KEY), 5, problem.sizes), expected)


REFUSED = [
    ("fedavg", privacy.paper(1.0), "alignment variable"),
    ("fedeba", privacy.paper(1.0), "alignment variable"),
    ("prac_fedeba_plus", privacy.paper(1.0), "alignment variable"),
    ("fedeba", privacy.example(1.0), "more than updates"),
    ("fedeba_plus", privacy.example(1.0), "more than updates"),
    ("prac_fedeba_plus", privacy.example(1.0), "more than updates"),
    ("fedeba_plus", privacy.client(1.0), "told within a round"),
    ("fedavg_align", privacy.client(1.0), "told within a round"),
]


@pytest.mark.parametrize(("name", "mode", "reason"), REFUSED)
def test_a_method_refuses_what_it_cannot_keep(name, mode, reason):
    with pytest.raises(ValueError, match=reason):
        tiny().algorithm(name, privacy=mode)


def test_unequal_steps_and_whole_sets_are_refused_where_they_void_the_bound():
    with pytest.raises(ValueError, match="unequal numbers of steps"):
        tiny(epochs=2).algorithm("prac_fedeba_plus", privacy=privacy.client(1.0))
    with pytest.raises(ValueError, match="batch size"):
        run("fedeba_plus", privacy.paper(1.0), problem=tiny(batch_size=None))
