"""Projections onto simplices, small quadratic programmes over them, and projections among vectors.

Maths on arrays [n]; a caller maps them over runs. Everything has a fixed number of steps, so that it compiles into
the round.
"""

from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp
from jax.lax import Precision

from fedeba_jax.types import Scalar


def project_simplex(y: jax.Array) -> jax.Array:
    """argmin |x - y|^2 over {x >= 0, sum x = 1}: max(y - nu, 0), nu from the sorted entries."""
    chex.assert_rank(y, 1)
    y = y - y.max()  # a common shift changes nothing, and large ones would lose digits
    falling = jnp.flip(jnp.sort(y))
    excess = (jnp.cumsum(falling) - 1) / jnp.arange(1, y.size + 1)  # nu if so many entries stay positive
    support = jnp.sum(falling > excess)
    return jnp.maximum(y - excess[support - 1], 0)


def project_capped_simplex(y: jax.Array, lower: jax.Array, upper: jax.Array) -> jax.Array:
    """argmin |x - y|^2 over {lower <= x <= upper, sum x = 1}: clip(y - nu, lower, upper).

    The sum falls in nu, in straight pieces that end where an entry meets one of its bounds. It is taken at all 2n
    ends at once; the last end where it is still 1 or more begins the piece on which nu lies.
    """
    chex.assert_equal_shape((y, lower, upper))
    ends = jnp.concatenate([y - upper, y - lower])
    sums = jnp.clip(y[None] - ends[:, None], lower[None], upper[None]).sum(axis=1)
    begin = jnp.max(jnp.where(sums >= 1, ends, ends.min()))
    excess = jnp.clip(y - begin, lower, upper).sum() - 1
    slope = jnp.sum((y - upper <= begin) & (begin < y - lower))  # entries that move with nu
    return jnp.clip(y - begin - excess / jnp.maximum(slope, 1), lower, upper)


def entropy_temperature(losses: jax.Array, target: Scalar, prior: jax.Array, iterations: int = 60) -> jax.Array:
    """tau with sum_i p_i F_i = target for p_i ~ q_i exp(F_i / tau): the multiplier of the paper's constraint.

    The left side rises strictly in 1/tau, from the prior's mean loss (tau = infinity) to the largest loss (tau = 0),
    unless all losses are equal; so the root is unique. A target at or below the mean gives infinity, one at or above
    the largest loss a tau so small that the softmax is that client's alone.

    Args:
      losses: F_i, [n].
      target: f~.
      prior: q_i, [n], not negative, of sum 1; losses with q_i = 0 do not count.
      iterations: bisections of b / (1 + b), b = (largest - smallest loss) / tau.
    """
    chex.assert_equal_shape((losses, prior))
    counts = prior > 0
    largest = jnp.max(losses, where=counts, initial=-jnp.inf)
    spread = largest - jnp.min(losses, where=counts, initial=jnp.inf)
    unit = jnp.where(counts, losses - largest, 0) / jnp.where(spread > 0, spread, 1)  # in [-1, 0]
    goal = (target - largest) / jnp.where(spread > 0, spread, 1)

    def excess(s: jax.Array) -> jax.Array:
        p = prior * jnp.exp(s / (1 - s) * unit)
        return jnp.vdot(p, unit) / p.sum() - goal

    def halve(_: int, bracket: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = bracket
        middle = (low + high) / 2
        above = excess(middle) > 0
        return jnp.where(above, low, middle), jnp.where(above, middle, high)

    one = jnp.ones((), losses.dtype)
    low, high = jax.lax.fori_loop(0, iterations, halve, (0 * one, 1 - jnp.finfo(losses.dtype).eps * one))
    s = (low + high) / 2
    tau = spread * (1 - s) / s
    return jnp.where((spread > 0) & (excess(0 * one) < 0), tau, jnp.inf)


def quadratic_programme(
    quadratic: jax.Array,
    linear: jax.Array,
    project: Callable[[jax.Array], jax.Array],
    start: jax.Array,
    iterations: int,
) -> jax.Array:
    """argmin x' quadratic x / 2 + linear' x over a convex set with sum x = 1.

    FISTA (Beck and Teboulle 2009) with restarts where the momentum points uphill (O'Donoghue and Candes 2015). On the
    set only differences between the entries count, so what all vectors have in common is taken out of the matrix: it
    would shorten the steps and cost digits.
    """
    chex.assert_rank(start, 1)
    chex.assert_shape(quadratic, (start.size, start.size))
    mean = quadratic.mean(axis=1)
    centred = quadratic - mean[:, None] - mean[None] + mean.mean()
    slope = linear + mean - linear.mean() - mean.mean()
    curvature = _spectral_bound(centred)
    noise = start.size * jnp.finfo(start.dtype).eps * jnp.abs(quadratic).max()
    flat = (curvature <= noise) & (jnp.abs(slope).max() <= noise)
    step = jnp.where(flat, 0, 1 / jnp.maximum(curvature, jnp.where(noise > 0, noise, 1)))

    def body(_: int, carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        x, ahead, t = carry
        gradient = jnp.sum(centred * ahead[None], axis=1) + slope
        new = project(ahead - step * gradient)
        t = jnp.where(jnp.vdot(ahead - new, new - x) > 0, 1, t)
        t_new = (1 + jnp.sqrt(1 + 4 * t**2)) / 2
        return new, new + (t - 1) / t_new * (new - x), t_new

    return jax.lax.fori_loop(0, iterations, body, (start, start, jnp.ones((), start.dtype)))[0]


def _spectral_bound(matrix: jax.Array) -> jax.Array:
    """|A^4|^(1/4) in the Frobenius norm: at least a symmetric A's spectral norm, at most n^(1/8) times it."""
    largest = jnp.abs(matrix).max()
    scaled = matrix / jnp.where(largest > 0, largest, 1)
    square = jnp.matmul(scaled, scaled, precision=Precision.HIGHEST)
    return largest * jnp.sqrt(jnp.sqrt(jnp.linalg.norm(jnp.matmul(square, square, precision=Precision.HIGHEST))))
