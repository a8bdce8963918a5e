"""A network's buffers when replicas are mixed, above all BatchNorm's running statistics.

Averaging parameters alone leaves each replica with the statistics of a network that no longer exists. `[sync] buffers` has three
policies for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from partrain.comm.group import ArenaGroup
from partrain.errors import Diverged
from partrain.flat import first_non_finite
from partrain.models.freeze import frozen_buffers
from partrain.protocols import Rule
from partrain.system.accelerator import in_float64
from partrain.training.batches import Batches
from partrain.training.replica import persistent_buffers
from partrain.training.worker import LocalWorker

RECALIBRATION_ITEMS = 4096
"""Largest number of items of each partition that recompute the statistics of a mixed network."""
RECALIBRATION_BATCH = 512
FLOAT64_ITEMS = 32
"""Items of a batch in float64 at a time."""


def pool(module: nn.Module, group: ArenaGroup, weight: float, where: str = "") -> None:
    """Replace buffers by the pooled data's: pool means and variances, take the maximum of integers, average the others.

    With weights w_i that add up to one:  m = sum w_i m_i,   v = sum w_i (v_i + (m_i - m)^2). Raises Diverged, naming `where`,
    before a non-finite number reaches other workers.
    """
    numbers = _numbers(module)
    for name, tensor in numbers.items():
        if first_non_finite(tensor) is not None:
            raise Diverged(f"{where}: non-finite numbers in `{name}`; lower the learning rate, or look at the data")
    if group.size == 1:
        return
    _count_alike(module, group)
    if numbers:
        weights = torch.tensor(group.scores(weight), dtype=torch.float64)
        _unpack(pooled(torch.stack(group.all_gather(_pack(numbers, torch.float64))), weights, numbers), numbers)


def pooled(rows: Tensor, weights: Tensor, tensors: dict[str, Tensor]) -> Tensor:
    """Pool N rows (N, B) with weights (N, 1) into one (B,): means, but variances as in `pool` for the `tensors` with that name."""
    mixed = (weights * rows).sum(0) / weights.sum()
    local, mean = _parts(rows, tensors), _parts(mixed, tensors)
    for name in tensors:
        variance = name.removesuffix("mean") + "var"
        if name.endswith("running_mean") and variance in tensors:
            mean[variance] += (weights * (local[name] - mean[name]).square()).sum(0) / weights.sum()
    return mixed


def recalibrate(worker: LocalWorker, group: ArenaGroup) -> None:
    """Recompute the BatchNorm statistics of the network to evaluate, from items spread over every partition.

    Each layer gets the mean and variance of all its inputs for these items, computed in float64 and rounded once. With
    `on_nonfinite = "exclude"` inputs that are not finite are left out.
    """
    norms = [module for module in worker.module.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    norms = [norm for norm in norms if norm.training and norm.track_running_stats]
    if not norms:
        return
    seen: list[list[Tensor]] = [[torch.zeros(1 + 2 * norm.num_features, dtype=torch.float64)] for norm in norms]
    worker.module.eval()
    for norm in norms:
        norm.train()
        norm.reset_running_stats()
    hooks = [norm.register_forward_pre_hook(_watch(rows), with_kwargs=True) for norm, rows in zip(norms, seen, strict=True)]
    assert isinstance(worker.batches, Batches)  # a job's checks refuse streams here
    partition = worker.batches.partition
    index = torch.from_numpy(partition[:: -(-len(partition) // RECALIBRATION_ITEMS)])
    with torch.no_grad():
        for part in index.tensor_split(-(-len(index) // RECALIBRATION_BATCH)):
            worker.callbacks.heartbeat()
            worker.module(worker.samples.batch(part.to(worker.samples.inputs.device))[0])
    for hook in hooks:
        hook.remove()
    if worker.guard.excludes:
        seen = [[row for row in rows if row.isfinite().all()] for rows in seen]
    worker.module.train()
    _count_alike(nn.ModuleList(norms), group)
    own = torch.cat([_merged(rows, norm) for norm, rows in zip(norms, seen, strict=True)])
    gathered = torch.split(torch.stack(group.all_gather(own)), [1 + 2 * norm.num_features for norm in norms], dim=1)
    for norm, rows in zip(norms, gathered, strict=True):
        count, mean, variance = torch.split(_merged(list(rows), norm), [1, norm.num_features, norm.num_features])
        if count > 1:
            _unpack(torch.cat([mean, variance * (count / (count - 1))]), _statistics(norm))


def _watch(rows: list[Tensor]) -> Callable[[nn.Module, tuple[Tensor, ...], dict[str, Tensor]], None]:
    """Make a hook that records a layer's inputs: rows (1 + 2C,) of float64 with count, means and variances per channel."""

    def note(norm: nn.Module, inputs: tuple[Tensor, ...], named: dict[str, Tensor]) -> None:
        for part in torch.split(inputs[0] if inputs else named["input"], FLOAT64_ITEMS):
            x = in_float64(part.transpose(0, 1).flatten(1))
            mean = x.mean(1)
            squares = torch.linalg.vector_norm(x - mean[:, None], dim=1).square()
            rows.append(torch.cat([mean.new_tensor([x.shape[1]]), mean, squares / x.shape[1]]).cpu())

    return note


