"""Graphs that take no items: operators of onnxruntime and torch fail on empty batches, some by ending the process.

So a row of zeros goes through the graph behind the items, and is cut off from the answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only


@contextmanager
def spare_row(module: nn.Module) -> Iterator[None]:
    """Let a module compute with one row more than it gets and gives out, within this context."""
    hooks = (
        module.register_forward_pre_hook(
            lambda _, args, kwargs: tree_map_only(Tensor, _longer, (args, kwargs)), with_kwargs=True
        ),
        module.register_forward_hook(lambda _, __, answers: tree_map_only(Tensor, lambda rows: rows[:-1], answers)),
    )
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _longer(rows: Tensor) -> Tensor:
    """Return the rows and one of zeros. One whole number for each item is a length, and 1 is the least."""
    return nn.functional.pad(rows, (0, 0) * (rows.dim() - 1) + (0, 1), value=int(rows.dim() == 1 and rows.dtype == torch.int64))
