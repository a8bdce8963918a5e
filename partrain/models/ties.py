"""Tensors of a network that share memory.

Training moves each parameter and buffer to its own place in a row. So tensors that torch ties only by their memory would train
apart, and a checkpoint would fill one memory with the numbers of two.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from partrain.errors import UserCodeFailed
from partrain.models.attributes import attributes


class _Held(NamedTuple):
    """A registered tensor: its name, the table of its module that holds it, and its key there."""

    name: str
    tensor: Tensor
    table: dict[str, Tensor | None]
    key: str


def keep_ties(module: nn.Module, model: str) -> None:
    """Register parameters, or buffers, with the same memory as one tensor, as torch does for one object with two names.

    Raises UserCodeFailed, naming the network as `model`, for tensors that share a part of their memory, or all of it in another
    order.
    """
    by_storage: dict[int, list[_Held]] = defaultdict(list)
    for held in _registered(module):
        tensor, others = held.tensor, by_storage[held.tensor.untyped_storage()._cdata]
        twin = next((other for other in others if _place(other.tensor) == _place(tensor)), None)
        if twin and type(twin.tensor) is type(tensor) and twin.tensor.requires_grad == tensor.requires_grad:
            held.table[held.key] = twin.tensor
            continue
        numbers = _numbers(tensor) if others or 0 in tensor.stride() else None
        if numbers is not None and len(set(numbers.tolist())) < tensor.numel():
            raise UserCodeFailed(f"[model] name: `{model}`: `{held.name}` has numbers that share memory; register a `.clone()`")
        for other in others:
            if numbers is not None and torch.isin(numbers, _numbers(other.tensor)).any():
                what = f"`{held.name}` and `{other.name}` share memory, and training would part them"
                advice = f"use `{other.name}` itself in `forward`, or register a `.clone()`"
                raise UserCodeFailed(f"[model] name: `{model}`: {what}; {advice}")
        others.append(held)


def move(module: nn.Module, device: torch.device) -> None:
    """Move a network to a device. If torch makes new parameters for another kind of device, tied ones stay tied."""
    twins = defaultdict[int, list[tuple[dict[str, Any], str]]](list)
    for part in module.modules():
        for table in (part._parameters, part._buffers):
            for key, tensor in table.items():
                if tensor is not None:
                    twins[id(tensor)].append((table, key))
    module.to(device)
    for (first, name), *others in twins.values():
        for table, key in others:
            table[key] = first[name]


def _registered(module: nn.Module) -> Iterator[_Held]:
    """Yield each parameter and buffer once, parameters first."""
    seen: set[int] = set()
    for kind in ("_parameters", "_buffers"):
        for prefix, owner in module.named_modules():
            for key, tensor in vars(owner)[kind].items():
                if tensor is not None and tensor.numel() and id(tensor) not in seen:
                    seen.add(id(tensor))
                    yield _Held(f"{prefix}.{key}".lstrip("."), tensor, vars(owner)[kind], key)


def _place(tensor: Tensor) -> tuple[object, ...]:
    return tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype


def _numbers(tensor: Tensor) -> Tensor:
    """Return the positions (n,) of a tensor's numbers in its storage."""
    end = tensor.storage_offset() + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    return torch.arange(int(end)).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).flatten()


class Views:
    """Attributes that view the memory of parameters or buffers: they follow where these move."""

    def __init__(self, module: nn.Module) -> None:
        """Find these attributes. The tensors of `module` have not moved yet."""
        homes = [held.tensor for held in _registered(module)]
        registered = set(map(id, homes))
        self._views = []
        for _, view in attributes(module):
            if isinstance(view, Tensor) and view.numel() and id(view) not in registered:
                home = next((home for home in homes if _starts_within(view, home)), None)
                if home is not None:
                    self._views.append((view, home, view.storage_offset() - home.storage_offset(), home.stride()))

    def follow(self) -> None:
        """Point the attributes to the current memory of the parameters and buffers, which must have the same order there."""
        for view, home, offset, strides in self._views:
            if home.stride() == strides:
                view.data = home.data.as_strided(view.shape, view.stride(), home.storage_offset() + offset)


def _starts_within(view: Tensor, home: Tensor) -> bool:
    same = view.untyped_storage()._cdata == home.untyped_storage()._cdata and view.dtype == home.dtype
    return same and 0 <= view.storage_offset() - home.storage_offset() < home.numel()
