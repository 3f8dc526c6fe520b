"""The house rules that a reader relies on: imports point one way, algorithms are short and documented."""

import ast
import configparser
import importlib.util
import inspect
import pathlib
import re
import subprocess
import sys

import pytest

from fedeba_jax import ALGORITHMS
from fedeba_jax.hyperparameters import hyperparameters

ROOT = pathlib.Path(__file__).parent.parent
LAYERS = [
    ["examples", "files", "tracing", "types"],
    ["hyperparameters", "tree", "stack", "weights", "solvers", "schedules", "augment", "aggregation", "lies", "trust"],
    ["objectives", "gradients", "batching", "privacy", "local"],
    ["client_map", "ownership", "traffic", "attacks", "cohort", "server", "method", "algorithm"],
    ["algorithms", "evaluate", "metrics", "sampling", "checkpoint"],
    ["rounds"],
]
ASIDE = {"data", "models"}  # makers of the lowest layer's values: they import it alone, and only edges import them
LAYER = {module: depth for depth, layer in enumerate(LAYERS) for module in layer}
PACKAGE = sorted((ROOT / "fedeba_jax").rglob("*.py"))

ROOMS = ["claims", "command", "privacy", "execution", "reporting", "paper"]  # each knows those before
READ = {"experiments.execution.folder"}  # all that reporting knows of execution: it reads folders, never the runner
EXPERIMENTS = sorted((ROOT / "experiments").rglob("*.py"))


def imports(path):
    """Dotted names that a file imports, `from a import b` as a.b."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def module(path, package="fedeba_jax"):
    """The first name below a package: types, algorithms, data ..."""
    return path.relative_to(ROOT / package).with_suffix("").parts[0]


def own_imports(path, package="fedeba_jax"):
    return {name.split(".")[1] for name in imports(path) if name.startswith(f"{package}.")}


def test_every_module_has_a_layer():
    assert {module(path) for path in PACKAGE} == {"__init__", *ASIDE, *LAYER}


@pytest.mark.parametrize("path", PACKAGE, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path):
    name = module(path)
    if name == "__init__":
        return  # the public names come from everywhere
    if name in ASIDE:
        assert own_imports(path) <= {*LAYERS[0], name}
    else:
        above = {other for other in own_imports(path) if LAYER.get(other, len(LAYERS)) > LAYER[name]}
        assert not above, f"{name} must not know of {above}"


def test_modules_of_a_layer_import_each_other_without_cycles():
    assert_no_cycles({name: [path for path in PACKAGE if module(path) == name] for name in LAYER}, own_imports)


def assert_no_cycles(files, names_of):
    """`files` by name, and which names a file imports."""
    graph = {
        name: {n for path in paths for n in names_of(path)} & files.keys() - {name} for name, paths in files.items()
    }
    while graph:
        free = {name for name, needs in graph.items() if not needs & graph.keys()}
        assert free, f"a cycle among {sorted(graph)}"
        graph = {name: needs for name, needs in graph.items() if name not in free}


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_rooms_of_experiments_know_only_those_before_them(path):
    room = module(path, "experiments")
    known = own_imports(path, "experiments")
    assert not {name.split(".")[0] for name in imports(path)} & {"benchmarks", "tests"}
    if room not in ROOMS:  # a binary: it may know every room, but no other binary
        assert known <= set(ROOMS)
        return
    allowed = set(ROOMS[: ROOMS.index(room) + 1])
    if room == "reporting":
        allowed = {"execution", "reporting"}
        of_execution = {name.rpartition(".")[0] for name in imports(path) if name.startswith("experiments.execution")}
        assert of_execution <= READ
    assert known <= allowed, f"{room} must not know of {known - allowed}"


@pytest.mark.parametrize("room", ROOMS)
def test_modules_of_a_room_import_each_other_without_cycles(room):
    folder = ROOT / "experiments" / room
    files = {path.stem: [path] for path in folder.glob("*.py") if path.stem != "__init__"}

    def names_of(path):
        prefix = f"experiments.{room}."
        return {name.removeprefix(prefix).split(".")[0] for name in imports(path) if name.startswith(prefix)}

    assert_no_cycles(files, names_of)


def test_experiments_has_binaries_on_top_and_rooms_below():
    top = {module(path, "experiments") for path in EXPERIMENTS} - {"__init__"}
    binaries = {path.stem for path in (ROOT / "experiments").glob("*.py")} - {"__init__"}
    assert top == {*ROOMS, *binaries}
    for name in binaries:
        assert "__main__" in (ROOT / "experiments" / f"{name}.py").read_text(), f"{name} is no binary"


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
        assert len(text.splitlines()) <= 175, path
        assert code_lines(text) <= 100, path


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
    assert set(parameters[2:]) == set(hyperparameters(factory)), "hyper-parameters are keyword-only"
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


def test_the_installed_package_is_fedeba_jax_alone():
    """`experiments`, `tests` and the like are common names: installed, they would hide those of other projects."""
    if importlib.util.find_spec("setuptools") is None:
        pytest.skip("setuptools is not installed")
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    assert settings["options"]["packages"] == "find:"
    patterns = settings["options.packages.find"]["include"].split()
    # In a process of its own: setuptools cannot be imported once a plugin or another test has imported distutils.
    find = "import sys, setuptools; print(*setuptools.find_packages(sys.argv[1], include=sys.argv[2:]))"
    found = subprocess.run([sys.executable, "-c", find, ROOT, *patterns], capture_output=True, text=True, check=True)
    names = found.stdout.split()
    assert "fedeba_jax" in names
    assert [name for name in names if name.split(".")[0] != "fedeba_jax"] == []
