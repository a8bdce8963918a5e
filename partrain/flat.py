"""One network as one vector: parameters become views of a flat row, so that rules read like linear algebra.

Shapes: d numbers in the flat vector, padding included; N rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

ALIGNMENT = 64
"""Bytes: each tensor of a row starts on a cache line. The padding between tensors is zero and stays zero."""

CHUNK = 1 << 15
"""Numbers averaged at a time: the float64 accumulator of a chunk (256 KiB) stays in the cache."""


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
    """Positions of named tensors in a flat row of one dtype."""

    fields: tuple[TensorField, ...]
    size: int
    """d, a multiple of the alignment."""
    dtype: torch.dtype

    @classmethod
    def of(cls, tensors: Iterable[tuple[str, Tensor]], dtype: torch.dtype) -> Layout:
        """Lay tensors out one after the other. TypeError if one has another dtype than the row."""
        step = ALIGNMENT // dtype.itemsize
        fields, start = [], 0
        for name, tensor in tensors:
            if tensor.dtype != dtype:
                raise TypeError(f"tensor `{name}` is {tensor.dtype}, the others are {dtype}: one row holds one type")
            fields.append(TensorField(name, tuple(tensor.shape), start))
            start += -(-tensor.numel() // step) * step
        return cls(tuple(fields), start, dtype)

    def views(self, row: Tensor) -> list[Tensor]:
        """Return all tensors as views of a row (d,)."""
        return [field.view(row) for field in self.fields]

    def name_at(self, index: int) -> str:
        """Return the name of the tensor that the number at `index` of a row belongs to."""
        return next(field.name for field in reversed(self.fields) if field.start <= index)


def adopt(module: torch.nn.Module, layout: Layout, row: Tensor) -> None:
    """Move a module's parameters into a row (d,): copy the values, then make each parameter a view of the row."""
    for (_, parameter), view in zip(trainable(module), layout.views(row), strict=True):
        view.copy_(parameter.detach())
        parameter.data = view


def trainable(module: torch.nn.Module) -> list[tuple[str, torch.nn.Parameter]]:
    """Return the parameters that training changes, in state-dict order, tied ones once."""
    return [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]


def mean_into(rows: Sequence[Tensor], weights: Sequence[float], total: float | None = None) -> None:
    """Replace N equal-length vectors by their weighted mean, in place; or by their weighted sum divided by another `total`.

    The sum runs in the given order in float64, is divided by the sum of weights last, and is rounded once. Each number depends
    only on its own column, so different workers may average different slices and still give the same bits.
    """
    if len(rows) == 2 and weights[0] == weights[1] and total in (None, weights[0]):
        # Halving is exact and a sum of two is rounded once: the same bits in a third of the time.
        share = 0.5 if total is None else 1.0
        for first, second in _chunks(*rows):
            first.mul_(share).add_(second, alpha=share)
            second.copy_(first)
        return
    total = float(sum(weights)) if total is None else total
    for chunk, mean in _weighted_sums(rows, weights):
        mean.div_(total)
        for row in rows:
            row[chunk].copy_(mean)


def _chunks(*vectors: Tensor) -> Iterator[Sequence[Tensor]]:
    """Yield parts of equal-length vectors that stay in the cache, side by side."""
    short = vectors[0].numel() <= CHUNK
    return iter([vectors]) if short else zip(*(torch.split(vector, CHUNK) for vector in vectors), strict=True)


def share_into(target: Tensor, rows: Sequence[Tensor], weights: Sequence[float], total: float) -> None:
    """Write into `target` the part of a mean that comes from `rows`, summed as in `mean_into`. `total`: the weight of all vectors."""
    for chunk, share in _weighted_sums(rows, weights):
        target[chunk].copy_(share.div_(total))


def _weighted_sums(rows: Sequence[Tensor], weights: Sequence[float]) -> Iterator[tuple[slice, Tensor]]:
    """Yield sum_i w_i x_i in float64, chunk by chunk, each with its slice of the vector."""
    length = rows[0].numel()
    accumulator = torch.empty(min(CHUNK, length), dtype=torch.float64)
    for start in range(0, length, CHUNK):
        chunk = slice(start, min(start + CHUNK, length))
        sums = accumulator[: chunk.stop - start]
        torch.mul(rows[0][chunk].double(), weights[0], out=sums)
        for row, weight in zip(rows[1:], weights[1:], strict=True):
            sums.add_(row[chunk].double(), alpha=weight)
        yield chunk, sums


def first_non_finite(x: Tensor) -> int | None:
    """Return the index of the first NaN or Inf of a vector (d,), or None. A finite sum proves in one cheap pass that there is none."""
    if math.isfinite(float(x.sum())):
        return None
    places = torch.nonzero(~torch.isfinite(x))
    return int(places[0]) if len(places) else None


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
