"""Lying clients: what some of them send in place of what they computed.

An attack is a value that a round takes (`run_round(..., attack=...)`). It acts on replies where they leave the client
(`Cohort`), so algorithms do not know of it. Of a reply
  - a part with the structure and shapes of the model that was sent down is an update (or a gradient), and is forged;
  - other floating numbers, one or a few for each client, are losses, about which clients lie as `loss` says;
  - what is `Private` stays as it is, made with the true labels: the state of an attacker is its own. FOCUS's
    assignments are none of it: the server makes them from the losses that clients tell;
  - whole numbers stay as they are, as a simplification: how many examples a client holds is known from enrolment, but
    FedwAvg's counts and FedDisco's histograms could be lies.

Every attack takes `share`, `loss` and `drawn`. Who attacks is that share of all clients, fixed for the run; or, with
`drawn`, that share of each cohort anew. What attackers know is in each docstring; they all know the model that is sent,
and which of them attack. Names are those of ByzFL (Gonzalez et al. 2025) and Blades (Li et al. 2024).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from fedeba_jax import stack, tree
from fedeba_jax.aggregation import Rule, Total, mean, mixed_products
from fedeba_jax.client_map import by_columns, everywhere
from fedeba_jax.hyperparameters import Count, Fraction, NonNegative, Positive, checked
from fedeba_jax.lies import HONEST, Lie, LossLie, honest_or_all
from fedeba_jax.privacy import noise
from fedeba_jax.types import ClientMap, Key, Params, Private, Scalar, Sizes

KEY = 2**32 - 2
"""Folded into a run's key for what attackers draw; its rounds fold in 0, 1, ..."""

SEARCHED = 2**12
"""Coordinates that a search looks at where the rule treats each by itself: of larger models a sample, the same in all
rounds. A search over all of them would take as long as the training of the round (benchmarks/robustness.py)."""


class Seen(NamedTuple):
    """What there is to know when attackers send their updates."""

    updates: Params  # [n, ...] what each client computed
    attackers: jax.Array  # [n] of bool
    id: jax.Array  # [n]
    key: Key  # of the round, for what attackers draw
    client_map: ClientMap  # of the updates

    def honest_mean(self) -> Params:
        """The mean of what honest clients send; of all, should there be none."""
        counts = honest_or_all(self.attackers)
        return tree.weighted_sum(stack.only_rows(self.updates, counts), counts / counts.sum())

    def honest_std(self, mean: Params) -> Params:
        """Of each coordinate, with n - 1 in the denominator."""
        counts = honest_or_all(self.attackers)
        away = jax.tree.map(lambda leaf, center: jnp.square(leaf - center[None]), self.updates, mean)
        share = counts / jnp.maximum(counts.sum() - 1, 1)
        return jax.tree.map(jnp.sqrt, tree.weighted_sum(stack.only_rows(away, counts), share))

    def with_all(self, forged: Params) -> Params:
        """[n, ...] with the one given update in place of every attacker's."""
        return stack.where_rows(self.attackers, jax.tree.map(lambda leaf: leaf[None], forged), self.updates)


class Forge(Protocol):
    """What is sent in place of updates."""

    def __call__(self, seen: Seen, /) -> Params:
        """Updates [n, ...] as they are sent: the attackers' forged, those of the others as they were."""


class Poison(Protocol):
    """What attackers train on."""

    def __call__(self, labels: jax.Array, /) -> jax.Array:
        """Labels in place of the true ones."""


class Attack(NamedTuple):
    """Who lies, and how."""

    name: str
    share: Scalar  # f
    loss: Lie = HONEST
    drawn: bool = False  # whether attackers are drawn anew in each round
    forge: Forge | None = None  # None: updates are sent as they are
    poison: Poison | None = None  # None: labels are as they are

    def draw(self, share: Scalar, key: Key, round_: jax.Array, ids: jax.Array, sizes: Sizes) -> tuple[jax.Array, Key]:
        """Who of the cohort `ids` [n] attacks in a round of a run with this key, and a key for what they draw."""
        of_round = jax.random.fold_in(jax.random.fold_in(key, KEY), round_)
        if not self.drawn:
            return fixed(key, share, sizes.num_clients)[ids], of_round
        draws = jax.vmap(lambda i: jax.random.uniform(jax.random.fold_in(of_round, i)))(ids)
        return stack.ranks(draws) < _how_many(share, ids.shape[0]), of_round


