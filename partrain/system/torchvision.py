"""The import of torchvision, and the names in its source, which are read without importing it."""

from __future__ import annotations

import ast
from importlib import import_module, util
from pathlib import Path
from types import ModuleType
from typing import Any

_LIBRARY: list[Any] = []
"""The operators defined below, kept alive."""


def import_torchvision(name: str) -> ModuleType:
    """Import a module of torchvision, even if its operators were compiled for another build of torch: they are not needed here."""
    try:
        return import_module(name)
    except RuntimeError as error:
        if "torchvision::nms does not exist" not in str(error):
            raise
        import torch

        # PyPI has no torchvision for CPU builds of torch. Its import registers meta kernels for these two operators
        # without checking that they exist, so they are defined here.
        _LIBRARY.append(torch.library.Library("torchvision", "FRAGMENT"))  # type: ignore[no-untyped-call]
        for operator in ("nms", "qnms"):
            schema = f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            _LIBRARY[-1].define(schema)
        return import_module(name)


def transforms() -> dict[str, list[str] | None] | None:
    """Return the classes of torchvision.transforms.v2 and the arguments of each (None: inherited), read from source.

    None if torchvision is not installed.
    """
    spec = util.find_spec("torchvision")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(next(iter(spec.submodule_search_locations))) / "transforms" / "v2"
    classes: dict[str, list[str] | None] = {}
    for file in folder.glob("*.py"):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                made = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
                classes[node.name] = [one.arg for one in (*made[0].args.args[1:], *made[0].args.kwonlyargs)] if made else None
    return classes
