"""The architecture: imports point down, rules and transports know nothing of each other, each foreign library has one home."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import partrain

LAYERS = [
    {
        "errors",
        "section",
        "seeds",
        "protocols",
        "flat",
        "chain",
        "products",
        "snapshot",
        "view",
        "table",
        "environment",
        "room",
        "compress",
    },
    {
        "topology",
        "data",
        "models",
        "tasks",
        "usercode",
        "optim",
        "stop",
        "workforce",
        "retention",
        "engine",
        "problems",
        "places",
        "overrides",
        "source",
    },
    {"rules", "comm"},
    {"schema", "checks", "wording", "explain", "job", "plan"},
    {"batches", "backward", "worker", "buffers", "state", "loop", "checkpoint", "record"},
    {"launch", "bench", "console", "outlet", "epilogue", "evaluation", "opening", "options", "after", "data_commands"},
    {"cli", "api", "streams", "__main__", "__init__"},
]
"""From the ground up. A module imports from its own layer or from those below."""

HOMES = {
    "typer": {"cli", "options", "after", "data_commands"},
    "rich": {"console"},
    "h5py": {"checkpoint", "data"},
    "polars": {"data"},
    "pyarrow": {"data"},
    "tomlkit": {"source", "overrides"},
    "torch.distributed": {"comm", "launch"},
    "torch.multiprocessing": {"comm", "launch"},
    "torchvision": {"models"},
}
"""Foreign libraries that only these may import."""

WITHOUT_TORCH = [
    "job",
    "plan",
    "checks",
    "source",
    "stop",
    "record",
    "console",
    "checkpoint",
    "launch.coordinator",
    "launch.run",
    "cli",
]
"""What answers at once, or lives in a process that trains nothing."""

ROOT = Path(partrain.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))


def unit(file: Path) -> str:
    """The top-level module or package that a file belongs to."""
    return file.relative_to(ROOT).parts[0].removesuffix(".py")


@cache
def imports(file: Path) -> frozenset[tuple[str, bool]]:
    """Full names of what a file imports, wherever it does so; and whether for types only."""
    tree = ast.parse(file.read_text())
    typing = [node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    for_types = {node for block in typing for node in ast.walk(block)}
    return frozenset((name, node in for_types) for node in ast.walk(tree) for name in imported(node))


def imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def own(file: Path, types: bool = True) -> set[str]:
    """Units of partrain that a file imports from, its own left out."""
    ours = {name.split(".")[1] for name, for_types in imports(file) if name.startswith("partrain.") and (types or not for_types)}
    return (ours & {unit(other) for other in FILES}) - {unit(file)}


every_file = pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))


def test_every_module_has_a_layer() -> None:
    assert {unit(file) for file in FILES} == set().union(*LAYERS)


@every_file
def test_imports_point_down(file: Path) -> None:
    level = {name: number for number, layer in enumerate(LAYERS) for name in layer}
    assert [name for name in own(file) if level[name] > level.get(unit(file), 0)] == []


def test_no_two_units_need_each_other() -> None:
    graph: dict[str, set[str]] = {}
    for file in FILES:
        graph.setdefault(unit(file), set()).update(own(file, types=False))
    TopologicalSorter(graph).prepare()  # raises CycleError, which names them


@pytest.mark.parametrize(("one", "other"), [("rules", "comm"), ("comm", "rules")])
def test_rules_and_transports_know_nothing_of_each_other(one: str, other: str) -> None:
    assert [file for file in FILES if unit(file) == one and other in own(file)] == []


@pytest.mark.parametrize("file", [file for file in FILES if unit(file) == "rules"], ids=lambda file: file.name)
def test_a_rule_sees_numbers_and_nothing_else(file: Path) -> None:
    choosing = {"section"} if file.name == "__init__.py" else set()
    assert own(file) <= {"protocols", "topology", "compress"} | choosing


@pytest.mark.parametrize("library", HOMES)
def test_a_foreign_library_has_one_home(library: str) -> None:
    users = {unit(file) for file in FILES for name, _ in imports(file) if f"{name}.".startswith(f"{library}.")}
    assert users <= HOMES[library]


def test_torch_stays_where_nobody_asked_for_it() -> None:
    """One after the other in one process: the first that brings torch along is named."""
    program = "import importlib, sys\nfor name in sys.argv[1:]:\n importlib.import_module(name)\n if 'torch' in sys.modules: sys.exit(name)"
    names = [f"partrain.{name}" for name in WITHOUT_TORCH]
    assert subprocess.run([sys.executable, "-c", program, *names], capture_output=True, text=True, check=False).stderr == ""
