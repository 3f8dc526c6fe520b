"""Values by round; the paper's round t = 1 is round 0 here."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedeba_jax.schedules import SHAPES, anneal, as_schedule, decay

ROUNDS = np.array([1, 2, 10, 100]) - 1
ANNEALED = {
    "linear": (1, 0.90909091, 0.52631579, 0.09174312),
    "concave": (1, 0.95346259, 0.72547625, 0.30289127),
    "convex": (1, 0.75131480, 0.14579385, 0.00077218),
}


@pytest.mark.parametrize("shape", ANNEALED)
def test_annealing_golden(x64, shape):
    np.testing.assert_allclose(anneal(1.0, 0.1, shape, minimum=0.0)(ROUNDS), ANNEALED[shape], atol=5e-9)


def test_annealing_stops_at_the_minimum():
    np.testing.assert_allclose(anneal(1.0, 0.1, "convex")(jnp.asarray(99)), 1e-3)
    np.testing.assert_allclose(anneal(1.0, 0.1, "convex", minimum=0.2)(ROUNDS)[2:], 0.2)


@pytest.mark.parametrize("shape", SHAPES)
def test_annealing_begins_at_its_value_and_never_rises(shape):
    values = anneal(0.7, 0.05, shape)(jnp.arange(200))
    np.testing.assert_allclose(values[0], 0.7)
    assert (np.diff(values) <= 0).all()
    np.testing.assert_allclose(anneal(0.7, 0.0, shape)(jnp.arange(5)), 0.7)


def test_decay_golden(x64):
    np.testing.assert_allclose(decay(0.1, 0.999)(jnp.array([0, 1, 2000])), [0.1, 0.0999, 0.1 * 0.999**2000], rtol=1e-12)
    np.testing.assert_array_equal(decay(0.1)(jnp.array([0, 7])), [0.1, 0.1])


def test_decay_is_accurate_in_float32():
    np.testing.assert_allclose(decay(0.1, 0.999)(jnp.asarray(2000)), 0.1 * 0.999**2000, rtol=1e-4)


def test_a_number_is_a_constant_schedule_and_a_schedule_itself():
    schedule = decay(0.1)
    assert as_schedule(schedule) is schedule
    assert as_schedule(3.5)(17) == 3.5
    assert as_schedule(jnp.asarray(3.5))(jnp.asarray(17)) == 3.5


def test_schedules_take_traced_numbers():
    values = jax.jit(lambda a, b, t: (decay(a, b)(t), anneal(a, b)(t), as_schedule(a)(t)))(0.5, 0.5, 2)
    np.testing.assert_allclose(values, (0.125, 0.25, 0.5))
