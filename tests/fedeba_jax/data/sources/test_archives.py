"""Files of folders and archives: the wanted ones, whole, and nothing from outside."""

import io
import tarfile
import zipfile

import pytest

from fedeba_jax.data.sources.archives import contents
from fedeba_jax.data.sources.raw import DataError

FILES = {"a/one.txt": b"1", "a/b/two.txt": b"22" * 2000, "a/three.bin": b"333"}


def make(tmp_path, kind, files=FILES, **link):
    if kind == "folder":
        for name, data in files.items():
            (tmp_path / "folder" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "folder" / name).write_bytes(data)
        return tmp_path / "folder"
    path = tmp_path / f"archive.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in files.items():
                archive.writestr(name, data)
            for name, target in link.items():
                info = zipfile.ZipInfo(name)
                info.external_attr = 0o120777 << 16
                archive.writestr(info, target)
        return path
    with tarfile.open(path, f"w:{kind.rpartition('.')[2]}") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        for name, target in link.items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            tar.addfile(member)
    return path


@pytest.mark.parametrize("kind", ["folder", "zip", "tar.gz", "tar.xz"])
def test_the_wanted_files_are_given(tmp_path, kind):
    got = dict(contents(make(tmp_path, kind), lambda name: name.endswith(".txt")))
    assert got == {"a/one.txt": b"1", "a/b/two.txt": b"22" * 2000}


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
@pytest.mark.parametrize("name", ["../out", "a/../../out", "/etc/out", "..\\out"])
def test_a_path_that_leads_out_is_refused(tmp_path, kind, name):
    archive = make(tmp_path, kind, {**FILES, name: b"x"})
    with pytest.raises(DataError, match=rf"archive\.{kind}: holds a path that leads out of it") as error:
        list(contents(archive, lambda name: True))
    assert "take the official archive" in str(error.value)
    assert not (tmp_path.parent / "out").exists()


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_a_link_is_refused(tmp_path, kind):
    archive = make(tmp_path, kind, link="/etc/passwd")
    with pytest.raises(DataError, match=r"holds a link, 'link'"):
        list(contents(archive, lambda name: True))


@pytest.mark.parametrize("kind", ["zip", "tar.gz", "tar.xz"])
@pytest.mark.parametrize("size", [0, 20, 150])
def test_a_truncated_archive_is_named(tmp_path, kind, size):
    archive = make(tmp_path, kind)
    archive.write_bytes(archive.read_bytes()[:size])
    with pytest.raises(DataError, match=rf"archive\.{kind}: truncated or not an archive") as error:
        list(contents(archive, lambda name: True))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
@pytest.mark.parametrize("most", [3999, 4002], ids=["one file", "all together"])
def test_what_unpacks_to_too_much_is_refused(tmp_path, monkeypatch, kind, most):
    monkeypatch.setattr("fedeba_jax.data.sources.archives.MOST", most)
    with pytest.raises(DataError, match=r"archive\.\S+: unpacks to more than \S+ GiB at 'a/"):
        list(contents(make(tmp_path, kind), lambda name: True))
    monkeypatch.setattr("fedeba_jax.data.sources.archives.MOST", 4004)
    assert len(list(contents(make(tmp_path, kind), lambda name: True))) == 3
