"""The architecture: imports point down, no circles, rules and transports know nothing of each other, each library has one home."""

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from support.sources import FILES, PACKAGE, nodes

from partrain.tasks import KINDS

LAYERS = [
    {"byte_layout", "errors", "number_format", "seeds", "version"},
    {"config", "system"},
    {"flat", "record"},
    {"display", "preprocess", "protocols", "tasks"},
    {"comm", "data", "models", "optim", "rules"},
    {"training"},
    {"checkpoint"},
    {"job"},
    {"hooks", "inference", "launch"},
    {"runs"},
    {"bench", "templates", "watch", "workflow"},
    {"report"},
    {"api", "sections"},
    {"cli", "__init__"},
    {"__main__"},
]
"""Folders and root modules from the ground up. A file imports from its own folder and from rows below, lazily and for types too."""

HOMES = {
    "typer": {"cli"},
    "rich": {"display", "watch"},
    "h5py": {"checkpoint", "data"},
    "polars": {"data"},
    "pyarrow": {"data"},
    "fastexcel": {"data"},
    "datasets": {"data"},
    "tomlkit": {"config"},
    "jinja2": {"report"},
    "vl_convert": {"report"},
    "textual": {"watch"},
    "torch.distributed": {"comm", "launch"},
    "torch.multiprocessing": {"comm", "launch"},
    "torchvision": {"models", "data"},
    "tensorboard": {"hooks"},
    "mlflow": {"hooks"},
    "wandb": {"hooks"},
    "prometheus_client": {"hooks"},
    "torchmetrics": {"tasks"},
    "timm": {"models"},
    "sklearn": {"api"},
    "pandas": set(),
    "cloudpickle": {"config"},
    "dp_accounting": {"record"},
}
"""Third-party libraries that only these may import."""

WITHOUT_TORCH = [
    "job.load",
    "job.plan",
    "job.checks",
    "config.toml_source",
    "training.stop",
    "record.event_log",
    "display.display",
    "checkpoint",
    "launch.coordinator",
    "launch.run",
    "report.page",
    "hooks.select",
    "hooks.follow",
    "runs.table",
    "cli.main",
]
"""What answers at once, or lives in a process that trains nothing."""


def name_of(file: Path) -> str:
    """The dotted name of a module; a package's is its folder's."""
    return ".".join(["partrain", *file.relative_to(PACKAGE).with_suffix("").parts]).removesuffix(".__init__")


MODULES = {name_of(file): file for file in FILES}


def unit(module: str) -> str:
    """The folder or root module that a module belongs to."""
    return [*module.split("."), "__init__"][1]


@cache
def imports(file: Path) -> frozenset[str]:
    """Full names of what a file imports, wherever it does so, for types only too."""
    return frozenset(name for node in nodes(file) for name in imported(node))


def imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def needed(file: Path) -> set[str]:
    """Modules of partrain that a file imports."""
    ours = {name for name in imports(file) if name.split(".")[0] == "partrain"}
    return {name if name in MODULES else name.rpartition(".")[0] for name in ours} - {name_of(file)}


def test_every_folder_has_a_layer() -> None:
    assert {unit(module) for module in MODULES} == set().union(*LAYERS)


@pytest.mark.representative
def test_imports_point_down() -> None:
    level = {name: number for number, layer in enumerate(LAYERS) for name in layer}
    up = [
        f"{module} -> {other}"
        for module, file in MODULES.items()
        for other in needed(file)
        if unit(other) != unit(module) and level[unit(other)] >= level[unit(module)]
    ]
    assert up == []


def test_no_circle() -> None:
    TopologicalSorter({module: needed(file) for module, file in MODULES.items()}).prepare()  # raises CycleError, which names them


@pytest.mark.representative
def test_class_names_are_unique() -> None:
    names = Counter(node.name for file in FILES for node in nodes(file) if isinstance(node, ast.ClassDef))
    assert [name for name, count in names.items() if count > 1] == []


def test_a_rule_sees_numbers_and_nothing_else() -> None:
    for module, file in MODULES.items():
        if unit(module) == "rules":
            vocabulary = {"protocols", "flat", "config"}
            assert {unit(other) for other in needed(file)} <= {"rules"} | vocabulary, module


@pytest.mark.representative
def test_a_kind_of_task_is_asked_not_compared() -> None:
    """Only the registry compares the name of a kind. Other modules ask its object."""

    def names(node: ast.AST) -> set[object]:
        parts = [node.left, *node.comparators] if isinstance(node, ast.Compare) else [node]
        return {leaf.value for part in parts for leaf in ast.walk(part) if isinstance(leaf, ast.Constant)}

    compared = [
        f"{module}:{node.lineno}"
        for module, file in MODULES.items()
        for node in nodes(file)
        if isinstance(node, ast.Compare | ast.MatchValue) and names(node) & KINDS.keys()
    ]
    assert compared == []


def test_a_library_has_one_home() -> None:
    for library, homes in HOMES.items():
        users = {
            unit(module) for module, file in MODULES.items() for name in imports(file) if f"{name}.".startswith(f"{library}.")
        }
        assert users <= homes, library


@pytest.mark.representative
def test_torch_is_imported_where_it_computes() -> None:
    """One after the other in one process: the first module that brings torch along is named."""
    program = "import importlib, sys\nfor name in sys.argv[1:]:\n importlib.import_module(name)\n if 'torch' in sys.modules: sys.exit(name)"
    names = [f"partrain.{name}" for name in WITHOUT_TORCH]
    assert subprocess.run([sys.executable, "-c", program, *names], capture_output=True, text=True, check=False).stderr == ""
