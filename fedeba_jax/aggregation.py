"""Robust rules: what may stand for the mean of a cohort's updates where some of them are lies.

A rule takes stacked updates [n, ...]; f is how many of the n it withstands. Every client counts the same. What comes
before a rule (`nnm`, `bucketing`, `clipping`, `arc`) is given as its `first`: trimmed_mean(2, first=nnm(2)). Rules and
their names are those of ByzFL (Gonzalez et al. 2025, "ByzFL: Research Framework for Robust Federated Learning").

An update that is not finite, or whose square overflows, is never taken up while there are at most f of them:
coordinate-wise rules see infinities at the ends of their order, and to all others it is infinitely far away.

Notes:
  Distances come from one Gram matrix of the updates, and a geometric median is a mixture of them, so its iterations
  work on n numbers (`weiszfeld`).
"""

import itertools
import math
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from fedeba_jax import stack, tree
from fedeba_jax.hyperparameters import Count, Natural, Positive, checked
from fedeba_jax.types import Params

MOST_SUBSETS = 10_000


class Prepare(Protocol):
    """What happens to the updates before a rule."""

    def __call__(self, stacked: Params, order: jax.Array, /) -> Params:
        """Stacked updates [n', ...] from those of n clients, [n, ...], and a random order of these, [n]."""


class Combine(Protocol):
    """How stacked updates become one."""

    def __call__(self, stacked: Params, memory: Any, /) -> Params:
        """One update; `memory` is what the rule gave last time, if it remembers."""


class First(NamedTuple):
    """What happens to the updates before a rule, by name."""

    name: str
    apply: Prepare

    def __str__(self) -> str:
        return self.name


class Rule(NamedTuple):
    """How n updates become one."""

    name: str
    combine: Combine
    first: First
    remembers: bool = False  # whether it starts from what it gave last time

    def init(self, params: Params) -> Any:
        """The memory before the first round."""
        return tree.zeros_like(params) if self.remembers else ()

    def __call__(self, stacked: Params, order: jax.Array, memory: Any = ()) -> tuple[Params, Any]:
        """The update, and the next memory.

        Args:
          stacked: [n, ...].
          order: a random order of the n, for `bucketing`.
          memory: from `init`, or from the last call.
        """
        one = self.combine(self.first.apply(stacked, order), memory)
        return one, one if self.remembers else ()


NOTHING = First("nothing", lambda stacked, order: stacked)
Before = Annotated[Any, "first"]  # one of FIRSTS


def nothing() -> First:
    """The updates as they are."""
    return NOTHING


@checked
def nnm(f: Natural, first: Before = NOTHING) -> First:
    """Each update becomes the mean of its n - f nearest (Allouah et al. 2023, "Fixing by Mixing").

    Args:
      f: how many updates to withstand.
      first: what comes before.
    """

    def apply(stacked: Params, order: jax.Array) -> Params:
        stacked = first.apply(stacked, order)
        near = stack.count(stacked) - _tolerated("nnm", f, stacked)
        nearest = stack.ranks(stack.distances(stacked)) < near
        return stack.mixtures(stacked, nearest / jnp.asarray(near, jnp.result_type(float)))

    return First("nnm", apply)


@checked
def bucketing(s: Count, first: Before = NOTHING) -> First:
    """Means of s updates each, in a random order; the last one of what is left (Karimireddy et al. 2022).

    Args:
      s: updates of a bucket.
      first: what comes before.
    """

    def apply(stacked: Params, order: jax.Array) -> Params:
        stacked = first.apply(stacked, order)
        n = stack.count(stacked)
        bucket = jnp.argsort(order[:n]) // s  # of each update
        member = bucket[None] == jnp.arange(math.ceil(n / s))[:, None]
        return stack.mixtures(stacked, member / member.sum(1, keepdims=True).astype(jnp.result_type(float)))

    return First("bucketing", apply)


@checked
def clipping(c: Positive, first: Before = NOTHING) -> First:
    """x min(1, c / |x|) of each update.

    Args:
      c: the longest that an update may be.
      first: what comes before.
    """

    def apply(stacked: Params, order: jax.Array) -> Params:
        stacked = first.apply(stacked, order)
        return stack.clip_rows(stacked, jnp.asarray(c))

    return First("clipping", apply)


