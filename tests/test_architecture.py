"""The house rules that a reader relies on: imports point one way, algorithms are short and documented."""

import ast
import inspect
import pathlib
import re
import subprocess

import pytest

from fedeba_jax import ALGORITHMS
from fedeba_jax.hyperparameters import hyperparameters

ROOT = pathlib.Path(__file__).parent.parent
LAYERS = [
    ["examples", "types"],
    ["tree", "weights", "solvers", "schedules", "augment"],
    ["objectives", "gradients", "privacy"],
    ["local", "server", "client_map", "cohort"],
    ["algorithms", "evaluate", "metrics"],
    ["simulate"],
]
ASIDE = {"data", "models"}  # makers of the lowest layer's values: they import it alone, and only edges import them
LAYER = {module: depth for depth, layer in enumerate(LAYERS) for module in layer}
PACKAGE = sorted((ROOT / "fedeba_jax").rglob("*.py"))


def imports(path):
    """Dotted names that a file imports, `from a import b` as a.b."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def module(path):
    """The first name below fedeba_jax: types, algorithms, data ..."""
    return path.relative_to(ROOT / "fedeba_jax").with_suffix("").parts[0]


def own_imports(path):
    return {name.split(".")[1] for name in imports(path) if name.startswith("fedeba_jax.")}


def test_every_module_has_a_layer():
    assert {module(path) for path in PACKAGE} == {"__init__", *ASIDE, *LAYER}


@pytest.mark.parametrize("path", PACKAGE, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path):
    name = module(path)
    if name == "__init__":
        assert not own_imports(path) & ASIDE
    elif name in ASIDE:
        assert own_imports(path) <= {*LAYERS[0], name}
    else:
        above = {other for other in own_imports(path) if LAYER.get(other, len(LAYERS)) > LAYER[name]}
        assert not above, f"{name} must not know of {above}"


def test_modules_of_a_layer_import_each_other_without_cycles():
    graph = {name: set() for name in LAYER}
    for path in PACKAGE:
        if module(path) in graph:
            graph[module(path)] |= own_imports(path) & graph.keys() - {module(path)}
    while graph:
        free = {name for name, needs in graph.items() if not needs & graph.keys()}
        assert free, f"a cycle among {sorted(graph)}"
        graph = {name: needs for name, needs in graph.items() if name not in free}


def test_the_package_knows_nothing_of_flags_experiments_benchmarks_or_tests():
    for path in PACKAGE:
        tops = {name.split(".")[0] for name in imports(path)}
        assert not tops & {"absl", "experiments", "benchmarks", "tests", "torch", "matplotlib", "rich"}, path


def test_only_models_know_flax():
    users = {module(path) for path in PACKAGE if "flax" in {name.split(".")[0] for name in imports(path)}}
    assert users == {"models"}


def test_algorithm_files_are_short():
    for path in (ROOT / "fedeba_jax" / "algorithms").glob("*.py"):
        text = path.read_text()
        assert len(text.splitlines()) <= 130, path
        assert code_lines(text) <= 65, path


def code_lines(text):
    """Lines with code on them: no blank ones, comments or docstrings."""
    lines = {number for number, line in enumerate(text.splitlines(), 1) if line.strip() and line.strip()[0] != "#"}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, node.end_lineno + 1))
    return len(lines)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_factory_explains_each_of_its_arguments(name):
    factory = ALGORITHMS[name]
    assert factory.__name__ == name
    parameters = list(inspect.signature(factory).parameters)
    assert parameters[:2] == ["local", "server"]
    assert set(parameters[2:]) - {"privacy"} == set(hyperparameters(factory)), "hyper-parameters are keyword-only"
    arguments = inspect.getdoc(factory).split("Args:\n")[1].split("\n\n")[0]
    assert re.findall(r"^  (\w+):", arguments, re.MULTILINE) == parameters


def test_no_file_names_a_machine_or_a_neighbour():
    """Paths below a home or working folder, sibling folders, and hosts of package registries."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    forbidden = re.compile(
        rb"/(?:work|home|Users|root)/\w|\.\./" + b"shared" + rb"|\b(?:pypi|npm|files|registry)\.[\w.]*(?:org|io|com)\b"
    )
    found = {}
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path.is_file() and (match := forbidden.search(path.read_bytes())):
            found[name] = match.group()
    assert not found
