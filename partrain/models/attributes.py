"""Values that a network's modules hold besides parameters, buffers and layers: no optimizer step or checkpoint reaches them."""

from __future__ import annotations

import hashlib
import inspect
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_OF_TORCH = {*vars(nn.Module()), *vars(nn.RNN(1, 1)), "training"}
"""Attributes of torch's own modules, including `nn.RNNBase`'s layers: they hold parameters under other names."""
_PLAIN = bool | int | float | complex | str | bytes | None
DEPTH = 6
"""Depth of nested containers to search."""


def attributes(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield path and value of each attribute, and of each value in containers: `head.scale`, `layers[0].weight`."""
    registered = {id(part) for part in module.modules()}
    for prefix, owner in module.named_modules():
        for name, value in vars(owner).items():
            if name not in _OF_TORCH:
                yield from _leaves(f"{prefix}.{name}".lstrip("."), value, registered, DEPTH)


def _leaves(path: str, value: Any, registered: set[int], depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, nn.Module):
        if id(value) in registered:
            return
        held: dict[str, Any] = {**value._parameters, **value._buffers, **value._modules}
        held |= {name: kept for name, kept in vars(value).items() if name not in _OF_TORCH}
        members = [(f"{path}.{name}", kept) for name, kept in held.items()]
    elif isinstance(value, dict):
        members = [(f"{path}[{key!r}]", kept) for key, kept in value.items()]
    elif isinstance(value, list | tuple | set | frozenset):
        members = [(f"{path}[{index}]", kept) for index, kept in enumerate(value)]
    else:
        yield path, value
        return
    for inner, kept in members if depth else ():
        yield from _leaves(inner, kept, registered, depth - 1)


def digests(module: nn.Module) -> dict[str, str]:
    """Hash a network's parameters, buffers and attributes of known types, by path; tensors come first."""
    held = {**dict(module.named_parameters()), **dict(module.named_buffers()), **dict(attributes(module))}
    tensors = {path: _bytes(value) for path, value in held.items() if isinstance(value, Tensor | np.ndarray)}
    return {path: hashlib.sha256(value).hexdigest() for path, value in {**tensors, **plain_values(module)}.items()}


def plain_values(module: nn.Module) -> dict[str, bytes]:
    """List the attributes that are numbers, texts or generators of random numbers, by path, each in bytes."""
    plain = {path: _bytes(value) for path, value in attributes(module) if isinstance(value, _PLAIN)}
    return plain | {path: state for path, value in attributes(module) if (state := state_of_generator(value))}


class ChangedValues:
    """The plain values of a network that change while it trains."""

    def __init__(self, module: nn.Module) -> None:
        """Remember the current values."""
        self._module, self._before = module, plain_values(module)

    def take(self) -> list[str]:
        """Return the paths of changed values, each once."""
        now = plain_values(self._module)
        changed = [path for path, value in self._before.items() if path in now and now[path] != value]
        for path in changed:
            del self._before[path]
        return changed


def state_of_generator(value: Any) -> bytes:
    """Return the state of a generator of random numbers; nothing for other values."""
    match value:
        case torch.Generator():
            return _bytes(value.get_state())
        case np.random.Generator():
            return repr(value.bit_generator.state).encode()
        case np.random.RandomState():
            return repr(value.get_state()).encode()
        case random.Random():
            return repr(value.getstate()).encode()
    return b""


def _bytes(value: Any) -> bytes:
    if isinstance(value, Tensor):
        value = value.detach().cpu().resolve_conj().resolve_neg().contiguous().view(-1).view(torch.uint8).numpy()
    return value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode()


def line_of(module: nn.Module, path: str) -> str:
    """Return `file.py:line` of the first assignment of an attribute in its module's class; "" if its source is unknown."""
    layers = dict(module.named_modules())
    name = path.partition("[")[0]
    while name.rpartition(".")[0] and name.rpartition(".")[0] not in layers:
        name = name.rpartition(".")[0]
    owner, _, attribute = name.rpartition(".")
    try:
        source, first = inspect.getsourcelines(type(layers[owner]))
        file = Path(inspect.getfile(type(layers[owner]))).name
    except (OSError, TypeError):
        return ""
    pattern = re.compile(rf"self\.{re.escape(attribute)}\b[^=]*=(?!=)|['\"]{re.escape(attribute)}['\"]")
    return next((f"{file}:{first + number}" for number, line in enumerate(source) if pattern.search(line)), "")