@checked
def arc(f: Natural, first: Before = NOTHING) -> First:
    """The floor(2 f (n - f) / n) longest updates, clipped to the longest of the others (Allouah et al. 2025).

    Args:
      f: how many updates to withstand.
      first: what comes before.
    """

    def apply(stacked: Params, order: jax.Array) -> Params:
        stacked = first.apply(stacked, order)
        n = stack.count(stacked)
        clipped = int(2 * _tolerated("arc", f, stacked) / n * (n - f))
        return stack.clip_rows(stacked, jnp.sort(stack.norms(stacked))[n - clipped - 1])

    return First("arc", apply)


FIRSTS: dict[str, Callable[..., First]] = {
    "nothing": nothing, "nnm": nnm, "bucketing": bucketing, "clipping": clipping, "arc": arc,
}  # fmt: skip
"""What may come before a rule, by name."""


def weighted_sum() -> None:
    """No robust rule: the method's own weighted sum."""


@checked
def mean(first: Before = NOTHING) -> Rule:
    """The mean, of what `first` makes of the updates.

    Args:
      first: what comes before.
    """

    def combine(stacked: Params, _: Any) -> Params:
        return jax.tree.map(lambda leaf: leaf.mean(0), stacked)

    return Rule("mean", combine, first)


@checked
def median(first: Before = NOTHING) -> Rule:
    """The median of each coordinate (Yin et al. 2018).

    Args:
      first: what comes before.
    """

    def combine(stacked: Params, _: Any) -> Params:
        return jax.tree.map(lambda leaf: stack.median(stack.sorted_rows(leaf)), stacked)

    return Rule("median", combine, first)


@checked
def trimmed_mean(f: Natural, first: Before = NOTHING) -> Rule:
    """The mean of each coordinate without its f lowest and f highest values (Yin et al. 2018).

    Args:
      f: how many updates to withstand.
      first: what comes before.
    """

    def combine(stacked: Params, _: Any) -> Params:
        n = stack.count(stacked)
        _tolerated("trimmed_mean", f, stacked)
        return jax.tree.map(lambda leaf: stack.mean(stack.sorted_rows(leaf)[f : n - f]), stacked)

    return Rule("trimmed_mean", combine, first)


@checked
def meamed(f: Natural, first: Before = NOTHING) -> Rule:
    """The mean of the n - f values of each coordinate that are nearest to its median (Xie et al. 2018).

    Args:
      f: how many updates to withstand.
      first: what comes before.
    """

    def one(leaf: jax.Array) -> jax.Array:
        rows = stack.sorted_rows(leaf)
        near, middle = len(rows) - f, stack.median(rows)
        far = [jnp.abs(row - middle) for row in rows]
        chosen = stack.mean(rows[:near])
        for lowest in range(f):  # the nearest are neighbours in the order: who enters must be nearer than who leaves
            closer = far[lowest + near] < far[lowest]
            chosen = jnp.where(closer, stack.mean(rows[lowest + 1 : lowest + 1 + near]), chosen)
        return chosen

    def combine(stacked: Params, _: Any) -> Params:
        _tolerated("meamed", f, stacked)
        return jax.tree.map(one, stacked)

    return Rule("meamed", combine, first)


@checked
def geometric_median(nu: Positive = 0.1, iterations: Count = 3, first: Before = NOTHING) -> Rule:
    """argmin_z sum_i |z - x_i|, by steps of the smoothed Weiszfeld algorithm from 0 (RFA: Pillutla et al. 2022).

    z <- sum_i b_i x_i / sum_i b_i, b_i = 1 / max(nu, |z - x_i|).

    Args:
      nu: smoothing, in the unit of the updates.
      iterations: steps.
      first: what comes before.
    """

    def combine(stacked: Params, _: Any) -> Params:
        valid = stack.finite_rows(stacked)
        gram = jnp.where(valid[:, None] & valid[None], tree.gram(stacked), 0.0)
        start = jnp.zeros_like(gram[0])
        return stack.mixture(stacked, weiszfeld(gram, start, valid, nu=nu, iterations=iterations))

    return Rule("geometric_median", combine, first)


def weiszfeld(gram: jax.Array, start: jax.Array, counts: jax.Array, *, nu: Any, iterations: int) -> jax.Array:
    """Coefficients b of the geometric median sum_i b_i x_i, from the products <x_i, x_j> alone.

    |z - x_i|^2 = <x_i, x_i> - 2 (G b)_i + b^T G b for z = sum_i b_i x_i.

    Args:
      gram: G, [n, n].
      start: b of the first z.
      counts: [n] of bool, whose x_i take part.
      nu: the least distance.
      iterations: steps.
    """

    def step(_: int, b: jax.Array) -> jax.Array:
        product = gram @ b
        squared = jnp.diagonal(gram) - 2 * product + b @ product
        near = counts / jnp.maximum(jnp.sqrt(jnp.maximum(squared, 0.0)), nu)
        return near / jnp.maximum(near.sum(), jnp.finfo(gram.dtype).tiny)

    return jax.lax.fori_loop(0, iterations, step, start)


