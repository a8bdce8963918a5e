"""One network as one vector: parameters become views of a flat row, so that rules read like linear algebra.

Shapes: d numbers in the flat vector, padding included; N rows.
"""

from __future__ import annotations

import array
import ctypes
import math
from collections.abc import Iterable, Sequence
from ctypes import c_double, c_int64, c_void_p
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from partrain.system.compiler import CannotCompile, library

ALIGNMENT = 64
"""Bytes: each tensor of a row starts on a cache line. The padding between tensors is zero and stays zero."""

CHUNK = 1 << 15
"""Numbers averaged at a time: the float64 accumulator of a chunk (256 KiB) stays in the cache."""


DEFINITIONS = {torch.float32: ("SINGLE",), torch.float64: ()}
"""Definitions with which C code is compiled for each number type that a network may have."""


@dataclass(frozen=True)
class TensorField:
    """One named tensor of a row: `start` counts numbers."""

    name: str
    shape: tuple[int, ...]
    start: int

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def view(self, row: Tensor) -> Tensor:
        """Return this tensor as a view of a row (d,)."""
        return row[self.start : self.start + self.size].view(self.shape)


@dataclass(frozen=True)
class Layout:
    """Positions of named tensors in a flat row with one dtype."""

    fields: tuple[TensorField, ...]
    size: int
    """d, a multiple of the alignment."""
    dtype: torch.dtype

    @classmethod
    def of(cls, tensors: Iterable[tuple[str, Tensor]], dtype: torch.dtype) -> Layout:
        """Lay tensors out one after the other. Raises TypeError if one has another dtype than the row."""
        step = ALIGNMENT // dtype.itemsize
        fields, start = [], 0
        for name, tensor in tensors:
            if tensor.dtype != dtype:
                raise TypeError(
                    f"tensor `{name}` is {tensor.dtype}, the others are {dtype}: one row holds one type; convert it by `.to({dtype})`"
                )
            fields.append(TensorField(name, tuple(tensor.shape), start))
            start += -(-tensor.numel() // step) * step
        return cls(tuple(fields), start, dtype)

    def views(self, row: Tensor) -> list[Tensor]:
        """Return all tensors as views of a row (d,)."""
        return [field.view(row) for field in self.fields]

    def name_at(self, index: int) -> str:
        """Return the name of the tensor that contains the number at `index` of a row."""
        return next(field.name for field in reversed(self.fields) if field.start <= index)


def adopt(module: torch.nn.Module, layout: Layout, row: Tensor) -> None:
    """Move a module's parameters into a row (d,): copy the values, then make each parameter a view of the row."""
    for (_, parameter), view in zip(trainable(module), layout.views(row), strict=True):
        view.copy_(parameter.detach())
        parameter.data = view


def trainable(module: torch.nn.Module) -> list[tuple[str, torch.nn.Parameter]]:
    """Return the parameters that training changes, in state-dict order, with tied ones once."""
    return [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]


def mean_into(rows: Sequence[Tensor], weights: Sequence[float], total: float | None = None, *, part: slice = slice(None)) -> None:
    """Replace N equal-length vectors by their weighted mean, in place; or by their weighted sum divided by another `total`.

    The sum runs in the given order in float64, is divided by the sum of weights last, and is rounded once. Each number depends
    only on its own column, so different workers may average different slices and still give the same bits.

    `part`: the numbers to replace.
    """
    _mean(rows, rows, weights, float(sum(weights)) if total is None else total, part)


def share_into(
    target: Tensor, rows: Sequence[Tensor], weights: Sequence[float], total: float, *, part: slice = slice(None)
) -> None:
    """Write into `target` the part of a mean that comes from `rows`, summed as in `mean_into`. `total`: the weight of all vectors."""
    _mean([target], rows, weights, total, part)


def _mean(targets: Sequence[Tensor], rows: Sequence[Tensor], weights: Sequence[float], total: float, part: slice) -> None:
    """Write sum_i w_i x_i / total into all targets."""
    adding = torch.float64
    if len(rows) == 2 and weights[0] == weights[1] and (share := weights[0] / total) in (0.5, 1.0):
        weights, total, adding = (share, share), 1.0, rows[0].dtype  # halving is exact, and a sum of two is rounded once
    start, stop, _ = part.indices(rows[0].numel())
    if compiled := compiled_for(rows[0]):
        addresses, written = (array.array("Q", [row.data_ptr() for row in group]) for group in (rows, targets))
        of_rows, of_targets = addresses.buffer_info()[0], written.buffer_info()[0]
        by_rank = array.array("d", weights)
        compiled.mean(of_rows, by_rank.buffer_info()[0], len(rows), start, stop, total, of_targets, len(targets))
        return
    accumulator = torch.empty(min(CHUNK, stop - start), dtype=adding)
    for first in range(start, stop, CHUNK):
        chunk = slice(first, min(first + CHUNK, stop))
        sums = accumulator[: chunk.stop - chunk.start]
        torch.mul(rows[0][chunk].to(adding), weights[0], out=sums)
        for row, weight in zip(rows[1:], weights[1:], strict=True):
            sums.add_(row[chunk].to(adding), alpha=weight)
        sums.div_(total)
        for target in targets:
            target[chunk].copy_(sums)


def first_non_finite(x: Tensor) -> int | None:
    """Return the index of the first NaN or Inf of a vector (d,), or None."""
    if compiled := compiled_for(x):
        index = compiled.first_non_finite(x.data_ptr(), x.numel())
        return None if index < 0 else index
    if math.isfinite(float(x.sum())):  # one cheap pass proves that all are finite
        return None
    places = torch.nonzero(~torch.isfinite(x))
    return int(places[0]) if len(places) else None


def compiled_for(x: Tensor) -> ctypes.CDLL | None:
    """Return the code compiled for x's type of numbers; None without a C compiler, or if C cannot read x in its order."""
    return _compiled(x.dtype) if x.is_cpu and x.is_contiguous() else None


@cache
def _compiled(dtype: torch.dtype) -> ctypes.CDLL | None:
    if dtype not in DEFINITIONS:
        return None
    try:
        code = library(Path(__file__).with_name("flat.c"), DEFINITIONS[dtype])
    except CannotCompile:  # the engine of plain stacks reports it; here it costs some microseconds a meeting
        return None
    code.mean.argtypes = [c_void_p, c_void_p, c_int64, c_int64, c_int64, c_double, c_void_p, c_int64]
    code.mean.restype = None
    code.first_non_finite.argtypes, code.first_non_finite.restype = [c_void_p, c_int64], c_int64
    return code


class SparseVector(NamedTuple):
    """A vector with few non-zero entries, on the CPU: the content of a compressed message."""

    indices: Tensor | None
    """Increasing indices (n,) of the entries; None: all."""
    values: Tensor
    """(n,)"""

    def dense(self, d: int) -> Tensor:
        """Return the dense vector (d,)."""
        return self.values if self.indices is None else self.put(self.values.new_empty(d))

    def put(self, x: Tensor) -> Tensor:
        """Write the dense vector into x (d,), and return x."""
        if self.indices is None:
            return x.copy_(self.values)
        x.zero_()
        x[self.indices] = self.values.to(x)
        return x
