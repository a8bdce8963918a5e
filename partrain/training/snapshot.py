"""A worker's state in a snapshot: written at a round's end, read back on resume. Nothing else survives.

model/<tensor>                 the mixed network under its state-dict names (worker 0 writes it)
probe                          answers of a network of user code to drawn items, to check a rebuilt network (worker 0 writes it)
training/params, buffers/...   the mixed network in training, if `model` is an average of it over rounds (worker 0 writes it)
training/averaged              iterations or networks in that average
rule/<field>                   the rule's state that is the same on all workers
rule/center, versions, numbers the state that all workers share under an asynchronous rule
optimizer/<moment>             (d,) if `optimizer_state = "average"` makes them the same on all workers (worker 0 writes it)
optimizer/step                 (p,) steps of each tensor since the moments were zero, if a step depends on their number
workers/<rank>/params          (d,) if replicas differ at a round's end
workers/<rank>/rule/<field>    the worker's own part of the rule's state
workers/<rank>/optimizer/...   moments (d,) and steps (p,) if each worker keeps its own
workers/<rank>/buffers/...     if each worker keeps its own
workers/<rank>/stream          its position in its shard of a stream: pass, items drawn in it, digest of the last of them
workers/<rank>/counts          items drawn, iterations and item-iterations so far
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from partrain.comm.center import CenterClient
from partrain.data.user.work import Cursor
from partrain.errors import BadCheckpoint
from partrain.protocols import Rule
from partrain.training.replica import RowLayout, persistent_buffers
from partrain.training.snapshot_layout import PROBE, Array, SlotMap
from partrain.training.stream_batches import StreamBatches
from partrain.training.worker import LocalWorker

if TYPE_CHECKING:
    from numpy.typing import NDArray

STEP = "step"
"""Name of the optimizer's steps among its moments, as in torch."""
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
    torch.complex64: "<c8",
}

_NUMBERS = {int: "<i8", float: "<f8", bool: "|b1"}


def slot_map(
    module: nn.Module,
    layout: RowLayout,
    rule: Rule,
    size: int,
    state: Any = None,
    center: CenterClient | None = None,
    *,
    streams: bool = False,
    probed: int = 0,
) -> SlotMap:
    """Lay out the arrays of a snapshot of N workers; the layout is the same on all workers.

    `streams`: workers train on shards of a stream. `probed`: length of the network's probe.
    """
    arrays = [(f"model/{name}", *_kind(name, tensor)) for name, tensor in module.state_dict().items()]
    if probed:
        arrays.append((PROBE, "<f8", (probed,)))
    row = _NAMES[layout.params.dtype], (layout.params.size,)
    arrays += [(f"rule/{name}", *_kind(name, value)) for name, value in _fields(state, common=True)]
    arrays += [(f"rule/{name}", *_kind(name, tensor)) for name, tensor in _shared(center).items()]
    if rule.averages_networks:
        arrays.append(("training/averaged", "<i8", ()))
        arrays += [(f"training/buffers/{name}", *_kind(name, buffer)) for name, buffer in persistent_buffers(module)]
        if rule.keeps_replicas_equal:
            arrays.append(("training/params", *row))
    optimizer = [(name, *row) for name in layout.moments]
    if layout.counts_steps:
        optimizer.append((STEP, "<i8", (len(layout.params.fields),)))
    if rule.optimizer_state == "average":  # equal on all workers after each round
        arrays += [(f"optimizer/{name}", dtype, shape) for name, dtype, shape in optimizer]
    own: list[Array] = [("counts", "<i8", (3,))]
    if streams:
        own.append(("stream", "<i8", (3,)))
    if not rule.keeps_replicas_equal:
        own.append(("params", *row))
    if rule.optimizer_state == "local":
        own += [(f"optimizer/{name}", dtype, shape) for name, dtype, shape in optimizer]
    if rule.buffers == "local":
        own += [(f"buffers/{name}", *_kind(name, buffer)) for name, buffer in persistent_buffers(module)]
    own += [(f"rule/{name}", *_kind(name, value)) for name, value in _fields(state, common=False)]
    return SlotMap.of(arrays, own, size)


def save(worker: LocalWorker, arrays: dict[str, NDArray[Any]], state: Any = None, center: CenterClient | None = None) -> None:
    """Copy this worker's part of the state to a slot."""
    place = f"workers/{worker.rank}"
    if worker.rank == 0:
        for name, tensor in worker.module.state_dict().items():
            _at(arrays, f"model/{name}").copy_(tensor)
        for name, value in _fields(state, common=True):
            arrays[f"rule/{name}"][...] = _plain(value)
        for name, tensor in _shared(center).items():
            _at(arrays, f"rule/{name}").copy_(tensor)
        if worker.average:
            arrays["training/averaged"][...] = worker.average.count
    for path, tensor in _tensors(worker).items():
        if path in arrays and (worker.rank == 0 or path.startswith("workers/")):
            _at(arrays, path).copy_(tensor)
    for name, value in _fields(state, common=False):
        arrays[f"{place}/rule/{name}"][...] = _plain(value)
    arrays[f"{place}/counts"][:] = worker.batches.position, worker.tally.total_iterations, worker.tally.total_items
    if isinstance(worker.batches, StreamBatches):
        arrays[f"{place}/stream"][:] = worker.batches.cursor