@checked
def krum(f: Natural, first: Before = NOTHING) -> Rule:
    """The update with the least mean squared distance to its n - f - 1 nearest (Blanchard et al. 2017).

    Args:
      f: how many updates to withstand.
      first: what comes before.
    """

    def combine(stacked: Params, _: Any) -> Params:
        return tree.rows(stacked, jnp.argmin(_scores("krum", stacked, f)))

    return Rule("krum", combine, first)


@checked
def multi_krum(f: Natural, first: Before = NOTHING) -> Rule:
    """The mean of the n - f updates that Krum scores best.

    Args:
      f: how many updates to withstand.
      first: what comes before.
    """

    def combine(stacked: Params, _: Any) -> Params:
        chosen = stack.ranks(_scores("multi_krum", stacked, f)) < stack.count(stacked) - f
        return stack.mixture(stacked, chosen / chosen.sum().astype(jnp.result_type(float)))

    return Rule("multi_krum", combine, first)


@checked
def centered_clipping(radius: Positive = 1.0, iterations: Count = 1, first: Before = NOTHING) -> Rule:
    """v <- v + mean_i (x_i - v) min(1, radius / |x_i - v|), from what the last round gave (Karimireddy et al. 2021).

    Args:
      radius: how far from v an update may draw.
      iterations: steps in a round.
      first: what comes before.
    """

    def combine(stacked: Params, memory: Any) -> Params:
        n, v = stack.count(stacked), memory

        def step(_: int, v: Params) -> Params:
            away = jax.tree.map(lambda leaf, center: leaf - center[None], stacked, v)
            return tree.add(v, tree.weighted_sum(stack.clip_rows(away, jnp.asarray(radius)), jnp.full((n,), 1 / n)))

        return jax.lax.fori_loop(0, iterations, step, v)

    return Rule("centered_clipping", combine, first, remembers=True)


@checked
def mda(f: Natural, first: Before = NOTHING) -> Rule:
    """The mean of the n - f updates with the least diameter, over all such subsets (El Mhamdi et al. 2020).

    Args:
      f: how many updates to withstand; n choose f may not exceed 10,000.
      first: what comes before.
    """

    def combine(stacked: Params, _: Any) -> Params:
        n = stack.count(stacked)
        size = n - _tolerated("mda", f, stacked)
        if (found := math.comb(n, size)) > MOST_SUBSETS:
            raise ValueError(f"mda: f={f} of n={n} updates makes {found} subsets; give at most {MOST_SUBSETS}, or krum")
        subsets = jnp.array(list(itertools.combinations(range(n), size)))
        inside = jnp.zeros((found, n), bool).at[jnp.arange(found)[:, None], subsets].set(True)
        pairs = inside[:, :, None] & inside[:, None]
        diameters = jnp.where(pairs, stack.distances(stacked)[None], 0.0).max((1, 2))
        return stack.mixture(stacked, inside[jnp.argmin(diameters)] / jnp.asarray(size, jnp.result_type(float)))

    return Rule("mda", combine, first)


AGGREGATORS: dict[str, Callable[..., Rule | None]] = {
    "weighted_sum": weighted_sum,
    "mean": mean,
    "median": median,
    "trimmed_mean": trimmed_mean,
    "meamed": meamed,
    "geometric_median": geometric_median,
    "krum": krum,
    "multi_krum": multi_krum,
    "centered_clipping": centered_clipping,
    "mda": mda,
}
"""Rules by name."""


def _tolerated(name: str, f: int, stacked: Params) -> int:
    """f, if so few of these updates can be withstood."""
    n = stack.count(stacked)
    if 2 * f >= n:
        raise ValueError(
            f"{name}: f={f} of n={n} updates is half of them or more; give a smaller f, or a larger cohort"
        )
    return f


def _scores(name: str, stacked: Params, f: int) -> jax.Array:
    """Krum's: the mean squared distance to the n - f - 1 nearest others, [n]; infinite if the update is not finite."""
    _tolerated(name, f, stacked)
    nearest = jnp.sort(stack.distances(stacked), axis=1)[:, 1 : stack.count(stacked) - f]
    score = nearest.mean(1) if nearest.shape[1] else nearest.sum(1)
    return jnp.where(stack.finite_rows(stacked), score, jnp.inf)
