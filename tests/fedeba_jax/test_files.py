"""Files that are replaced whole or not at all."""

import pytest

from fedeba_jax.files import replacing


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_reader_sees_the_old_file_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    with replacing(path) as file:
        file.write(b"new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("fault", [OSError("no space"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, fault):
    path = tmp_path / "a"
    path.write_text("old")

    def fail():
        with replacing(path) as file:
            file.write(b"half")
            raise fault

    with pytest.raises(type(fault)):
        fail()
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a"]


def test_two_writers_may_write_beside_each_other(tmp_path):
    path = tmp_path / "a"
    with replacing(path) as one, replacing(path, tmp_path / "other") as other:
        one.write(b"one")
        other.write(b"other")
    assert path.read_text() == "one"
    assert names(tmp_path) == ["a"]