class Attackers(NamedTuple):
    """An attack in one round."""

    attack: Attack
    id: jax.Array  # [n] of the cohort
    mask: jax.Array  # [n] of bool
    key: Key

    def forged(self, replies: Any, sent: Any, client_map: ClientMap) -> Any:
        """Stacked replies of the map as they arrive at the server.

        `sent` is the model that they answer, None if it is none.
        """

        rows = self.mask.shape

        def one(part: Any) -> Any:
            if isinstance(part, Private):
                return part
            if is_update(part, sent, rows):
                seen = Seen(part, self.mask, self.id, self.key, client_map)
                return part if self.attack.forge is None else self.attack.forge(seen)
            if not jnp.issubdtype(part.dtype, jnp.floating):
                return part
            return self.attack.loss.of(part, self.mask.reshape(-1, *[1] * (part.ndim - 1))).astype(part.dtype)

        return jax.tree.map(one, replies, is_leaf=lambda part: _is_whole(part, sent, rows))

    def weight(self, weights: jax.Array) -> jax.Array:
        """The attackers' share of these weights [n]."""
        size = jnp.abs(weights)
        return jnp.where(self.mask, size, 0.0).sum() / jnp.maximum(size.sum(), jnp.finfo(size.dtype).tiny)


class Parts(NamedTuple):
    """What is sent of replies, taken apart."""

    updates: list[Any]
    numbers: list[jax.Array]  # floating ones: losses


def parts(replies: Any, sent: Any, rows: tuple[int, ...]) -> Parts:
    """The updates and the numbers of replies to a model; `rows` is (n,) if they are stacked, () if summed up."""
    whole = jax.tree.leaves(replies, is_leaf=lambda part: _is_whole(part, sent, rows))
    own = [part for part in whole if not isinstance(part, Private)]
    others = [part for part in own if not is_update(part, sent, rows)]
    updates = [part for part in own if is_update(part, sent, rows)]
    return Parts(updates, [part for part in others if jnp.issubdtype(part.dtype, jnp.floating)])


def is_update(part: Any, sent: Any, rows: tuple[int, ...]) -> bool:
    """Whether a part of replies has the structure and shapes of the model that was sent, after the axis of the rows."""
    own, model = jax.tree.flatten(part), jax.tree.flatten(sent)
    shapes = [(*rows, *jnp.shape(leaf)) for leaf in model[0]]
    return sent is not None and own[1:] == model[1:] and [jnp.shape(leaf) for leaf in own[0]] == shapes


def _is_whole(part: Any, sent: Any, rows: tuple[int, ...]) -> bool:
    return isinstance(part, Private) or is_update(part, sent, rows)


def fixed(key: Key, share: Scalar, num_clients: int) -> jax.Array:
    """Who attacks throughout a run with this key, [M] of bool: the share of all clients, rounded."""
    order = jax.random.permutation(jax.random.fold_in(key, KEY), num_clients)
    return order < _how_many(share, num_clients)


def none() -> None:
    """Everybody is honest."""


@checked
def label_flipping(num_classes: int, share: Fraction, loss: LossLie = HONEST, drawn: bool = False) -> Attack:
    """Training on labels C - 1 - y, honestly otherwise; an honest loss is that of these labels.

    An attacker needs to know its own data.

    Args:
      num_classes: C.
    """

    def flip(labels: jax.Array) -> jax.Array:
        return jnp.where(labels < 0, labels, num_classes - 1 - labels)  # of sequences, -1 is no label

    return Attack("label_flipping", share, loss, drawn, poison=flip)


@checked
def sign_flipping(share: Fraction, loss: LossLie = HONEST, drawn: bool = False) -> Attack:
    """-Delta_i. An attacker knows its own update.

    Notes:
      As in Blades. ByzFL's attack of this name is `inner_product_manipulation(factor=1)`.
    """
    return scaling(share, -1.0, loss, drawn)._replace(name="sign_flipping")


@checked
def scaling(share: Fraction, factor: Scalar = -10.0, loss: LossLie = HONEST, drawn: bool = False) -> Attack:
    """factor Delta_i. An attacker knows its own update.

    Args:
      factor: of the update; 1 sends it as it is, so that only the loss lies.
    """

    def forge(seen: Seen) -> Params:
        return stack.where_rows(seen.attackers, tree.scale(factor, seen.updates), seen.updates)

    return Attack("scaling", share, loss, drawn, forge)


@checked
def inner_product_manipulation(
    share: Fraction, factor: Scalar = 2.0, loss: LossLie = HONEST, drawn: bool = False
) -> Attack:
    """-factor mean(honest updates) (Xie et al. 2020). Attackers know all updates of the round.

    Args:
      factor: how far against the mean.
    """

    def forge(seen: Seen) -> Params:
        return seen.with_all(tree.scale(-factor, seen.honest_mean()))

    return Attack("inner_product_manipulation", share, loss, drawn, forge)


