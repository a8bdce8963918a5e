"""What of a worker belongs in a snapshot: written at a round's end, read back on resume, nothing else survives.

model/<tensor>                 the mixed network under its state-dict names (worker 0 writes it)
workers/<rank>/optimizer/...   moments (d,), and `counts`: steps since they were zero
workers/<rank>/buffers/...     where each worker keeps its own
workers/<rank>/counts          cursor, iterations and item-iterations so far
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from partrain.protocols import Rule
from partrain.snapshot import SlotMap
from partrain.worker import LocalWorker, Spans, persistent_buffers

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NAMES = {
    torch.float32: "<f4",
    torch.float64: "<f8",
    torch.float16: "<f2",
    torch.int64: "<i8",
    torch.int32: "<i4",
    torch.int16: "<i2",
    torch.int8: "|i1",
    torch.uint8: "|u1",
    torch.bool: "|u1",
}


def slot_map(module: nn.Module, spans: Spans, rule: Rule, size: int) -> SlotMap:
    """The arrays of a snapshot of N workers; the same on each of them."""
    arrays = [(f"model/{name}", *_kind(name, tensor)) for name, tensor in module.state_dict().items()]
    vector = _NAMES[spans.layout.dtype]
    for rank in range(size):
        arrays.append((f"workers/{rank}/counts", "<i8", (4,)))
        if rule.optimizer_state != "reset":
            arrays += [(f"workers/{rank}/optimizer/{name}", vector, (spans.layout.size,)) for name in spans.moments]
        if rule.buffers == "local":
            arrays += [(f"workers/{rank}/buffers/{name}", *_kind(name, buffer)) for name, buffer in persistent_buffers(module)]
    return SlotMap.of(arrays)


def save(worker: LocalWorker, arrays: dict[str, NDArray[Any]]) -> None:
    """Copy this worker's part of the state to a slot."""
    if worker.rank == 0:
        for name, tensor in worker.module.state_dict().items():
            _at(arrays, f"model/{name}").copy_(tensor)
    for path, tensor in _own(worker).items():
        if path in arrays:
            _at(arrays, path).copy_(tensor)
    counts = (worker.batches.position, worker.total_iterations, worker.total_items, worker.optimizer.steps)
    arrays[f"workers/{worker.rank}/counts"][:] = counts


def restore(worker: LocalWorker, arrays: dict[str, NDArray[Any]]) -> None:
    """Make this worker what it was when the snapshot was taken."""
    with torch.no_grad():
        for name, tensor in worker.module.state_dict(keep_vars=True).items():
            tensor.copy_(_at(arrays, f"model/{name}"))
        for path, tensor in _own(worker).items():
            if path in arrays:
                tensor.copy_(_at(arrays, path))
    counts = arrays[f"workers/{worker.rank}/counts"].tolist()
    worker.batches.position, worker.total_iterations, worker.total_items, worker.optimizer.steps = counts


def _own(worker: LocalWorker) -> dict[str, Tensor]:
    """What only this worker has, by path."""
    place = f"workers/{worker.rank}"
    moments = {f"{place}/optimizer/{name}": row for name, row in zip(worker.spans.moments, worker.optimizer.moments, strict=True)}
    buffers = {f"{place}/buffers/{name}": buffer for name, buffer in persistent_buffers(worker.module)}
    return moments | buffers


def _kind(name: str, tensor: Tensor) -> tuple[str, tuple[int, ...]]:
    """Type and shape of a tensor's copy."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"`{name}` in its state_dict is no tensor, and a checkpoint holds nothing else")
    if tensor.dtype not in _NAMES:
        raise TypeError(f"tensor `{name}` is {tensor.dtype}, which a checkpoint cannot hold")
    return _NAMES[tensor.dtype], tuple(tensor.shape)


def _at(arrays: dict[str, NDArray[Any]], path: str) -> Tensor:
    return torch.from_numpy(arrays[path])
