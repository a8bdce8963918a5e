"""Linear layers in C code (`linear.c`), on processors where the products of `product.h` take half the time of torch's BLAS library.

Autograd handles everything around the layers.

Symbols: b rows (items, or steps of items), I inputs, O outputs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from partrain.flat import DEFINITIONS
from partrain.system.compiler import CannotCompile, library
from partrain.training.blas import prefers_own_products

SOURCE = Path(__file__).with_name("linear.c")
LEAST_PRODUCTS = 1 << 20
"""Least b I O for a gain: below it a call from Python takes longer than the product."""


class _LinearFunction(torch.autograd.Function):
    """(x (b, I), weight (O, I), bias (O,) or None) -> (b, O)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        out = x.new_empty(len(x), len(weight))
        ctx.save_for_backward(x, weight)
        _code().forward(len(x), *reversed(weight.shape), *map(_address, (x, weight, bias, out)))
        return out

    @staticmethod
    def backward(ctx: Any, delta: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        needs = ctx.needs_input_grad
        if torch.is_grad_enabled() or _transformed(delta):  # these gradients will be differentiated again, or are several at once
            parts: list[Callable[[], Tensor]] = [lambda: delta @ weight, lambda: delta.T @ x, lambda: delta.sum(0)]
            return tuple(part() if needed else None for part, needed in zip(parts, needs, strict=True))
        delta = delta.contiguous()
        shapes = x.shape, weight.shape, weight.shape[:1]
        gradients = [x.new_empty(shape) if needed else None for shape, needed in zip(shapes, needs, strict=True)]
        _code().backward(len(x), *reversed(weight.shape), *map(_address, (x, weight, delta, *gradients)))
        return tuple(gradients)


class CompiledLinear:
    """The `forward` of torch's linear layer in training; torch handles every case that it does not know."""

    def __init__(self, layer: nn.Linear) -> None:
        self._layer = layer

    def __call__(self, input: Tensor) -> Tensor:  # noqa: A002 (torch's name)
        """Compute what torch's `forward` computes, up to rounding."""
        layer, weight, bias = self._layer, self._layer.weight, self._layer.bias
        trains = layer.training and torch.is_grad_enabled()  # a judged network has torch's bits, as in other programs
        gains = trains and input.dim() > 1 and input.numel() * len(weight) >= LEAST_PRODUCTS
        fits = gains and _in_c(weight, (len(weight), input.shape[-1])) and (bias is None or _in_c(bias, (len(weight),)))
        if not (fits and input.is_cpu and input.dtype == weight.dtype) or torch.is_autocast_enabled("cpu") or _transformed(input):
            return type(layer).forward(layer, input)
        x = input.reshape(-1, input.shape[-1]).contiguous()
        out: Tensor = _LinearFunction.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return out.view(*input.shape[:-1], len(weight))


def compile_linear(module: nn.Module) -> bool:
    """Let a network's linear layers compute in C where that is faster; return whether it has any. Exact types only: a subclass may do anything.

    Without a C compiler torch computes them, in twice the time.
    """
    layers = [part for part in module.modules() if type(part) is nn.Linear and "forward" not in vars(part)]
    if not layers or not prefers_own_products(torch.float32):
        return False
    try:
        code = _code()
    except CannotCompile:
        return False
    for layer in layers if code.has_products() else ():
        vars(layer)["forward"] = CompiledLinear(layer)  # hooks and the names of parameters do not change
    return bool(code.has_products())


@cache
def _code() -> ctypes.CDLL:
    """Return the compiled code. Layers hold no reference to it, so that they can be copied and pickled."""
    code = library(SOURCE, DEFINITIONS[torch.float32])
    code.forward.argtypes = [*[ctypes.c_int64] * 3, *[ctypes.c_void_p] * 4]
    code.backward.argtypes = [*[ctypes.c_int64] * 3, *[ctypes.c_void_p] * 6]
    return code


def _in_c(tensor: Tensor, shape: tuple[int, ...]) -> bool:
    """Return whether C can read a tensor as float32 numbers of this shape: torch takes whatever was put into a layer."""
    return tensor.shape == shape and tensor.dtype == torch.float32 and tensor.is_cpu and tensor.is_contiguous()


def _transformed(tensor: Tensor) -> bool:
    """Return whether a tensor belongs to torch.func or to `is_grads_batched`, whose tensors have no memory."""
    return bool(torch._C._are_functorch_transforms_active() or torch._C._functorch.is_legacy_batchedtensor(tensor))


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()
