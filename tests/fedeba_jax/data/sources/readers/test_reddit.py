"""LEAF's json: users are clients, the vocabulary is from the training comments, special targets do not count."""

import copy
import json

import numpy as np
import pytest

from fedeba_jax.data import sources
from fedeba_jax.data.sources.raw import DataError
from tests.support.tiny_set import same


def pad(tokens, length=10):
    """Sequences of 10, as LEAF cuts them."""
    tokens = tokens + ["<PAD>"] * (-len(tokens) % length)
    return [tokens[i : i + length] for i in range(0, len(tokens), length)]


def comment(words):
    words = words.split()
    return pad(["<BOS>", *words, "<EOS>"]), pad([*words, "<EOS>", "<PAD>"])


def leaf(users, record=True):
    """A file with the comments of users; targets in records, or plain."""
    data = {}
    for user, comments in users.items():
        pairs = [comment(words) for words in comments]
        y = [{"target_tokens": y, "count_tokens": [], "author": user} if record else y for _, y in pairs]
        data[user] = {"x": [x for x, _ in pairs], "y": y}
    return {"users": list(users), "num_samples": [99] * len(users), "user_data": data}  # as wrong as the real ones


TRAIN = {"zoe": ["b a b", "one two three four five six seven eight nine ten b"], "al": ["a c"]}
TEST = {"al": ["a unheard b"], "zoe": ["c c"]}


def write(folder, train, test):
    """One file for each part: a dictionary is written as json, bytes as they are."""
    for name, content in (("train", train), ("test", test)):
        (folder / "reddit" / name).mkdir(parents=True)
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        (folder / "reddit" / name / f"some_{name}.json").write_bytes(data)


def test_comments_become_sequences_of_clients(tmp_path):
    write(tmp_path, leaf(TRAIN), leaf(TEST))
    got = sources.load("reddit", tmp_path)
    assert got.client_names == ("zoe", "al")
    assert got.client_train.tolist() == [0, 0, 0, 1]
    assert got.client_test.tolist() == [0, 1]
    assert got.num_classes == 4 + 13
    a, b, c = 5, 4, 6  # b stands three times, a twice, the others once: then by alphabet
    assert got.x_train[0].tolist() == [2, b, a, b, 3, 0, 0, 0, 0, 0]
    assert got.y_train[0].tolist() == [b, a, b, -1, -1, -1, -1, -1, -1, -1]
    assert got.x_test[1].tolist() == [2, a, 1, b, 3, 0, 0, 0, 0, 0]
    assert got.y_test[1].tolist() == [a, -1, b, -1, -1, -1, -1, -1, -1, -1]
    assert got.x_test[0].tolist()[:4] == [2, c, c, 3]
    assert got.x_train.dtype == got.y_train.dtype == got.client_train.dtype == np.int32


def test_every_layout_and_the_cache_give_the_same(tmp_path):
    write(tmp_path / "one", leaf(TRAIN), leaf(TEST))
    for place in ("plain", "archive"):
        folder = tmp_path / place / "reddit" / ("new_small_data" if place == "archive" else "")
        folder.mkdir(parents=True)
        for name, users in (("train", TRAIN), ("test", TEST), ("val", {"other": ["x"]})):
            (folder / f"{name}_data.json").write_text(json.dumps(leaf(users, record=place == "plain")))
    folder = tmp_path / "many" / "reddit"
    for name, users in (("train", TRAIN), ("test", TEST)):
        (folder / name).mkdir(parents=True)
        for number, user in enumerate(TRAIN):
            (folder / name / f"{number}.json").write_text(json.dumps(leaf({user: users[user]})))
    first = sources.load("reddit", tmp_path / "one")
    for place in ("plain", "archive", "many", "one"):
        got = sources.load("reddit", tmp_path / place)
        assert same(first, got)
        assert np.array_equal(first.client_train, got.client_train)
        assert (first.client_names, first.num_classes, first.md5) == (got.client_names, got.num_classes, got.md5)


def test_the_vocabulary_has_at_most_ten_thousand_tokens(tmp_path):
    words = " ".join(f"w{i:05}" for i in range(10_050))
    write(tmp_path, leaf({"al": [words]}), leaf({"al": ["w00000 w10049"]}))
    got = sources.load("reddit", tmp_path)
    assert got.num_classes == 10_000
    assert got.x_test[0].tolist()[:4] == [2, 4, 1, 3]  # the last by alphabet are unknown


# Bad data.


def changed(change):
    content = copy.deepcopy(leaf(TRAIN))
    change(content)
    return content


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (json.dumps(leaf(TRAIN)).encode()[:-9], "some_train.json: truncated or not LEAF's json"),
        (b"", "truncated or not LEAF's json"),
        ([], "truncated or not LEAF's json"),
        (b"\xff\xfe\x00", "truncated or not LEAF's json"),
        ({"users": ["al"]}, "truncated or not LEAF's json .*user_data"),
        (leaf({}), "some_train.json: no users"),
        (leaf({**TRAIN, "eve": []}), "some_train.json: user 'eve' has no comments"),
        (leaf({"zoe": ["a"]}), "some_test.json: user 'al' is only in the test files"),
        (leaf({**TRAIN, "eve": ["a"]}), "some_train.json: user 'eve' is only in the train files"),
        (changed(lambda c: c["users"].remove("al")), r"`users` and `user_data` do not name the same users \('al'\)"),
        (changed(lambda c: c["users"].append("al")), "do not name the same users"),
        (changed(lambda c: c["user_data"]["al"]["y"].pop()), "user 'al' has 1 sequences in x and 0 in y"),
        (changed(lambda c: c["user_data"]["al"]["x"][0][0].pop()), "user 'al' has no lists of 10 tokens"),
        (changed(lambda c: c["user_data"]["al"]["x"][0].append([7] * 10)), r"'al' has no lists of 10 tokens .*\[7, 7"),
        (changed(lambda c: c["user_data"]["al"].pop("x")), "user 'al' has no lists of 10 tokens"),
        (changed(lambda c: c["user_data"].update(al=None)), "user 'al' has no lists of 10 tokens"),
    ],
)
def test_a_broken_file_is_named(tmp_path, train, message):
    write(tmp_path, train, leaf(TEST))
    with pytest.raises(DataError, match=message) as error:
        sources.load("reddit", tmp_path)
    assert "and put LEAF's json files" in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "reddit" / "cache").exists()


def test_a_user_in_two_files_is_refused(tmp_path):
    write(tmp_path, leaf(TRAIN), leaf(TEST))
    (tmp_path / "reddit" / "train" / "z.json").write_text(json.dumps(leaf({"al": ["again"]})))
    with pytest.raises(DataError, match=r"z\.json: user 'al' is also in .*some_train\.json"):
        sources.load("reddit", tmp_path)


def test_half_a_set_is_named(tmp_path):
    write(tmp_path, leaf(TRAIN), leaf(TEST))
    (tmp_path / "reddit" / "test" / "some_test.json").unlink()
    with pytest.raises(DataError, match=r"reddit: has no test/\*\.json or test_data\.json beside the other files"):
        sources.load("reddit", tmp_path)
