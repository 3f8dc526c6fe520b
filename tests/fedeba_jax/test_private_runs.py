"""Private training in whole rounds: fresh noise, maps, compilations, degenerate cohorts, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedeba_jax
from fedeba_jax import client_map as maps
from fedeba_jax import privacy
from fedeba_jax.rounds import participations
from tests.support.marks import slow_but
from tests.support.private import KEY, close, run, server_noise
from tests.support.problems import tiny
from tests.twins.algebra import add, scale


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


@pytest.mark.parametrize(
    ("name", "mode"),
    [  # the laws are about the maps of every method; noise adds draws of the server, and of clients
        ("fedavg", privacy.example(0.5)),
        pytest.param("fedeba", privacy.client(0.5), marks=pytest.mark.slow),
        pytest.param("fedeba_plus", privacy.paper(0.5), marks=pytest.mark.slow),
    ],
)
def test_client_maps_agree(x64, name, mode):
    expected, _ = run(name, mode)
    client_map = maps.sharded(maps.device_mesh(), jax.vmap)
    close(run(name, mode, client_map=client_map)[0], expected)


@pytest.mark.parametrize(
    ("name", "mode"),
    slow_but(
        [("prac_fedeba_plus", privacy.client)],
        [("fedavg", privacy.example), ("prac_fedeba_plus", privacy.client), ("fedeba_plus", privacy.paper)],
    ),
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
    paper = privacy.paper(1.0)
    for theta in (0.0, 180.0):
        _, plain = run("fedeba_plus", privacy.none(), theta=theta)
        _, noised = run("fedeba_plus", paper, theta=theta)
        for name in ("bytes_down", "bytes_up", "exchanges"):
            np.testing.assert_array_equal(plain[name], noised[name])


@pytest.mark.parametrize("name", slow_but(["prac_fedeba_plus"], ["fedavg", "fedeba", "prac_fedeba_plus"]))
@pytest.mark.parametrize("cohort_size", [1, 6])
def test_degenerate_cohorts_stay_finite(name, cohort_size):
    """One client alone; everybody; updates of zero at rate zero leave the model where it was but for noise."""
    problem = tiny(cohort_size=cohort_size)
    state, _ = run(name, privacy.client, sigma=1.0, problem=problem, rate=0.3)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state))
    still, _ = run(name, privacy.client, sigma=0.0, problem=problem, rate=0.0)
    close(still.server.params, problem.model.init(jax.random.key(KEY)), 0)


def test_participations_are_those_of_the_rounds():
    problem = tiny()
    _, info = run("fedavg", privacy.none(), rounds=5)
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