def _merged(rows: Sequence[Tensor], norm: nn.Module) -> Tensor:
    """Merge recorded rows into one (1 + 2C,); zeros if there are none."""
    together = torch.stack(list(rows))
    counts = together[:, :1]
    if not counts.any():
        return together[0]
    return torch.cat([counts.sum(0), pooled(together[:, 1:], counts, _statistics(norm))])


def _statistics(norm: nn.Module) -> dict[str, Tensor]:
    return {name: norm.get_buffer(name) for name in ("running_mean", "running_var")}


@contextmanager
def shared_buffers(worker: LocalWorker, group: ArenaGroup, rule: Rule) -> Iterator[None]:
    """Evaluate one network on all workers: with `buffers = "local"` they take worker 0's buffers, and get their own back."""
    numbers = _numbers(worker.module)
    if rule.buffers != "local" or group.size == 1 or not numbers:
        yield
        return
    own = _pack(numbers, torch.float64)
    take_first(worker.module, group)
    yield
    _unpack(own, numbers)


def take_first(module: nn.Module, group: ArenaGroup) -> None:
    """Replace the floating-point buffers of all workers by worker 0's."""
    if group.size > 1 and (numbers := _numbers(module)):
        _unpack(group.all_gather(_pack(numbers, torch.float64))[0], numbers)


def _count_alike(module: nn.Module, group: ArenaGroup) -> None:
    """Integer buffers <- their maximum over all workers."""
    if group.size > 1 and (counters := _integers(module)):
        gathered = torch.stack(group.all_gather(_pack(counters, torch.int64)))
        _unpack(gathered.amax(0), counters)


def _integers(module: nn.Module) -> dict[str, Tensor]:
    """List integer and boolean buffers, such as `num_batches_tracked`."""
    buffers = persistent_buffers(module)
    return {name: buffer for name, buffer in buffers if not buffer.is_floating_point() and not buffer.is_complex()}


def _numbers(module: nn.Module) -> dict[str, Tensor]:
    """List floating-point and complex buffers, except the statistics of frozen layers: equal everywhere, they need no mixing."""
    buffers = {
        name: torch.view_as_real(buffer) if buffer.is_complex() else buffer.detach()
        for name, buffer in persistent_buffers(module)
        if buffer.is_floating_point() or buffer.is_complex()
    }
    still = frozen_buffers(module) if buffers else set()
    return {name: buffer for name, buffer in buffers.items() if name not in still}


def _pack(tensors: dict[str, Tensor], dtype: torch.dtype) -> Tensor:
    """Copy the numbers of some tensors into one vector on the CPU."""
    return torch.cat([tensor.detach().reshape(-1).to("cpu", dtype) for tensor in tensors.values()])


def _parts(packed: Tensor, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Split a vector (..., numbers) into views, one for each tensor."""
    return dict(zip(tensors, torch.split(packed, [tensor.numel() for tensor in tensors.values()], dim=-1), strict=True))


def _unpack(packed: Tensor, tensors: dict[str, Tensor]) -> None:
    for name, part in _parts(packed, tensors).items():
        tensors[name].copy_(part.view(tensors[name].shape))
