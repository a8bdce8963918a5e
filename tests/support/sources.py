"""The package's modules as syntax trees: each is parsed once for all tests of a process."""

from __future__ import annotations

import ast
import gc
from functools import cache
from pathlib import Path

import partrain

PACKAGE = Path(partrain.__file__).parent
FILES = tuple(sorted(PACKAGE.rglob("*.py")))


@cache
def nodes(file: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of a module in the order of `ast.walk`: the module first."""
    collects = gc.isenabled()
    gc.disable()  # trees are many objects, and none is garbage
    try:
        return tuple(ast.walk(ast.parse(file.read_bytes(), str(file))))
    finally:
        if collects:
            gc.enable()