@checked
def a_little_is_enough(share: Fraction, factor: Scalar = 1.5, loss: LossLie = HONEST, drawn: bool = False) -> Attack:
    """mean + factor std of each coordinate of honest updates (Baruch et al. 2019). Attackers know all updates.

    Args:
      factor: how many standard deviations from the mean.
    """

    def forge(seen: Seen) -> Params:
        middle = seen.honest_mean()
        return seen.with_all(tree.add(middle, tree.scale(factor, seen.honest_std(middle))))

    return Attack("a_little_is_enough", share, loss, drawn, forge)


@checked
def mimic(share: Fraction, loss: LossLie = HONEST, drawn: bool = False) -> Attack:
    """All send what one honest client sends (Karimireddy et al. 2022). Attackers know the updates of the round.

    The victim is the honest client of the cohort with the lowest id. Nothing that is sent is extraordinary: the victim
    alone counts too much.
    """

    def forge(seen: Seen) -> Params:
        victim = jnp.argmin(jnp.where(honest_or_all(seen.attackers), seen.id, jnp.iinfo(seen.id.dtype).max))
        return seen.with_all(tree.rows(seen.updates, victim))

    return Attack("mimic", share, loss, drawn, forge)


@checked
def gaussian(
    share: Fraction, mu: Scalar = 0.0, sigma: NonNegative = 1.0, loss: LossLie = HONEST, drawn: bool = False
) -> Attack:
    """N(mu, sigma^2) in each coordinate, the same draw from all attackers of a round. They need to know nothing.

    Args:
      mu: the mean.
      sigma: the standard deviation.
    """

    def forge(seen: Seen) -> Params:
        draw = noise(seen.key, tree.rows(seen.updates, 0))
        return seen.with_all(jax.tree.map(lambda z: (mu + sigma * z).astype(z.dtype), draw))

    return Attack("gaussian", share, loss, drawn, forge)


@checked
def inf(share: Fraction, loss: LossLie = HONEST, drawn: bool = False) -> Attack:
    """Infinity in each coordinate: a broken client, or one that wants the run to end. It needs to know nothing."""

    def forge(seen: Seen) -> Params:
        return seen.with_all(jax.tree.map(lambda leaf: jnp.full(leaf.shape[1:], jnp.inf, leaf.dtype), seen.updates))

    return Attack("inf", share, loss, drawn, forge)


@checked
def opt_ipm(
    aggregator: Rule | None,
    share: Fraction,
    evaluations: Count = 20,
    delta: Positive = 10.0,
    loss: LossLie = HONEST,
    drawn: bool = False,
) -> Attack:
    """`inner_product_manipulation` with the factor that moves the aggregate farthest (Shejwalkar & Houmansadr 2021).

    Attackers know all updates, and the server's rule but for its memory and its draws. Where the server takes the
    method's weighted sum, they suppose a mean, or, of a method that guards its sum, its guards of updates
    (`method.supposed_rule`): weights depend on losses that they do not see yet.

    Args:
      aggregator: the rule that the server uses; None: a mean.
      evaluations: of the rule, in the search (`largest`).
      delta: the first step of the search.
    """

    def against_the_mean(seen: Seen) -> tuple[Params, Params]:
        middle = seen.honest_mean()
        return tree.zeros_like(middle), tree.scale(-1.0, middle)

    def forge(seen: Seen) -> Params:
        return _farthest(seen, aggregator, against_the_mean, evaluations, delta)

    return Attack("opt_ipm", share, loss, drawn, forge)


@checked
def opt_alie(
    aggregator: Rule | None,
    share: Fraction,
    evaluations: Count = 20,
    delta: Positive = 10.0,
    loss: LossLie = HONEST,
    drawn: bool = False,
) -> Attack:
    """`a_little_is_enough` with the factor that moves the aggregate farthest; attackers know what `opt_ipm` tells.

    Args:
      aggregator: the rule that the server uses; None: a mean.
      evaluations: of the rule, in the search (`largest`).
      delta: the first step of the search.
    """

    def along_the_deviation(seen: Seen) -> tuple[Params, Params]:
        middle = seen.honest_mean()
        return middle, seen.honest_std(middle)

    def forge(seen: Seen) -> Params:
        return _farthest(seen, aggregator, along_the_deviation, evaluations, delta)

    return Attack("opt_alie", share, loss, drawn, forge)


def largest(
    function: Callable[[jax.Array], jax.Array], evaluations: int, delta: Scalar, ratio: float = 0.8
) -> jax.Array:
    """An x >= 0 with a large value: steps that double while they help, and then shrink (ByzFL's search).

    Args:
      function: of x.
      evaluations: how many, the one of 0 included.
      delta: the first step.
      ratio: by which steps shrink.
    """

    def step(carry: Any, _: None) -> tuple[Any, None]:
        x, y, delta, grows = carry
        proposed = function(x + delta)
        better = proposed > y
        grows = grows & better
        moved = jnp.where(better, x + delta, x), jnp.where(better, proposed, y)
        return (*moved, jnp.where(grows, 2.0, ratio) * delta, grows), None

    zero = jnp.zeros(())
    start = (zero, function(zero), zero + delta, jnp.ones((), bool))
    return jax.lax.scan(step, start, length=evaluations - 1)[0][0]


