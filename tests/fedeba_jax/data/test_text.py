"""Text as sequences: the vocabulary, the pieces and which targets count."""

import numpy as np

from fedeba_jax.data import text


def test_a_vocabulary_goes_by_frequency_then_alphabet():
    words = text.most_frequent(["b", "a", "c", "b", "a", "d", "<PAD>", "<PAD>", "<PAD>"], size=7)
    assert words == {"<PAD>": 0, "<UNK>": 1, "<BOS>": 2, "<EOS>": 3, "a": 4, "b": 5, "c": 6}


def test_a_small_text_has_a_small_vocabulary():
    assert len(text.most_frequent(["one", "two"], size=10_000)) == 6


def test_tokens_outside_the_vocabulary_are_unknown():
    assert text.encode(["a", "z"], text.vocabulary("ab")).tolist() == [4, 1]


def test_a_text_is_cut_into_pieces_that_say_what_follows():
    x, y = text.sequences(list("abcd"), text.vocabulary("abcd"), length=3)
    assert x.tolist() == [[2, 4, 5], [6, 7, 0]]
    assert y.tolist() == [[4, 5, 6], [7, -1, -1]]  # the end of the text and the padding do not count
    assert x.dtype == y.dtype == np.int32


def test_unknown_targets_do_not_count_but_are_read():
    x, y = text.sequences(["a", "?", "a"], text.vocabulary("a"), length=4)
    assert x.tolist() == [[2, 4, 1, 4]]
    assert y.tolist() == [[4, -1, 4, -1]]


def test_a_piece_without_a_target_that_counts_is_left_out():
    x, y = text.sequences(list("abc"), text.vocabulary("abc"), length=3)  # the second piece would only say EOS
    assert x.tolist() == [[2, 4, 5]]
    assert y.tolist() == [[4, 5, 6]]
    assert text.sequences([], text.vocabulary("a"), length=3)[0].shape == (0, 3)
