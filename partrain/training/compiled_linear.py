"""Linear layers in C code (`linear.c`), on processors where the products of `product.h` take half the time of torch's BLAS library.

Autograd handles everything around the layers.

Symbols: b rows (items, or steps of items), I inputs, O outputs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from partrain.training.blas import code_and_product

SOURCE = Path(__file__).with_name("linear.c")
LEAST_PRODUCTS = 1 << 20
"""Least b I O for a gain: below it a call from Python takes longer than the product."""


class _LinearFunction(torch.autograd.Function):
    """(x (b, I), weight (O, I), bias (O,) or None) -> (b, O)."""

    @staticmethod
    def forward(ctx: Any, code: ctypes.CDLL, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        out = x.new_empty(len(x), len(weight))
        ctx.code = code
        ctx.save_for_backward(x, weight)
        code.forward(len(x), *reversed(weight.shape), *map(_address, (x, weight, bias, out)))
        return out

    @staticmethod
    def backward(ctx: Any, delta: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        needs = ctx.needs_input_grad[1:]
        if torch.is_grad_enabled():  # these gradients will be differentiated again
            parts: list[Callable[[], Tensor]] = [lambda: delta @ weight, lambda: delta.T @ x, lambda: delta.sum(0)]
            return None, *(part() if needed else None for part, needed in zip(parts, needs, strict=True))
        delta = delta.contiguous()
        shapes = x.shape, weight.shape, weight.shape[:1]
        gradients = [x.new_empty(shape) if needed else None for shape, needed in zip(shapes, needs, strict=True)]
        ctx.code.backward(len(x), *reversed(weight.shape), *map(_address, (x, weight, delta, *gradients)))
        return None, *gradients


class CompiledLinear:
    """The `forward` of torch's linear layer in training; torch handles every case that it does not know."""

    def __init__(self, layer: nn.Linear, code: ctypes.CDLL) -> None:
        self._layer, self._code = layer, code

    def __call__(self, input: Tensor) -> Tensor:  # noqa: A002 (torch's name)
        """Compute what torch's `forward` computes, up to rounding."""
        layer, weight = self._layer, self._layer.weight
        trains = layer.training and torch.is_grad_enabled()  # a judged network has torch's bits, as in other programs
        gains = trains and input.dim() > 1 and input.numel() * len(weight) >= LEAST_PRODUCTS
        fits = gains and input.is_cpu and input.dtype == weight.dtype == torch.float32 and input.shape[-1] == weight.shape[1]
        transformed = torch._C._are_functorch_transforms_active()  # by torch.func, whose tensors have no memory
        if not fits or transformed or torch.is_autocast_enabled("cpu") or not weight.is_contiguous():
            return type(layer).forward(layer, input)
        x = input.reshape(-1, input.shape[-1]).contiguous()
        out: Tensor = _LinearFunction.apply(self._code, x, weight, layer.bias)  # type: ignore[no-untyped-call]
        return out.view(*input.shape[:-1], len(weight))


def compile_linear(module: nn.Module) -> bool:
    """Let a network's linear layers compute in C where that is faster; return whether it has any. Exact types only: a subclass may do anything.

    Raises CannotCompile.
    """
    layers = [part for part in module.modules() if type(part) is nn.Linear and "forward" not in vars(part) and part.weight.is_cpu]
    if not layers or layers[0].weight.dtype != torch.float32:
        return False
    code, blas = code_and_product(SOURCE, torch.float32)
    code.forward.argtypes = [*[ctypes.c_int64] * 3, *[ctypes.c_void_p] * 4]
    code.backward.argtypes = [*[ctypes.c_int64] * 3, *[ctypes.c_void_p] * 6]
    for layer in () if blas else layers:
        vars(layer)["forward"] = CompiledLinear(layer, code)  # hooks and the names of parameters do not change
    return not blas


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()
