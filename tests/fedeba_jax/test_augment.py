"""Random views: rotations against SciPy, colours against the standard library, draws by key."""

import colorsys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import ndimage

from fedeba_jax import augment

RNG = np.random.default_rng(0)
GREY = jnp.asarray(RNG.uniform(0.1, 1, (6, 28, 28, 1)), np.float32)
COLOUR = jnp.asarray(RNG.uniform(0, 1, (4, 8, 8, 3)), np.float32)
KEY = jax.random.key(0)
batch_view = jax.jit(augment.batch_view, static_argnames=("views", "per_batch"))


@pytest.mark.parametrize(("degrees", "turns"), [(0, 0), (90, 1), (180, 2), (-90, 3)])
@pytest.mark.parametrize("size", [4, 5])
def test_whole_turns_are_exact(degrees, turns, size):
    x = GREY[0, :size, :size]
    np.testing.assert_array_equal(jax.jit(augment.rotate)(x, degrees), np.rot90(x, turns))


@pytest.mark.parametrize("degrees", [-29.9, -7, 12.3, 30])
@pytest.mark.parametrize("shape", [(28, 28), (9, 14)])
def test_a_rotation_is_that_of_scipy(x64, degrees, shape):
    x = RNG.uniform(0.1, 1, shape)
    expected = ndimage.rotate(x, degrees, order=0, reshape=False, mode="grid-constant", prefilter=False)
    turned = jax.jit(augment.rotate)(x[..., None], degrees)[..., 0]
    np.testing.assert_array_equal(turned, expected)
    assert (np.asarray(turned) == 0).any(), "corners are black"


def test_channels_of_a_colour_image_turn_together():
    rotate = jax.jit(augment.rotate)
    turned = rotate(COLOUR[0], 25.0)
    for c in range(3):
        np.testing.assert_array_equal(turned[..., c : c + 1], rotate(COLOUR[0][..., c : c + 1], 25.0))


def test_angles_of_random_rotations_are_within_bounds():
    """A bright dot at a radius of 10 moves by at most 2 * 10 * sin(15 degrees)."""
    x = np.zeros((28, 28, 1), np.float32)
    x[13:15, 23:25] = 1  # 10 to the right of the centre
    views = np.asarray(batch_view(KEY, jnp.tile(x, (300, 1, 1, 1))))[..., 0]
    rows, columns = (np.tensordot(views, np.arange(28) - 13.5, axes=([axis], [0])).sum(1) for axis in (1, 2))
    angles = np.degrees(np.arctan2(-rows, columns))
    assert np.abs(angles).max() < 30 + 3
    assert angles.max() > 25
    assert angles.min() < -25
    np.testing.assert_allclose(angles.mean(), 0, atol=4)


@pytest.mark.parametrize("turn", [-0.2, 0.0, 0.13, 0.5, 1.0])
def test_hues_turn_as_in_the_standard_library(turn):
    pixels = np.concatenate([COLOUR[0].reshape(-1, 3), np.eye(3), 1 - np.eye(3), np.full((2, 3), 0.4)])
    turned = jax.jit(augment.turn_hue)(pixels.T[:, None], turn)[:, 0].T
    for pixel, result in zip(pixels.tolist(), turned, strict=True):
        h, s, v = colorsys.rgb_to_hsv(*pixel)
        np.testing.assert_allclose(result, colorsys.hsv_to_rgb((h + turn) % 1, s, v), atol=2e-6)


def test_colours_change_by_hand():
    planes = np.array([[[0.2, 0.8]], [[0.4, 0.4]], [[0.6, 0.0]]], np.float32)
    luma = np.array([0.2989 * 0.2 + 0.587 * 0.4 + 0.114 * 0.6, 0.2989 * 0.8 + 0.587 * 0.4])
    np.testing.assert_allclose(augment.grey(planes)[0], luma, rtol=1e-6)
    jitter = jax.jit(augment.jitter)
    for factors, expected in [
        ((1, 1, 1, 0), planes),
        ((1.5, 1, 1, 0), np.minimum(1.5 * planes, 1)),
        ((1, 0, 1, 0), np.full((3, 1, 2), luma.mean())),
        ((1, 1.5, 1, 0), np.clip(luma.mean() + 1.5 * (planes - luma.mean()), 0, 1)),
        ((1, 1, 0, 0), np.broadcast_to(luma, (3, 1, 2))),
        ((1, 1, 1.8, 0), np.clip(luma + 1.8 * (planes - luma), 0, 1)),
    ]:
        np.testing.assert_allclose(jitter(planes, *map(float, factors)), expected, atol=1e-6)


def test_random_colours_stay_in_bounds_and_come_in_the_given_shares():
    x = jnp.tile(COLOUR[:1], (2000, 1, 1, 1))
    views = np.asarray(batch_view(KEY, x))
    assert views.shape == x.shape
    assert (views.min() >= 0, views.max() <= 1 + 1e-6) == (True, True)
    grey = np.ptp(views, axis=-1).max(axis=(1, 2)) < 1e-5
    np.testing.assert_allclose(grey.mean(), 0.2, atol=0.04)
    as_it_was = [(np.abs(views - old).max(axis=(1, 2, 3)) < 1e-6).mean() for old in (x, x[:, :, ::-1])]
    np.testing.assert_allclose(as_it_was, 0.2 * 0.8 * 0.5, atol=0.03)


@pytest.mark.parametrize("images", [GREY, COLOUR], ids=["grey", "colour"])
def test_a_view_follows_from_its_key(images):
    views = [batch_view(jax.random.key(k), images) for k in (1, 1, 2)]
    np.testing.assert_array_equal(views[0], views[1])
    assert (views[0] != views[2]).any()
    assert views[0].dtype == images.dtype


def test_each_image_has_its_own_draw_unless_told_otherwise():
    same = np.repeat(GREY[:1], 5, axis=0)
    own = np.asarray(batch_view(KEY, same))
    assert len({view.tobytes() for view in own}) == 5
    shared = np.asarray(batch_view(KEY, same, per_batch=True))
    assert len({view.tobytes() for view in shared}) == 1


def test_an_image_s_draw_does_not_depend_on_the_size_of_its_batch():
    np.testing.assert_array_equal(batch_view(KEY, GREY)[:2], batch_view(KEY, GREY[:2]))


def test_the_channels_choose_the_view():
    np.testing.assert_array_equal(batch_view(KEY, GREY), batch_view(KEY, GREY, "rotated"))
    np.testing.assert_array_equal(batch_view(KEY, COLOUR), batch_view(KEY, COLOUR, "recoloured"))
    assert batch_view(KEY, COLOUR, "rotated").shape == COLOUR.shape
    flat = jnp.ones((4, 5))
    assert augment.batch_view(KEY, flat, "same") is flat


@pytest.mark.parametrize(("shape", "views"), [((4, 5), "auto"), ((4, 8, 8, 2), "auto"), ((4, 8, 8, 1), "recoloured")])
def test_what_has_no_such_view_is_told(shape, views):
    with pytest.raises(ValueError, match="there is no"):
        batch_view(KEY, jnp.ones(shape), views)
