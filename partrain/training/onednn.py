"""Matrix products of float32 on the CPU by oneDNN, on processors where it is faster than MKL.

torch asks MKL, which does not use the widest vectors of other makers' processors: on a Zen 5 it reaches half the speed of oneDNN,
the other library in torch. Products of linear layers go to oneDNN if they are large enough to repay its dearer call. The choice is a
function of shapes and processor, never of a clock, so the same job has the same bits.

torch asks oneDNN only under a permission to compute in bfloat16. Processors with matrix units of bfloat16 (Intel AMX, Arm)
would use that permission, so `_Onednn` refuses to be entered there. On all others oneDNN computes in float32; `onednn_pays`
checks the numbers before it says yes.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional

from partrain.system.environment import Processor, processor

LEAST = 1_500_000
"""Multiplications from which oneDNN computes a product: at this size both take as long. A call costs oneDNN 11 us, MKL 3."""
AMD, ZEN_5 = "AuthenticAMD", 26
"""The family of its processors from which on vectors of 512 bits are as fast as two of 256."""
ROUNDING = 2e-6
"""Relative error allowed to float32 in `onednn_pays`; that of bfloat16 is a thousand times larger."""

_libraries: Any = torch.backends
_matmul = _libraries.mkldnn.matmul
_mkl: AbstractContextManager[object] = nullcontext()


class _Onednn:
    """Context in which products are oneDNN's. It refuses processors that would compute them in bfloat16."""

    def __init__(self, cpu: Processor) -> None:
        self._exact = not cpu.rounds_to_bfloat16

    def __enter__(self) -> None:
        assert self._exact, "this processor would multiply in bfloat16"
        self._before = _matmul.fp32_precision
        _matmul.fp32_precision = "bf16"

    def __exit__(self, *_: object) -> None:
        _matmul.fp32_precision = self._before


_onednn = _Onednn(processor())


@cache
def onednn_pays() -> bool:
    """Tell if oneDNN multiplies faster than MKL on this processor, and as exactly."""
    cpu = processor()
    wide = cpu.vendor == AMD and cpu.family >= ZEN_5 and "avx512f" in cpu.flags
    if not wide or cpu.rounds_to_bfloat16:
        return False
    if not (_libraries.mkl.is_available() and _libraries.mkldnn.is_available()):
        return False
    a, b = torch.randn(2, 128, 128, generator=torch.Generator().manual_seed(0))
    with _onednn:
        found = a @ b
    exact = a.double() @ b.double()
    return bool((found - exact).norm() <= ROUNDING * exact.norm())


def multiplying(size: int) -> AbstractContextManager[object]:
    """Choose the library for a product of float32 with `size` multiplications on the CPU."""
    return _onednn if size >= LEAST and onednn_pays() else _mkl


def use_onednn_linear(module: nn.Module) -> None:
    """Let the linear layers of a network on the CPU choose their library by the size of the batch."""
    for part in module.modules() if onednn_pays() else ():
        if type(part) is nn.Linear and "forward" not in vars(part):
            part.forward = MethodType(_linear, part)  # type: ignore[method-assign]


def _linear(layer: nn.Linear, x: Tensor) -> Tensor:
    """Compute the layer's output for x (..., n)."""
    plain = x.dtype == layer.weight.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    if plain and x.numel() * layer.out_features >= LEAST and not _transformed():
        answers: Tensor = _Linear.apply(x, layer.weight, layer.bias)  # type: ignore[no-untyped-call]
        return answers
    return functional.linear(x, layer.weight, layer.bias)


def _transformed() -> bool:
    """Tell if torch is compiling, mapping or differentiating forwards, which it can do with its own functions only."""
    return (
        torch.compiler.is_compiling() or torch._C._functorch.maybe_current_level() is not None or forward_ad._current_level >= 0
    )


class _Linear(torch.autograd.Function):
    """x (..., n), W (m, n), c (m,) -> x W^T + c (..., m): value and gradient by oneDNN."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        rows = x.reshape(-1, x.shape[-1])
        with _onednn:
            answers = rows.mm(weight.t()) if bias is None else torch.addmm(bias, rows, weight.t())
        return answers.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        rows = gradient.reshape(-1, gradient.shape[-1])
        of_x, of_weight, of_bias = ctx.needs_input_grad
        with _onednn:
            by_x = rows.mm(weight).view(x.shape) if of_x else None
            by_weight = rows.t().mm(x.reshape(-1, x.shape[-1])) if of_weight else None
        return by_x, by_weight, rows.sum(0) if of_bias else None
