"""Guards of loss-based weights against lies: bounded losses, clipped updates, and trust in those who point our way.

Losses alone cannot tell a liar from an honest client that is badly off. So the influence of a loss is bounded, and a
client's update must bear its loss out: it counts by how far it agrees with the geometric median of all updates, in
which every client counts the same. Maths on arrays [n], and on the products of the vectors, [n, n].
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from fedeba_jax import stack
from fedeba_jax.aggregation import NOTHING, Rule, weiszfeld
from fedeba_jax.types import Scalar

STEPS, SMOOTHING = 8, 1e-6  # of the geometric median
KEPT = 0.9  # of a mean over rounds, in each
AGREES = 0.5  # of the median cosine: an update with less does not count in its round
LONGER = 2.0  # times its mean over rounds is the most that the median length is believed to be
CONSISTENT = 1.4826  # times the median absolute deviation is the standard deviation of normal numbers


Outliers = Literal["middle", "clip"]
Trust = Literal["relu", "sign", "history", "off"]
Past = tuple[()] | tuple[jax.Array, jax.Array]
"""Whose mean cosine T there is, and T, each [n]; () if none is kept."""


class Directions(NamedTuple):
    """How the vectors of n clients are guarded, and how far each agrees with their geometric median."""

    factors: jax.Array  # [n] by which each is made no longer than the limit; 0 for those that are not finite
    cosines: jax.Array  # [n] in [-1, 1]; 0 of a vector that is 0
    finite: jax.Array  # [n] of bool
    usual: jax.Array  # the mean of r over rounds, r the median length; 0 if there is no r


def guard_losses(losses: jax.Array, c: Scalar, counts: jax.Array, outliers: Outliers) -> jax.Array:
    """Losses within m -+ c s, m the median of the losses and s 1.4826 times their median absolute deviation.

    Args:
      losses: F_i, [n]; a negative one counts as 0.
      c: how many s a loss may be from m; infinity guards nothing.
      counts: [n] of bool; the others get m, and have no part in it.
      outliers: what a loss further away counts as: "middle" is m, so that a lie gains nothing; "clip" m -+ c s.
    """
    own = jnp.where(counts, jnp.maximum(losses, 0.0), jnp.nan)
    middle = jnp.nanmedian(own)
    reach = c * CONSISTENT * jnp.nanmedian(jnp.abs(own - middle))
    far = middle if outliers == "middle" else jnp.clip(own, middle - reach, middle + reach)
    guarded = jnp.where(jnp.isinf(c) | (jnp.abs(own - middle) <= reach), own, far)
    return jnp.nan_to_num(jnp.where(counts, guarded, middle))


def directions(
    products: jax.Array,
    norm_clip: Scalar,
    *,
    opposed: Scalar = jnp.inf,
    among: jax.Array | None = None,
    usual: Scalar = 0.0,
) -> Directions:
    """Vectors clipped to rho r, r the median of lengths, and cosines to the geometric median of vectors cut to r.

    Args:
      products: <v_i, v_j>, [n, n].
      norm_clip: rho; infinity clips nothing.
      opposed: rho of those that point against the geometric median, if it is less.
      among: whose vectors make both medians, [n] of bool; None, or nobody who is finite: all that are.
      usual: r is no more than twice that, the mean of r over rounds; 0 where there is none.
    """
    lengths = stack.lengths(products)
    finite = jnp.isfinite(lengths)
    asked = finite if among is None else finite & among
    asked = jnp.where(asked.any(), asked, finite)
    r = jnp.nan_to_num(jnp.nanmedian(jnp.where(asked, lengths, jnp.nan)))
    r = jnp.where(usual > 0, jnp.minimum(r, LONGER * usual), r)
    cut = stack.clip_factors(lengths, r)
    gram = jnp.where(finite[:, None] & finite[None], cut[:, None] * cut[None] * products, 0.0)
    start = asked / jnp.maximum(asked.sum(), 1)
    b = weiszfeld(gram, start.astype(gram.dtype), asked, nu=SMOOTHING, iterations=STEPS)
    product = gram @ b
    size = jnp.sqrt(jnp.maximum(jnp.diagonal(gram) * (b @ product), 0.0))
    cosines = jnp.where(size > 0, product / jnp.where(size > 0, size, 1), 0.0)
    rho = jnp.where(cosines < 0, jnp.minimum(opposed, norm_clip), norm_clip)
    limits = jnp.where(jnp.isinf(rho), jnp.inf, rho * r)
    mean = jnp.where((usual > 0) & (r > 0), KEPT * usual + (1 - KEPT) * r, r)
    return Directions(stack.clip_factors(lengths, limits), cosines, finite, mean)


def unsuspected(past: Past) -> jax.Array | None:
    """Who has not opposed the others so far, in the mean, [n] of bool; who is new has not. None: everybody."""
    return ~past[0] | (past[1] > 0) if past else None


def earned(trust: Trust, cosines: jax.Array, past: Past, now: bool = False) -> jax.Array:
    """How far each client is trusted, [n], not negative.

    Args:
      trust: "relu", by its cosine; "sign", by the sign of it; "history", by that of T, or of the cosine if there is no
        T yet; "off", all alike.
      cosines: to the geometric median, [n].
      past: of "history"; () is that nobody is known.
      now: whether "history" also asks for a cosine of half the median cosine.
    """
    if trust == "off":
        return jnp.ones_like(cosines)
    if trust == "relu":
        return jnp.maximum(cosines, 0.0)
    agrees = jnp.where(past[0], past[1], cosines) > 0 if past else cosines > 0
    if trust == "history" and now:
        agrees = agrees & (cosines > AGREES * jnp.maximum(jnp.median(cosines), 0.0))
    return agrees.astype(cosines.dtype)


def prior(trust: jax.Array, counts: jax.Array) -> jax.Array:
    """q_i ~ trust_i of those who count, sum 1; where nobody is trusted, all who count are, or everybody.

    Args:
      trust: [n], not negative.
      counts: [n] of bool.
    """
    of_those = jnp.where(counts, trust, 0.0)
    anybody = jnp.where(counts.any(), counts, True).astype(of_those.dtype)
    q = jnp.where(of_those.sum() > 0, of_those, anybody)
    return q / q.sum()


def cap(q: jax.Array, weight_cap: Scalar) -> jax.Array:
    """The largest weight, max(kappa / n, 1 / number of those with q_i > 0): so many must be able to share 1."""
    return jnp.maximum(weight_cap / q.shape[0], 1 / jnp.maximum((q > 0).sum(), 1))


def remember(cosines: jax.Array, counts: jax.Array, known: jax.Array, mean: jax.Array) -> tuple[jax.Array, jax.Array]:
    """T <- 0.9 T + 0.1 cos of those who count, cos itself the first time; and whose T there is.

    Args:
      cosines: of this round, [n].
      counts: [n] of bool.
      known: whose T there is, [n] of bool.
      mean: T, [n].
    """
    new = jnp.where(known, KEPT * mean + (1 - KEPT) * cosines, cosines)
    return known | counts, jnp.where(counts, new, mean)


def agreeing(norm_clip: Scalar, trust: Trust = "history") -> Rule:
    """The mean of clipped updates that agree: what is left of the guards where all losses are equal, and nobody known.

    Args:
      norm_clip: rho, in median lengths.
      trust: as in `earned`.
    """

    def weigh(products: jax.Array) -> jax.Array:
        own = directions(products, norm_clip)
        return prior(earned(trust, own.cosines, (), now=True), own.finite) * own.factors

    return Rule("agreeing", NOTHING, weigh)
