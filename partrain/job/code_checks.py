"""Checks of user code without running it: files are parsed, packages are located."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from partrain.config.problems import FileFinding, Finding, KeyPath, did_you_mean, similar_file
from partrain.config.python_objects import PYTHON, absent, current
from partrain.config.usercode import Parameters, UserCode, unfit_arguments
from partrain.data.base import StreamForm
from partrain.tasks import BuiltinTask

WITHOUT_ARGUMENTS = ("Module", "Task", "Dataset", "IterableDataset")
"""Classes of torch and partrain whose `__init__` takes no arguments."""


def stream_in(tables: Mapping[str, Any], folder: Path) -> StreamForm | None:
    """Describe the stream of a class next to the job, as far as its source shows without running it; None if it has none."""
    section = tables.get("dataset")
    place, _, attribute = section.name.partition(":") if isinstance(section, UserCode) else ("", "", "")
    path = folder / place
    if not place.endswith(".py") or not path.resolve().is_relative_to(folder.resolve()) or not path.is_file():
        return None
    try:
        node = (_top_level(ast.parse(path.read_bytes(), str(path))) or {}).get(attribute)
    except (SyntaxError, ValueError):
        return None
    if not isinstance(node, ast.ClassDef) or node.bases or node.decorator_list:
        return None
    methods = {function.name for function in node.body if isinstance(function, ast.FunctionDef)}
    return StreamForm("length" in methods) if "stream" in methods and "__getitem__" not in methods else None


def check_code(tables: Mapping[str, Any], folder: Path) -> Iterator[Finding]:
    """Check that user code exists, parses, and takes its arguments."""
    for table in ("model", "dataset", "task"):
        section = tables.get(table)
        if isinstance(section, UserCode) and section.name == PYTHON:
            if table not in current().pickled:
                yield Finding((table, "name"), absent(table).message)
        elif isinstance(section, UserCode):
            yield from _check_named(table, section, folder, (table, "name"))
    hooks, task = tables.get("hooks"), tables.get("task")
    if hooks and hooks.after_judgement == PYTHON:
        if "hooks" not in current().pickled:
            yield Finding(("hooks", "after_judgement"), absent("hooks").message)
    elif hooks and hooks.code:
        yield from _check_named("hooks", hooks.code, folder, ("hooks", "after_judgement"))
    for index, name in enumerate((task and task.metrics) or ()):
        if ":" in name:
            yield from _check_named("metrics", UserCode(name=name), folder, ("task", "metrics", index))


def _check_named(table: str, section: UserCode, folder: Path, key: KeyPath) -> Iterator[Finding]:
    """Check the code that a key names."""
    place, _, attribute = section.name.partition(":")
    top, path = place.partition(".")[0], folder / place
    if not place.endswith(".py"):
        with suppress(ImportError, ValueError):  # a module without a spec was made by hand
            if top != "__main__" and find_spec(top) is None:
                message = f"no module `{top}` in this Python environment"
                yield Finding(key, message, 'install it there, or name a file next to the job: "file.py:..."')
        return
    if not path.resolve().is_relative_to(folder.resolve()):
        yield Finding(key, f"`{place}` is outside the job's folder")
        return
    if not path.is_file():
        near = similar_file(place, [file.name for file in folder.glob("*.py")])
        yield FileFinding(key, f"no file `{place}` next to the job", f"did you mean `{near}`?" if near else "")
        return
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        yield Finding(key, f"{place}:{line}: {getattr(error, 'msg', error)}")
        return
    names = _top_level(tree)
    first = attribute.partition(".")[0]
    if names is not None and first not in names:
        near = did_you_mean(first, sorted(names))
        kept = sorted(name for name, node in names.items() if isinstance(node, ast.ClassDef | ast.FunctionDef))
        advice = f"did you mean `{near}`?" if near else f"it has {', '.join(kept[:8])}" if kept else ""
        yield Finding(key, f"`{place}` has no `{first}`", advice)
    elif names is not None and "." not in attribute and table not in ("hooks", "metrics"):  # which take no keys of the job
        yield from _check_arguments(table, section, names[first], names)


def _top_level(tree: ast.Module) -> dict[str, ast.AST] | None:
    """Return the names that a module defines at its top level, with their nodes; None if names may come from elsewhere."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Global) or (isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names)):
            return None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("exec", "globals", "setattr"):
            return None
        if isinstance(node, ast.FunctionDef) and node.name == "__getattr__":
            return None
    return dict(_bound(tree))


