"""Synthetic federations: the laws that they follow, and that they follow from their arguments."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedeba_jax
from fedeba_jax.data import synthetic
from fedeba_jax.data.dealing import Dealing
from fedeba_jax.data.sources import Dataset
from fedeba_jax.data.synthetic import SYNTHETIC, many
from fedeba_jax.data.text import BOS_ID
from fedeba_jax.objectives import masked_mean

SMALL = {
    synthetic.logistic: {"clients": 4},
    synthetic.linear: {"clients": 4},
    synthetic.text: {"clients": 4, "vocabulary": 50},
    synthetic.uniform: {"clients": 4},
}


@pytest.mark.parametrize("make", SMALL, ids=lambda make: make.__name__)
def test_a_set_follows_from_its_arguments(make):
    data, again, other = make(**SMALL[make]), make(**SMALL[make]), make(**SMALL[make], seed=1)
    assert isinstance(data, Dataset)
    assert data.md5 == again.md5
    assert data.md5["x_train"] != other.md5["x_train"]
    assert data.name.startswith("synthetic_")
    assert data.source.startswith(f"generated: {data.name}(")
    assert "seed=0)" in data.source


@pytest.mark.parametrize("make", SMALL, ids=lambda make: make.__name__)
def test_every_client_has_something_to_train_and_to_be_tested_on(make):
    data = make(**SMALL[make])
    dealing = Dealing(clients=0, partition="natural", test_split="auto")
    own = dealing.split(data, seed=0)
    assert len(own.train) == len(own.test) == 4
    assert min(own.train.counts.min(), own.test.counts.min()) >= 1
    if len(data.y_test):
        assert dealing.settled(data).test_split == "natural"
        assert len(data.x_test) == len(data.y_test) == len(data.client_test)
    assert len(data.x_train) == len(data.y_train) == len(data.client_train)


def test_names_by_which_binaries_take_them():
    assert all(name.startswith("synthetic_") for name in SYNTHETIC)
    assert {make(**SMALL[make]).name for make in SYNTHETIC.values()} == set(SYNTHETIC)


# Classifiers.


def test_logistic_has_the_sizes_and_shapes_of_fedprox():
    data = synthetic.logistic(clients=200)
    counts = np.bincount(data.client_train)
    assert counts.min() >= 50
    assert 90 < np.median(counts) < 125  # 50 + exp(4) = 105
    assert counts.max() > 1000
    assert data.x_train.shape[1:] == (60,)
    assert data.num_classes == 10


def test_logistic_inputs_vary_less_from_feature_to_feature():
    data = synthetic.logistic(clients=20)
    rich = np.bincount(data.client_train).argmax()
    deviation = data.x_train[data.client_train == rich].std(axis=0)
    np.testing.assert_allclose(deviation, np.arange(1, 61) ** -0.6, rtol=0.2)


def test_beta_sets_how_much_inputs_differ():
    def between(beta):
        data = synthetic.logistic(clients=40, beta=beta)
        return np.std([data.x_train[data.client_train == k].mean() for k in range(40)])

    assert between(0.0) < 0.3  # a mean of 60 draws of N(0, 1): 0.13
    assert between(2.0) > 1.0


def test_classifiers_differ_and_alpha_changes_no_label():
    """u_k is added to the scores of all labels alike; published results name alpha, so it is kept."""
    sets = [synthetic.logistic(clients=10, beta=0.0, alpha=alpha) for alpha in (0.0, 3.0)]
    np.testing.assert_array_equal(sets[0].y_train, sets[1].y_train)
    shares = [np.bincount(sets[0].y_train[sets[0].client_train == k], minlength=10).argmax() for k in range(10)]
    assert len(set(shares)) > 2


# Regression.


def test_linear_clients_have_the_solutions_that_the_theorem_assumes():
    data = synthetic.linear(clients=3, examples=20, features=4, scale=2.0, noise=0.0)
    for k in range(3):
        x, y = (array[data.client_train == k].astype(np.float64) for array in (data.x_train, data.y_train))
        np.testing.assert_allclose(x.T @ x, 20 * 2.0 * np.eye(4), atol=1e-4)
        solution = x.T @ y / (20 * 2.0)
        np.testing.assert_allclose(x @ solution, y, atol=1e-5)
        np.testing.assert_allclose(solution, np.linalg.lstsq(x, y)[0], atol=1e-5)


def test_linear_test_data_has_the_same_inputs_and_fresh_noise():
    data = synthetic.linear(clients=50, noise=0.5)
    np.testing.assert_array_equal(data.x_train, data.x_test)
    np.testing.assert_allclose((data.y_train - data.y_test).std(), 0.5 * np.sqrt(2), rtol=0.05)


def test_fedavg_finds_the_mean_of_linear_solutions():
    """One full-batch step from zero at rate 1 / scale solves each client's problem, whose mean is the optimum."""
    data = synthetic.linear(clients=4, examples=8, features=2)

    def squared_error(params, batch, key, round_, train):
        errors = batch.x @ params - batch.y
        return masked_mean(errors**2 / 2, batch.mask)

    train = fedeba_jax.federate(data.x_train, data.y_train, [np.flatnonzero(data.client_train == k) for k in range(4)])
    local = fedeba_jax.LocalTraining(squared_error, learning_rate=1.0, steps=1, batch_size=None)
    algorithm = fedeba_jax.fedavg(local, fedeba_jax.descent(optax.sgd(1.0)))

    def init(key):
        return jnp.zeros(2)

    sizes = fedeba_jax.sizes_of(train, init, cohort_size=4)

    @jax.jit
    def one_round(train):
        state = fedeba_jax.start(algorithm, init, jax.random.key(0), sizes=sizes)
        state, _ = fedeba_jax.run_rounds(
            algorithm, train, state, jax.random.key(1), 0, rounds=1, sizes=sizes, client_map=jax.vmap
        )
        return algorithm.models(state)["global"]

    solutions = [data.x_train[own].T @ data.y_train[own] / 8 for own in np.arange(32).reshape(4, 8)]
    np.testing.assert_allclose(one_round(train), np.mean(solutions, axis=0), atol=1e-5)


