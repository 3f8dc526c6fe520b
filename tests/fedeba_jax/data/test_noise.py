"""Symmetric label noise: how many, which and to what."""

import numpy as np
import pytest

from fedeba_jax.data.noise import flip_symmetric

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(5, dtype=np.int32), [101, 50, 1, 7, 400]))


@pytest.mark.parametrize(("rate", "flips"), [(0.5, [50, 25, 0, 3, 200]), (0.29, [29, 14, 0, 2, 116]), (1, None)])
def test_each_class_has_its_exact_count_of_flips(rate, flips):
    noisy = flip_symmetric(LABELS, rate=rate, num_classes=5, seed=3)
    wrong = [int((noisy[label == LABELS] != label).sum()) for label in range(5)]
    assert wrong == (flips or [101, 50, 1, 7, 400])  # none lands on the truth, or there would be fewer
    assert noisy.dtype == LABELS.dtype
    assert (noisy.min(), noisy.max()) == (0, 4)


def test_a_flip_goes_to_each_other_class_alike():
    labels = np.full(90_000, 2)
    noisy = flip_symmetric(labels, rate=0.5, num_classes=10, seed=0)
    counts = np.bincount(noisy, minlength=10)
    assert counts[2] == 45_000
    np.testing.assert_allclose(np.delete(counts, 2) / 90_000, 0.5 / 9, rtol=0.06)  # 4 standard deviations


def test_independent_flips_have_the_rate_on_average():
    labels = np.repeat(np.arange(10), 5000)
    noisy = flip_symmetric(labels, rate=0.3, num_classes=10, seed=0, exact_per_class=False)
    wrong = (noisy != labels).reshape(10, -1).sum(axis=1)
    assert len(set(wrong.tolist())) > 1
    np.testing.assert_allclose(wrong.sum() / 50_000, 0.3, atol=0.009)


@pytest.mark.parametrize("exact", [True, False])
def test_rate_0_is_the_identity(exact):
    np.testing.assert_array_equal(
        flip_symmetric(LABELS, rate=0.0, num_classes=5, seed=1, exact_per_class=exact), LABELS
    )


def test_a_draw_belongs_to_its_seed_and_leaves_the_true_labels_alone():
    before = LABELS.copy()
    first, again, other = (flip_symmetric(LABELS, rate=0.5, num_classes=5, seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    np.testing.assert_array_equal(LABELS, before)


def test_only_the_given_rows_are_flipped_and_counted():
    rows = np.flatnonzero(np.arange(len(LABELS)) % 3)
    noisy = flip_symmetric(LABELS, rate=0.5, num_classes=5, seed=1, rows=rows[::-1])
    others = np.setdiff1d(np.arange(len(LABELS)), rows)
    np.testing.assert_array_equal(noisy[others], LABELS[others])
    for label in range(5):
        own = rows[LABELS[rows] == label]
        assert (noisy[own] != label).sum() == len(own) // 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rate": 1.5}, "rate=1.5 is not a share"),
        ({"rate": float("nan")}, "rate=nan is not a share"),
        ({"num_classes": 1}, "num_classes=1 leaves no other label"),
        ({"labels": np.zeros((3, 2), int)}, "give a vector of integers"),
    ],
)
def test_wrong_arguments_are_told(changes, message):
    with pytest.raises(ValueError, match=message):
        flip_symmetric(**({"labels": LABELS, "rate": 0.5, "num_classes": 5, "seed": 0} | changes))