def restore(worker: LocalWorker, arrays: dict[str, NDArray[Any]], state: Any = None, center: CenterClient | None = None) -> None:
    """Restore this worker to the snapshot's state."""
    load_network(worker.module, arrays)
    with torch.no_grad():
        if worker.average:
            worker.average.restore(int(arrays["training/averaged"]))
        for path, tensor in _tensors(worker).items():
            if path in arrays:
                tensor.copy_(_at(arrays, path))
        if worker.rank == 0:
            for name, tensor in _shared(center).items():
                tensor.copy_(_at(arrays, f"rule/{name}"))
    for common, place in ((True, "rule"), (False, f"workers/{worker.rank}/rule")):
        for name, value in _fields(state, common=common):
            kept = arrays.get(f"{place}/{name}")
            if kept is None:  # a snapshot of other workers: it starts again
                continue
            if isinstance(value, Tensor):
                value.copy_(torch.from_numpy(kept))
            else:
                setattr(state, name, type(value)(kept))
    counts = arrays[f"workers/{worker.rank}/counts"].tolist()
    worker.batches.position, worker.tally.total_iterations, worker.tally.total_items = counts
    if isinstance(worker.batches, StreamBatches):
        cursor = Cursor(*arrays[f"workers/{worker.rank}/stream"].tolist())
        if min(cursor) < 0:
            raise BadCheckpoint(f"`workers/{worker.rank}/stream` is no position in a stream: {tuple(cursor)}")
        worker.batches.cursor = cursor


def load_network(module: nn.Module, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Copy the mixed network of a snapshot into a module. Raises BadCheckpoint if names or shapes differ."""
    check_tensors(module, arrays)
    with torch.no_grad():
        for name, tensor in module.state_dict(keep_vars=True).items():
            tensor.copy_(_at(arrays, f"model/{name}"))


def check_tensors(module: nn.Module, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Raise BadCheckpoint unless a snapshot's mixed network has the names and shapes of a module's state dict."""
    wanted = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    stored = {path.removeprefix("model/"): array.shape for path, array in arrays.items() if path.startswith("model/")}
    if unlike := [name for name in {**wanted, **stored} if stored.get(name) != wanted.get(name)]:
        before, now = (_shape(shapes.get(unlike[0])) for shapes in (stored, wanted))
        more = f"; {len(unlike) - 1:,} more differ" if len(unlike) > 1 else ""
        raise BadCheckpoint(f"tensor `{unlike[0]}`: {before} in the checkpoint, {now} in the job's model{more}")


def _shape(shape: tuple[int, ...] | None) -> str:
    return "none" if shape is None else f"shape {shape}"


def _shared(center: CenterClient | None) -> dict[str, Tensor]:
    return center.tensors() if center else {}


def _fields(state: Any, *, common: bool) -> list[tuple[str, Any]]:
    """List the fields of a rule's state: the replicated ones (`common`), or those of this worker."""
    if state is None:
        return []
    return [(field.name, getattr(state, field.name)) for field in fields(state) if field.metadata.get("same", False) == common]


def _plain(value: Any) -> Any:
    """Convert a tensor to numpy; a number stays."""
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else value


def _tensors(worker: LocalWorker) -> dict[str, Tensor]:
    """List a worker's tensors by path: its own, and tensors that may be the same on all workers. A snapshot has some of them."""
    place = f"workers/{worker.rank}"
    rows = dict(zip(worker.replica.layout.moments, worker.optimizer.moments, strict=True)) | {STEP: worker.optimizer.counts}
    moments = {f"{owner}optimizer/{name}": row for owner in ("", f"{place}/") for name, row in rows.items()}
    buffers = {f"{place}/buffers/{name}": buffer for name, buffer in persistent_buffers(worker.module)}
    training = {"training/params": worker.replica.own_params}
    if worker.average:
        training |= {f"training/buffers/{name}": buffer for name, buffer in worker.average.own_buffers.items()}
    return {f"{place}/params": worker.replica.own_params} | moments | buffers | training


def _kind(name: str, tensor: Any) -> tuple[str, tuple[int, ...]]:
    """Return dtype and shape of a tensor's or number's copy. Raises TypeError if a checkpoint cannot hold it."""
    if type(tensor) in _NUMBERS:
        return _NUMBERS[type(tensor)], ()
    if not isinstance(tensor, Tensor):
        raise TypeError(f"`{name}` in its state_dict is no tensor, and a checkpoint holds nothing else")
    if tensor.dtype not in _NAMES:
        advice = "give it another type, or register it with persistent=False if it is a constant"
        raise TypeError(f"tensor `{name}` is {tensor.dtype}, which a checkpoint cannot hold; {advice}")
    return _NAMES[tensor.dtype], tuple(tensor.shape)


def _at(arrays: Mapping[str, NDArray[Any]], path: str) -> Tensor:
    return torch.from_numpy(arrays[path])