Line = Callable[[Seen], tuple[Params, Params]]  # what attackers choose from: start + x direction, x >= 0


def _farthest(seen: Seen, aggregator: Rule | None, line: Line, evaluations: int, delta: Scalar) -> Params:
    """Updates [n, ...] of which the attackers' are on the line, where the rule goes far from the honest mean.

    A rule that mixes updates by their products is searched by products alone, [n + 2, n + 2]; one that treats each
    coordinate by itself by some of the coordinates.
    """
    rule = mean() if aggregator is None else aggregator
    searched, stands_for = (seen.updates, 1.0) if rule.weigh else _sample(seen.updates)

    def search(total: Total, updates: Params, _: Any, attackers: jax.Array) -> tuple[Params, jax.Array]:
        own = seen._replace(updates=updates, attackers=attackers)
        n, middle, (start, direction) = len(attackers), own.honest_mean(), line(own)
        order = jnp.arange(n)

        def sent(x: jax.Array) -> Params:
            return tree.add(start, tree.scale(x, direction))

        def of_all(part: jax.Array) -> jax.Array:
            return stands_for * total(part)

        def distance(x: jax.Array) -> jax.Array:
            away = tree.subtract(rule(own.with_all(sent(x)), order, total=of_all)[0], middle)
            return jnp.sqrt(of_all(tree.dot(away, away)))

        everything = jax.tree.map(lambda leaf, *one: jnp.concatenate([leaf, jnp.stack(one)]), updates, start, direction)
        honest = honest_or_all(attackers)
        known = jnp.append(honest, jnp.ones((2,), bool))  # what attackers computed themselves is not sent
        products = jnp.where(known[:, None] & known[None], total(tree.gram(everything)), 0.0)
        at_middle = jnp.append(honest / honest.sum(), jnp.zeros((2,))).astype(products.dtype)

        def distance_by_products(x: jax.Array) -> jax.Array:
            forged = jnp.append(jnp.zeros((n,), products.dtype), jnp.stack([jnp.ones_like(x), x]))
            coefficients = jnp.where(attackers[:, None], forged, jnp.eye(n, n + 2, dtype=products.dtype))
            of_sent = jnp.pad(mixed_products(products, coefficients), (0, rule.remembers))  # a memory of 0
            away = rule.mixture(of_sent, order)[:n] @ coefficients - at_middle
            return jnp.sqrt(jnp.maximum(away @ products @ away, 0.0))

        x = largest(distance if rule.weigh is None else distance_by_products, evaluations, delta)
        return sent(x), x

    if searched is seen.updates:
        return seen.with_all(by_columns(seen.client_map, search, searched, (), seen.attackers)[0])
    _, x = everywhere(seen.client_map, partial(search, lambda part: part))(searched, (), seen.attackers)
    start, direction = line(seen)
    return seen.with_all(tree.add(start, tree.scale(x, direction)))


def _sample(updates: Params) -> tuple[Params, float]:
    """Some coordinates of stacked updates, SEARCHED or a few more, and how many of all each stands for."""
    leaves = [leaf.reshape(len(leaf), -1) for leaf in jax.tree.leaves(updates)]
    size = sum(leaf.shape[1] for leaf in leaves)
    if size <= SEARCHED:
        return updates, 1.0
    counts = [-(-leaf.shape[1] * SEARCHED // size) for leaf in leaves]
    chosen = [np.sort(np.random.default_rng(0).choice(leaf.shape[1], count, replace=False))
              for leaf, count in zip(leaves, counts, strict=True)]  # fmt: skip
    return [leaf[:, places] for leaf, places in zip(leaves, chosen, strict=True)], size / sum(counts)


def _how_many(share: Scalar, count: int) -> jax.Array:
    return jnp.floor(share * jnp.asarray(count, jnp.result_type(float)) + 0.5)


ATTACKS: dict[str, Callable[..., Attack | None]] = {
    "none": none,
    "label_flipping": label_flipping,
    "sign_flipping": sign_flipping,
    "scaling": scaling,
    "inner_product_manipulation": inner_product_manipulation,
    "a_little_is_enough": a_little_is_enough,
    "mimic": mimic,
    "gaussian": gaussian,
    "inf": inf,
    "opt_ipm": opt_ipm,
    "opt_alie": opt_alie,
}
"""Attacks by name. A factory takes what it needs of the task (C, the server's rule), then its own parameters."""
