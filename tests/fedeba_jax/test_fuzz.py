"""Weights of any losses, partitions of any labels: right ones, or an error in one line. The draws are fixed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

from fedeba_jax.algorithms.term import tilted
from fedeba_jax.data import partition
from fedeba_jax.weights import by_examples, entropy_based, solve
from tests.support.fuzzing import fuzz

FEW, MANY = 25, 1000  # examples of each property
SIZE = 5  # of all vectors: one compilation for each rule

PRIOR = np.array([0.0, 0.1, 0.2, 0.3, 0.4], np.float32)
RULES = {
    "entropy_based": lambda losses, number: entropy_based(losses, number),
    "with a prior": lambda losses, number: entropy_based(losses, number, jnp.asarray(PRIOR)),
    "capped": lambda losses, number: entropy_based(jnp.minimum(losses, 2.3), number, cap=0.3),  # as privacy clips them
    "solved": lambda losses, number: entropy_based(losses, solve(number)),
    "solved quantile": lambda losses, number: entropy_based(losses, solve(number, of="quantile")),
    "tilted": tilted,
    "by_examples": lambda counts, number: by_examples(jnp.minimum(counts, 1e9) + number),
}
COMPILED = {name: jax.jit(rule) for name, rule in RULES.items()}
PLAIN = (0.0, 1.0, 1e-45, 1e-30, 1e-7, 2.3, 1e4, 1e10, 1e30, 3e38)
number = st.one_of(st.sampled_from(PLAIN), st.floats(0, 3e38, width=64))
losses = st.one_of(st.lists(number, min_size=SIZE, max_size=SIZE), number.map(lambda one: [one] * SIZE))
broken = st.lists(st.one_of(number, st.sampled_from((np.inf, np.nan))), min_size=SIZE, max_size=SIZE)


def weights_of_losses(name, given_losses, tau):
    """Of finite losses they are never NaN, never negative, and sum to 1."""
    p = np.asarray(COMPILED[name](jnp.asarray(given_losses, jnp.float32), jnp.float32(tau)))
    assert p.shape == (SIZE,)
    if np.isfinite(given_losses).all():
        assert np.isfinite(p).all(), p
        assert (p >= 0).all(), p
        np.testing.assert_allclose(p.sum(), 1, rtol=1e-4)


def a_partition(kind, labels, clients, share, seed, extra):
    """It gives every client something, no example twice; or it is refused."""
    deal = {
        "shards": lambda: partition.label_shards(labels, clients, seed, extra),
        "dirichlet": lambda: partition.dirichlet(
            labels, num_clients=clients, alpha=share, seed=seed, min_size=extra, max_tries=5
        ),
        "iid": lambda: partition.iid(len(labels), num_clients=clients, seed=seed),
        "quantity": lambda: partition.quantity(
            len(labels), num_clients=clients, alpha=share, seed=seed, min_size=extra
        ),
        "natural": lambda: partition.natural(labels, num_clients=clients, of=extra, seed=seed),
        "holdout": lambda: partition.holdout([labels, labels[:extra]], fraction=share, seed=seed)[0],
        "deal_like": lambda: (
            partition.split_by_shards(labels, labels[::2], num_clients=clients, seed=seed, shards_per_client=extra).test
        ),
    }[kind]
    try:
        dealt = deal()
    except ValueError as error:
        refusal = error
        assert type(refusal) is ValueError
        assert str(refusal).splitlines() == [str(refusal)]
        return
    assert dealt.counts.sum() == len(dealt.flat)
    if kind == "holdout":
        return
    assert len(dealt) == clients
    assert len(np.unique(dealt.flat)) == len(dealt.flat)
    assert not len(dealt.flat) or (dealt.flat.min() >= 0 and dealt.flat.max() < len(labels))
    if kind in ("shards", "iid", "quantity", "deal_like") or (kind == "dirichlet" and extra):
        assert dealt.counts.min() >= 1


labels = st.one_of(
    st.lists(st.integers(0, 3), max_size=60).map(lambda y: np.array(y, np.int64)),
    st.integers(0, 60).map(lambda n: np.zeros(n, np.int64)),
    st.integers(0, 9).map(lambda n: np.zeros((n, 2))),
)
odd_share = st.one_of(st.floats(0, 2), st.sampled_from((1e-300, 1e-12, 1e300, np.inf, np.nan, -1.0)))
KINDS = ("shards", "dirichlet", "iid", "quantity", "natural", "holdout", "deal_like")
PROPERTIES = {
    weights_of_losses: st.tuples(
        st.sampled_from(list(RULES)), st.one_of(losses, losses, broken), st.sampled_from((1e-3, 0.1, 1.0, 1.2, 100.0))
    ),
    a_partition: st.tuples(
        st.sampled_from(KINDS), labels, st.integers(-1, 12), odd_share, st.integers(0, 9), st.integers(0, 12)
    ),
}


@pytest.mark.parametrize("check", PROPERTIES, ids=lambda check: check.__name__)
def test_numbers_are_taken_or_refused(check):
    fuzz(check, PROPERTIES[check], FEW)


@pytest.mark.slow
@pytest.mark.parametrize("check", PROPERTIES, ids=lambda check: check.__name__)
def test_many_numbers_are_taken_or_refused(check):
    fuzz(check, PROPERTIES[check], MANY)