def _bound(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield the names that a block binds, including branches of `if` and `try`, but not the inside of functions and classes."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield child.name, child
        elif isinstance(child, ast.Import | ast.ImportFrom):
            yield from (((alias.asname or alias.name).partition(".")[0], child) for alias in child.names)
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            yield child.id, child
        elif not isinstance(child, ast.Lambda):
            yield from _bound(child)


def _constructor(node: ast.ClassDef, names: Mapping[str, ast.AST], depth: int = 8) -> ast.arguments | None:
    """Return the parameters of a class's `__init__`, its own or a base's in the same file; None if they are unknown.

    A class without `__init__`, whose bases are known to take no arguments, takes none.
    """
    own = [
        function for function in node.body if isinstance(function, ast.FunctionDef) and function.name in ("__init__", "__new__")
    ]
    if own or node.decorator_list or node.keywords or not depth:
        fits = len(own) == 1 and own[0].name == "__init__" and not node.decorator_list and not node.keywords
        return own[0].args if fits else None
    for base in node.bases:
        if isinstance(base, ast.Name) and isinstance(parent := names.get(base.id), ast.ClassDef):
            return _constructor(parent, names, depth - 1) if len(node.bases) == 1 else None
        if not _takes_nothing(base, names):
            return None
    return ast.arguments(posonlyargs=[], args=[ast.arg("self")], kwonlyargs=[], kw_defaults=[], defaults=[])


def _takes_nothing(base: ast.expr, names: Mapping[str, ast.AST]) -> bool:
    """Return whether a base class is known to take no arguments: `object`, or one of WITHOUT_ARGUMENTS by import."""
    if isinstance(base, ast.Name) and base.id == "object":
        return base.id not in names
    first, _, rest = ast.unparse(base).partition(".")
    origin = names.get(first)
    aliases = [alias for alias in getattr(origin, "names", ()) if (alias.asname or alias.name).partition(".")[0] == first]
    modules = [origin.module] if isinstance(origin, ast.ImportFrom) else [alias.name for alias in aliases]
    package = next(iter(modules), None) or ""
    return package.partition(".")[0] in ("torch", "partrain") and (rest or first).rpartition(".")[2] in WITHOUT_ARGUMENTS


def _check_arguments(table: str, section: UserCode, node: ast.AST, names: Mapping[str, ast.AST]) -> Iterator[Finding]:
    """Compare the keys of a table with the parameters of a plain function, or of a class whose `__init__` is known."""
    bound, signature = 0, None
    if isinstance(node, ast.ClassDef):
        bound, signature = 1, _constructor(node, names)
    elif isinstance(node, ast.FunctionDef) and not node.decorator_list:
        signature = node.args
    if signature is None:
        return
    positional = [*signature.posonlyargs, *signature.args][bound:]
    legal = [parameter.arg for parameter in (*positional, *signature.kwonlyargs)]
    needed = [parameter.arg for parameter in positional[: len(positional) - len(signature.defaults)]]
    needed += [
        parameter.arg for parameter, default in zip(signature.kwonlyargs, signature.kw_defaults, strict=True) if default is None
    ]
    takes = Parameters(legal, needed, signature.kwarg is not None)
    for key, message, advice in unfit_arguments(section.name, table, section.arguments, takes, list(type(section).model_fields)):
        if table == "task" and key in BuiltinTask.model_fields:
            advice = "a key of the built-in tasks: do it in `loss`, or take it as an argument"
        yield Finding((table, key), message, advice, at="value" if key == "name" else "key")
