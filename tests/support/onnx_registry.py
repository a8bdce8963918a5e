"""The table by which torch.onnx translates operators: torch builds it anew for each export, a third of a small one's time."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest


@cache
def _build() -> Any:
    """Return what builds the table, which keeps what it has built in this process."""
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    return cache(ONNXRegistry.from_torchlib)


def keep_onnx_registry(patch: pytest.MonkeyPatch) -> None:
    """Have the exports of this process share one table. Each gets a copy, to which it may add."""
    from torch.onnx._internal.exporter import _registration

    registry, build = _registration.ONNXRegistry, _build()

    def copied(*arguments: Any, **named: Any) -> Any:
        whole, mine = build(*arguments, **named), registry()
        vars(mine).update(vars(whole), functions={name: list(found) for name, found in whole.functions.items()})
        return mine

    patch.setattr(registry, "from_torchlib", staticmethod(copied))
