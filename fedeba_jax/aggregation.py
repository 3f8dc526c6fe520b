"""Robust rules: what may stand for the mean of a cohort's updates where some of them are lies.

A rule takes stacked updates [n, ...]; f is how many of the n it withstands. Every client counts the same. What comes
before a rule (`nnm`, `bucketing`, `clipping`, `arc`) is given as its `first`: trimmed_mean(2, first=nnm(2)). Rules and
their names are those of ByzFL (Gonzalez et al. 2025, "ByzFL: Research Framework for Robust Federated Learning").

An update that is not finite, or whose square overflows, is never taken up while there are at most f of them:
coordinate-wise rules see infinities at the ends of their order, and to all others it is infinitely far away. If they
are half of the updates or more, the next model is NaN under any rule (`server.robust`).

Notes:
  Most rules are mixtures of the updates, with weights that depend on their products <x_i, x_j> alone, and so is what
  comes before a rule. They look at the updates twice: for the products, and for the mixture. All else works on n
  numbers. The others treat each coordinate by itself. So coordinates may be divided among devices.
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
Total = Callable[[jax.Array], jax.Array]


def _as_it_is(part: jax.Array) -> jax.Array:
    return part


class Weigh(Protocol):
    """The weights of a mixture."""

    def __call__(self, products: jax.Array, /) -> jax.Array:
        """Weights from <x_i, x_j>, [n, n], in which rows and columns of updates that are not finite are not either.

        [n]; of a rule that remembers, whose last products are those of what it gave last time, [n + 1].
        """


class First(NamedTuple):
    """What happens to the updates before a rule, by name: each becomes a mixture of them."""

    name: str
    weights: Callable[[jax.Array, jax.Array], jax.Array]  # (products [n, n], a random order [n]) -> [n', n]

    def __str__(self) -> str:
        return self.name

    def apply(self, stacked: Params, order: jax.Array) -> Params:
        """Stacked updates [n', ...] from those of n clients, [n, ...], and a random order of these."""
        products = tree.gram(stacked)
        return stack.mixtures(stacked, self.weights(products, order), stack.finite_products(products))


class Rule(NamedTuple):
    """How n updates become one: as a mixture of them, or each coordinate by itself."""

    name: str
    first: First
    weigh: Weigh | None = None  # a mixture
    settle: Callable[[jax.Array], jax.Array] | None = None  # each coordinate: [n, ...] -> [...]
    remembers: bool = False  # whether it starts from what it gave last time

    def init(self, params: Params) -> Any:
        """The memory before the first round."""
        return tree.zeros_like(params) if self.remembers else ()

    def __call__(
        self, stacked: Params, order: jax.Array, memory: Any = (), total: Total = _as_it_is
    ) -> tuple[Params, Any]:
        """The update, and the next memory.

        Args:
          stacked: [n, ...].
          order: a random order of the n, for `bucketing`.
          memory: from `init`, or from the last call.
          total: adds up over devices what each has summed over its coordinates, if they are divided.
        """
        if self.remembers:
            stacked = jax.tree.map(lambda leaf, one: jnp.concatenate([leaf, one[None]]), stacked, memory)
        products = total(tree.gram(stacked))
        if self.settle is None:
            one = stack.mixture(stacked, self.mixture(products, order))
            return one, one if self.remembers else ()
        if self.first is not NOTHING:
            stacked = stack.mixtures(stacked, self.first.weights(products, order), stack.finite_products(products))
        return jax.tree.map(self.settle, stacked), ()

    def mixture(self, products: jax.Array, order: jax.Array) -> jax.Array:
        """The weights of the n updates in the mixture, [n]; of a rule that remembers, of its memory too, [n + 1]."""
        assert self.weigh is not None
        n = len(order)
        before = self.first.weights(products[:n, :n], order)
        if self.remembers:
            before = jnp.pad(before, ((0, 1), (0, 1))).at[-1, -1].set(1.0)
        return self.weigh(mixed_products(products, before)) @ before


def mixed_products(products: jax.Array, weights: jax.Array) -> jax.Array:
    """<z_k, z_l> of mixtures z = weights x, [n', n']; NaN of one that takes up what is not finite."""
    valid = stack.finite_products(products)
    found = weights @ jnp.where(valid[:, None] & valid[None], products, 0.0) @ weights.T
    spoiled = ((weights > 0) & ~valid[None]).any(1)
    return jnp.where(spoiled[:, None] | spoiled[None], jnp.nan, found)


def _identity(products: jax.Array, order: jax.Array) -> jax.Array:
    del order
    return jnp.eye(products.shape[0], dtype=products.dtype)


NOTHING = First("nothing", _identity)
Before = Annotated[Any, "first"]  # one of FIRSTS


def nothing() -> First:
    """The updates as they are."""
    return NOTHING


def _after(first: First, name: str, own: Callable[[jax.Array, jax.Array], jax.Array]) -> First:
    """What comes before a rule, itself after something else."""

    def weights(products: jax.Array, order: jax.Array) -> jax.Array:
        if first is NOTHING:
            return own(products, order)
        before = first.weights(products, order)
        return own(mixed_products(products, before), order[: before.shape[0]]) @ before

    return First(name, weights)


@checked
def nnm(f: Natural, first: Before = NOTHING) -> First:
    """Each update becomes the mean of its n - f nearest (Allouah et al. 2023, "Fixing by Mixing").

    Args:
      f: how many updates to withstand.
      first: what comes before.
    """

    def weights(products: jax.Array, order: jax.Array) -> jax.Array:
        near = len(products) - _tolerated("nnm", f, products)
        nearest = stack.ranks(stack.distances(products)) < near
        return nearest / jnp.asarray(near, products.dtype)

    return _after(first, "nnm", weights)


@checked
def bucketing(s: Count, first: Before = NOTHING) -> First:
    """Means of s updates each, in a random order; the last one of what is left (Karimireddy et al. 2022).

    Args:
      s: updates of a bucket.
      first: what comes before.
    """

    def weights(products: jax.Array, order: jax.Array) -> jax.Array:
        n = len(products)
        bucket = jnp.argsort(order) // s  # of each update
        member = bucket[None] == jnp.arange(math.ceil(n / s))[:, None]
        return member / member.sum(1, keepdims=True).astype(products.dtype)

    return _after(first, "bucketing", weights)


@checked
def clipping(c: Positive, first: Before = NOTHING) -> First:
    """x min(1, c / |x|) of each update.

    Args:
      c: the longest that an update may be.
      first: what comes before.
    """

    def weights(products: jax.Array, order: jax.Array) -> jax.Array:
        return jnp.diag(stack.clip_factors(stack.lengths(products), jnp.asarray(c, products.dtype)))

    return _after(first, "clipping", weights)


@checked
def arc(f: Natural, first: Before = NOTHING) -> First:
    """The floor(2 f (n - f) / n) longest updates, clipped to the longest of the others (Allouah et al. 2025).

    Args:
      f: how many updates to withstand.
      first: what comes before.
    """

    def weights(products: jax.Array, order: jax.Array) -> jax.Array:
        n, lengths = len(products), stack.lengths(products)
        clipped = int(2 * _tolerated("arc", f, products) / n * (n - f))
        return jnp.diag(stack.clip_factors(lengths, jnp.sort(lengths)[n - clipped - 1]))

    return _after(first, "arc", weights)


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

    def weigh(products: jax.Array) -> jax.Array:
        return jnp.full(products.shape[:1], 1 / len(products), products.dtype)

    return Rule("mean", first, weigh)


@checked
def median(first: Before = NOTHING) -> Rule:
    """The median of each coordinate (Yin et al. 2018).

    Args:
      first: what comes before.
    """

    return Rule("median", first, settle=lambda values: stack.median(stack.sorted_rows(values)))


@checked
def trimmed_mean(f: Natural, first: Before = NOTHING) -> Rule:
    """The mean of each coordinate without its f lowest and f highest values (Yin et al. 2018).

    Args:
      f: how many updates to withstand.
      first: what comes before.
    """

    def settle(values: jax.Array) -> jax.Array:
        return stack.mean(stack.sorted_rows(values)[_tolerated("trimmed_mean", f, values) : len(values) - f])

    return Rule("trimmed_mean", first, settle=settle)


@checked
def meamed(f: Natural, first: Before = NOTHING) -> Rule:
    """The mean of the n - f values of each coordinate that are nearest to its median (Xie et al. 2018).

    Args:
      f: how many updates to withstand.
      first: what comes before.
    """

    def settle(values: jax.Array) -> jax.Array:
        rows = stack.sorted_rows(values)
        near, middle = len(rows) - _tolerated("meamed", f, values), stack.median(rows)
        far = [jnp.abs(row - middle) for row in rows]
        chosen = stack.mean(rows[:near])
        for lowest in range(f):  # the nearest are neighbours in the order: who enters must be nearer than who leaves
            closer = far[lowest + near] < far[lowest]
            chosen = jnp.where(closer, stack.mean(rows[lowest + 1 : lowest + 1 + near]), chosen)
        return chosen

    return Rule("meamed", first, settle=settle)


@checked
def geometric_median(nu: Positive = 0.1, iterations: Count = 3, first: Before = NOTHING) -> Rule:
    """argmin_z sum_i |z - x_i|, by steps of the smoothed Weiszfeld algorithm from 0 (RFA: Pillutla et al. 2022).

    z <- sum_i b_i x_i / sum_i b_i, b_i = 1 / max(nu, |z - x_i|).

    Args:
      nu: smoothing, in the unit of the updates.
      iterations: steps.
      first: what comes before.
    """

    def weigh(products: jax.Array) -> jax.Array:
        valid = stack.finite_products(products)
        gram = jnp.where(valid[:, None] & valid[None], products, 0.0)
        return weiszfeld(gram, jnp.zeros_like(gram[0]), valid, nu=nu, iterations=iterations)

    return Rule("geometric_median", first, weigh)


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

    def weigh(products: jax.Array) -> jax.Array:
        scores = _scores("krum", products, f)
        chosen = (jnp.arange(len(products)) == jnp.argmin(scores)).astype(products.dtype)
        return jnp.where(jnp.isinf(scores).all(), jnp.nan, chosen)  # too many are infinitely far away

    return Rule("krum", first, weigh)


@checked
def multi_krum(f: Natural, first: Before = NOTHING) -> Rule:
    """The mean of the n - f updates that Krum scores best.

    Args:
      f: how many updates to withstand.
      first: what comes before.
    """

    def weigh(products: jax.Array) -> jax.Array:
        chosen = stack.ranks(_scores("multi_krum", products, f)) < len(products) - f
        return chosen / chosen.sum().astype(products.dtype)

    return Rule("multi_krum", first, weigh)


@checked
def centered_clipping(radius: Positive = 1.0, iterations: Count = 1, first: Before = NOTHING) -> Rule:
    """v <- v + mean_i (x_i - v) min(1, radius / |x_i - v|), from what the last round gave (Karimireddy et al. 2021).

    Args:
      radius: how far from v an update may draw.
      iterations: steps in a round.
      first: what comes before.
    """

    def weigh(products: jax.Array) -> jax.Array:
        n, valid = len(products) - 1, stack.finite_products(products)
        gram = jnp.where(valid[:, None] & valid[None], products, 0.0)

        def step(_: int, v: jax.Array) -> jax.Array:  # v as a mixture of the updates and of what the last round gave
            product = gram @ v
            squared = jnp.where(valid, jnp.diagonal(gram) - 2 * product + v @ product, jnp.inf)[:n]
            share = stack.clip_factors(jnp.sqrt(jnp.maximum(squared, 0.0)), jnp.asarray(radius, v.dtype)) / n
            return (1 - share.sum()) * v + jnp.append(share, 0.0)

        return jax.lax.fori_loop(0, iterations, step, jnp.append(jnp.zeros((n,), gram.dtype), 1.0))

    return Rule("centered_clipping", first, weigh, remembers=True)


@checked
def mda(f: Natural, first: Before = NOTHING) -> Rule:
    """The mean of the n - f updates with the least diameter, over all such subsets (El Mhamdi et al. 2020).

    Args:
      f: how many updates to withstand; n choose f may not exceed 10,000.
      first: what comes before.
    """

    def weigh(products: jax.Array) -> jax.Array:
        n = len(products)
        size = n - _tolerated("mda", f, products)
        if (found := math.comb(n, size)) > MOST_SUBSETS:
            raise ValueError(f"mda: f={f} of n={n} updates makes {found} subsets; give at most {MOST_SUBSETS}, or krum")
        subsets = jnp.array(list(itertools.combinations(range(n), size)))
        inside = jnp.zeros((found, n), bool).at[jnp.arange(found)[:, None], subsets].set(True)
        pairs = inside[:, :, None] & inside[:, None]
        diameters = jnp.where(pairs, stack.distances(products)[None], 0.0).max((1, 2))
        return inside[jnp.argmin(diameters)] / jnp.asarray(size, products.dtype)

    return Rule("mda", first, weigh)


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


def _tolerated(name: str, f: int, updates: jax.Array) -> int:
    """f, if so few of these updates can be withstood; an array with one row for each."""
    n = len(updates)
    if 2 * f >= n:
        raise ValueError(
            f"{name}: f={f} of n={n} updates is half of them or more; give a smaller f, or a larger cohort"
        )
    return f


def _scores(name: str, products: jax.Array, f: int) -> jax.Array:
    """Krum's: the mean squared distance to the n - f - 1 nearest others, [n]; infinite if the update is not finite."""
    _tolerated(name, f, products)
    nearest = jnp.sort(stack.distances(products), axis=1)[:, 1 : len(products) - f]
    score = nearest.mean(1) if nearest.shape[1] else nearest.sum(1)
    return jnp.where(stack.finite_products(products), score, jnp.inf)
