"""Floating-point numbers in fewer bits. Every receiver decodes the same bits; the sender keeps the difference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from partrain.rules.compression.bit_packing import Bytes, pack, unpack

if TYPE_CHECKING:
    from torch import Tensor

    from partrain.rules.compression.precision import Precision

LEVELS = 4
SIGMAS = 6
"""Standard deviations that the four bins span, before the outer two are extended without end."""


def pack_values(values: Tensor, precision: Precision) -> Bytes:
    """Encode values (n,) as `packed_bytes` bytes."""
    import torch

    values = values.detach().cpu()
    if precision == "2bit":
        levels, codes = quantise(values.float())
        return np.concatenate([levels.numpy().view(np.uint8), pack(codes.numpy(), 2)])
    dtype = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[precision]
    packed: Bytes = values.to(dtype).contiguous().view(torch.uint8).numpy()
    return packed


def unpack_values(code: Bytes, count: int, precision: Precision) -> Tensor:
    """Decode values, float32 (n,)."""
    import torch

    if not count:
        return torch.zeros(0)  # torch cannot view an empty tensor of bytes as numbers
    raw = torch.from_numpy(code.copy())
    if precision == "2bit":
        levels = raw[: 4 * LEVELS].view(torch.float32)
        return levels[torch.from_numpy(unpack(code[4 * LEVELS :], count, 2))]
    return raw.view({"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[precision]).float()


def packed_bytes(count: int, precision: Precision) -> int:
    """Compute the length of `count` packed values."""
    return {"fp32": 4 * count, "fp16": 2 * count, "bf16": 2 * count, "2bit": 4 * LEVELS - (-count // 4)}[precision]


def quantise(values: Tensor) -> tuple[Tensor, Tensor]:
    """Choose four levels, float32 (4,), and each value's level, int64 (n,).

    Bins have equal width, by mean and standard deviation. A level is the mean of the values in its bin: equal values do not change,
    and the sum of all values is kept.
    """
    import torch

    shift = values.double().mean() if len(values) else torch.zeros((), dtype=torch.float64)
    centered = values.double() - shift
    width = SIGMAS * (centered.square().sum() / max(len(values) - 1, 1)).sqrt() / LEVELS
    if not width > 0:
        width = torch.ones_like(width)
    codes = (centered / width + LEVELS // 2).round().clamp(0, LEVELS - 1).nan_to_num(0).long()
    sums = torch.zeros(LEVELS, dtype=torch.float64).index_add_(0, codes, centered)
    levels = shift + sums / torch.bincount(codes, minlength=LEVELS).clamp(min=1)
    return levels.float(), codes