# Text.


def test_text_has_the_users_and_shapes_of_reddit():
    data = synthetic.text(vocabulary=100)
    assert len(np.unique(data.client_train)) == len(np.unique(data.client_test)) == 817
    assert data.x_train.shape[1] == data.y_train.shape[1] == 10
    assert data.x_train.dtype == data.y_train.dtype == np.int32
    np.testing.assert_array_equal(data.x_train[:, 0], BOS_ID)
    np.testing.assert_array_equal(data.x_train[:, 1:], data.y_train[:, :-1])
    assert data.y_train.min() >= 4
    assert data.y_train.max() < data.num_classes == 100


def test_text_words_follow_zipfs_law():
    data = synthetic.text(clients=50, vocabulary=104)
    first = np.bincount(data.y_train[:, 0] - 4, minlength=100) / len(data.y_train)
    expected = (1 / np.arange(1, 101)) / (1 / np.arange(1, 101)).sum()
    np.testing.assert_allclose(first[:4], expected[:4], atol=0.03)


def test_text_habits_are_a_users_own_or_everybodys():
    def successors(own):
        """The most frequent word after the most frequent one, by user."""
        data = synthetic.text(clients=12, vocabulary=40, own=own)
        found = []
        for user in range(12):
            x, y = data.x_train[data.client_train == user], data.y_train[data.client_train == user]
            found.append(np.bincount(y[x == 4]).argmax())
        return len(set(found))

    assert successors(0.0) <= 2 < successors(1.0)


# Very many clients.


def test_uniform_clients_are_the_same_however_many_there_are():
    few, more = synthetic.uniform(clients=3), synthetic.uniform(clients=5)
    np.testing.assert_array_equal(few.x_train, more.x_train[:90])
    np.testing.assert_array_equal(few.y_test, more.y_test[:15])
    assert more.x_train.shape == (150, 20)
    assert np.bincount(more.client_train).tolist() == [30] * 5
    assert np.bincount(more.client_test).tolist() == [5] * 5


def test_a_large_uniform_set_is_made_as_files_once(tmp_path, monkeypatch):
    monkeypatch.setattr(many, "CHUNK", 4)
    arguments = {"clients": 10, "examples": 3, "features": 2, "tests": 2}
    whole = synthetic.uniform(**arguments)
    monkeypatch.setattr(many, "IN_MEMORY", 0)
    files = synthetic.uniform(**arguments, data_dir=tmp_path)
    assert files.md5 == whole.md5
    assert isinstance(files.x_train, np.memmap)
    for name in whole.md5:
        np.testing.assert_array_equal(getattr(files, name), getattr(whole, name))
    monkeypatch.setattr(many, "_parts", lambda **_: pytest.fail("made twice"))
    assert synthetic.uniform(**arguments, data_dir=tmp_path).md5 == whole.md5


def test_a_uniform_set_that_was_not_finished_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setattr(many, "IN_MEMORY", 0)

    def broken(**_):
        yield {"x_train": np.zeros((1, 2), np.float32)}
        raise OSError("disk full")

    monkeypatch.setattr(many, "_parts", broken)
    with pytest.raises(OSError, match="disk full"):
        synthetic.uniform(clients=2, data_dir=tmp_path)
    assert list((tmp_path / "synthetic_uniform").iterdir()) == []


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (synthetic.logistic, {"alpha": -1.0}, "alpha=-1.0 is less than 0; raise alpha"),
        (synthetic.logistic, {"clients": 0}, "clients=0 is less than 1"),
        (synthetic.linear, {"examples": 4}, "examples=4 is less than 5"),
        (synthetic.text, {"own": 1.5}, r"own=1.5 is not a share; give a number in \[0, 1\]"),
        (synthetic.text, {"vocabulary": 5}, "vocabulary=5 is less than 6"),
        (synthetic.uniform, {"tests": 0}, "tests=0 is less than 1"),
    ],
)
def test_a_wrong_argument_is_one_clear_line(make, arguments, message):
    with pytest.raises(ValueError, match=message):
        make(**arguments)
