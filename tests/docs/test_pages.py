"""What README and docs say is so: code runs, files and headings exist, tables and lists are up to date."""

import importlib
import inspect
import os
import re
import subprocess
import sys

import jax
import pytest

from docs import generate
from tests.support.pages import PAGES, ROOT, blocks, without_code

WITH_CODE = [page for page in PAGES if blocks(page.read_text(), "python")]
MADE = {"runs", "build", "data", "report"}  # first parts of paths that commands make


def page_id(page):
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", WITH_CODE, ids=page_id)
def test_python_blocks_run(page, capsys):
    """In order, in one namespace; the README's block is examples/quickstart.py, which is run by itself."""
    found = blocks(page.read_text(), "python")
    if page.name == "README.md":
        assert found == [(ROOT / "examples" / "quickstart.py").read_text()]
        return
    namespace = {"__name__": "__main__"}
    for block in found:
        exec(compile(block, page_id(page), "exec"), namespace)


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def anchors(page):
    """What a link may name after #: headings as GitHub and MyST spell them, and targets."""
    text = without_code(page.read_text())
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    slugs = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
    return {*slugs, *re.findall(r"^\((\w+)\)=$", text, re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_relative_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text())):
        if re.match(r"\w+://", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{page_id(page)} links to {link}"
        if anchor:
            assert anchor in anchors(target), f"{page_id(page)} links to {link}, and {target.name} has no such heading"


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_files_in_backticks_exist(page):
    here = (ROOT, page.parent, ROOT / "benchmarks")
    for name in re.findall(r"`([\w.-]+(?:/[\w.-]+)+)`", without_code(page.read_text())):
        if name.split("/")[0] in MADE or "NAME" in name or name.startswith(".venv/"):
            continue
        assert any((folder / name).exists() for folder in here), f"{page_id(page)} names {name}"


def test_generated_parts_are_up_to_date():
    for file in generate.PARTS:
        assert generate.updated(file) == (ROOT / file).read_text(), f"{file}: run .venv/bin/python -m docs.generate"


def listed(mark):
    """The dotted names that begin the items of a list in design.md."""
    text = (ROOT / "docs" / "design.md").read_text()
    part = text.split(f"<!-- {mark} -->")[1].split("<!-- end -->")[0]
    return re.findall(r"^(?:\d+\.|-) `([\w.]+)`", part, re.MULTILINE)


def found(name):
    """What a dotted name means: (module, object)."""
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            module = value = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            value = inspect.getattr_static(value, part)
        return module, value
    raise AssertionError(f"{name} is nowhere")


@pytest.mark.parametrize(("mark", "most", "files"), [("way of tau", 20, 10), ("way of a batch", 35, None)])
def test_the_ways_are_as_short_as_they_should_be(mark, most, files):
    names = listed(mark)
    assert 10 < len(names) == len(set(names)) <= most
    modules = {found(name)[0].__name__ for name in names}
    assert files is None or len(modules) <= files


def test_what_hands_on_runs_is_still_there():
    assert all(found(name) for name in listed("carriers of tau"))


@pytest.mark.slow  # that the listed functions are there, and their number, is above
def test_the_ways_are_those_of_a_run(tmp_path):
    """A run of two rounds calls every function that the two ways list."""
    names = {*listed("way of tau"), *listed("way of a batch"), *listed("carriers of tau")}
    assert names <= called(tmp_path)


def called(out):
    """Dotted names of our functions that `train` calls."""
    kept = {"JAX_COMPILATION_CACHE_DIR": jax.config.jax_compilation_cache_dir}
    done = subprocess.run(
        [sys.executable, "-m", "tests.docs.called", out / "run"],
        cwd=ROOT, env={**os.environ, **kept}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return set((out / "run" / "called.txt").read_text().split())
