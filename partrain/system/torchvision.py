"""The import of torchvision."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

from partrain.system.postponed import postponed

_LIBRARY: list[Any] = []
"""The operators defined below, kept alive."""


def import_torchvision(name: str) -> ModuleType:
    """Import a module of torchvision, even if its operators were compiled for another build of torch: they are not needed here."""
    try:
        with postponed(
            "torch._dynamo.utils", "is_compile_supported"
        ):  # the import takes three seconds, and only `roi_align` calls it
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
        return import_torchvision(name)
