"""What --dataset and --data name."""

import numpy as np
import pytest

from experiments.command import datasets


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mnist", "mnist"),
        ("synthetic_logistic", "synthetic_logistic"),
        ("synthetic_logistic( 0.5,beta = 1.0 )", "synthetic_logistic(alpha=0.5)"),
        ("synthetic_uniform(clients=7, seed=0)", "synthetic_uniform(clients=7)"),
        ("custom(a folder, with = and (all)/my.npz)", "custom(a folder, with = and (all)/my.npz)"),
    ],
)
def test_a_text_names_a_set_in_one_way(text, expected):
    assert datasets.read(text) == expected
    assert datasets.read(expected) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("minst", "--dataset=minst is not known; choose one of fashion_mnist, mnist, "),
        ("mnist(3)", r"--dataset=mnist\(3\) is not known"),
        ("custom", "--dataset=custom names no file; give --data=FILE.npz, or --data=FOLDER"),
        ("custom()", r"--dataset=custom\(\) names no file"),
        ("synthetic_text(words=3)", r"synthetic_text takes no 'words=3' there; give synthetic_text\(clients=817"),
        ("synthetic_text(clients=many)", "clients=many is not valid for synthetic_text; give clients=817"),
    ],
)
def test_a_text_that_names_none_is_one_clear_line(text, message):
    with pytest.raises(ValueError, match=message):
        datasets.read(text)


def test_sets_are_loaded_by_their_texts(tmp_path):
    path = tmp_path / "my (own), data.npz"
    np.savez(path, x=np.zeros((4, 2)), y=np.arange(4) % 2)
    assert datasets.load(datasets.own(str(path)), None).source == str(path)
    assert len(datasets.load("fashion_mnist_mini", None).y_train) == 10_000
    made = datasets.load("synthetic_uniform(clients=3, seed=4)", str(tmp_path))
    assert "clients=3, examples=30, features=20, tests=5, seed=4" in made.source


def test_which_sets_are_known_to_have_a_test_set_of_labels():
    known = {
        text: datasets.has_test_labels(text)
        for text in ("cifar10", "reddit", "shakespeare_chars", "synthetic_logistic", "custom(a.npz)")
    }
    assert [text for text, has in known.items() if has] == ["cifar10"]
