"""Networks whose items have several inputs: a batch is a tuple or dict of tensors, handed over as the arguments of `forward`.

A hook before `forward` spreads the tuple or dict. So `module(inputs)` is the one call of every network, also in users' tasks, and
names in the state dict do not change.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from partrain.byte_layout import LENGTHS
from partrain.errors import UserCodeFailed

if TYPE_CHECKING:
    from partrain.models.interface import Interface


def take_several(module: nn.Module, name: str, interface: Interface) -> None:
    """Let `module(inputs)` call `forward(*inputs)` or `forward(**inputs)`, or `forward(inputs)` if it has one argument.

    Raises UserCodeFailed if `forward` takes neither.
    """
    parts = interface.parts
    names = [part.name for part in parts]
    signature = inspect.signature(module.forward)
    positional = not names[0]
    try:
        signature.bind(*parts) if positional else signature.bind(**dict.fromkeys(names))
    except TypeError as error:
        if not interface.unequal and _takes_one(signature):
            return
        wanted = f"forward(items, {LENGTHS})" if interface.unequal else f"forward({', '.join(names)})"
        if positional and not interface.unequal:
            wanted = f"forward with {len(names)} arguments"
        kind = "the items are sequences of unequal length" if interface.unequal else f"the items have {interface.description}"
        what = f"[model] name: `{name}`: forward{signature} cannot take the items ({error})"
        raise UserCodeFailed(f"{what}; {kind}: expected {wanted}") from None
    module.register_forward_pre_hook(_spread, with_kwargs=True)


def take_output(module: nn.Module, key: str) -> None:
    """Let the module answer with one of several outputs: the value of a dict's key or of an attribute."""

    def chosen(_: nn.Module, __: Any, answers: Any) -> Any:
        if isinstance(answers, Mapping) and key in answers:
            return answers[key]
        if not isinstance(answers, Mapping) and hasattr(answers, key):
            return getattr(answers, key)
        names = ", ".join(map(str, answers)) if isinstance(answers, Mapping) else type(answers).__name__
        raise UserCodeFailed(f"[model] output_key: forward returns no `{key}`, but {names}")

    module.register_forward_hook(chosen)


def zeros(interface: Interface, count: int, dtype: torch.dtype) -> Any:
    """Return the inputs of `count` items of zeros, with the full length."""
    inputs: dict[str, Tensor] = {}
    for part in interface.parts:
        kind = torch.int64 if part.dtype == "int64" else dtype
        inputs[part.name or str(len(inputs))] = torch.zeros(count, *part.shape, dtype=kind)
    for part in interface.parts:
        if part.counts_lengths:
            padded = [padded_part for padded_part in interface.parts if part.name in (LENGTHS, f"{padded_part.name}_{LENGTHS}")]
            inputs[part.name] += padded[0].shape[0]
    return inputs if interface.parts[0].name else tuple(inputs.values())


def _takes_one(signature: inspect.Signature) -> bool:
    """Return whether a `forward` can be called with one argument, which is then the whole tuple or dict."""
    try:
        signature.bind(None)
    except TypeError:
        return False
    return True


def _spread(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if kwargs or len(args) != 1 or isinstance(args[0], Tensor):
        return args, kwargs
    (inputs,) = args
    return ((), inputs) if isinstance(inputs, dict) else (tuple(inputs), {})
