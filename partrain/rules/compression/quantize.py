"""Floating-point numbers in fewer bits. What a receiver decodes has the same bits everywhere; what is lost, the sender keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

from typing import TYPE_CHECKING

import numpy as np

from partrain.rules.compression.bit_packing import Bytes, pack, unpack

if TYPE_CHECKING:
    from torch import Tensor


LEVELS = 4
SIGMAS = 6
"""The two inner bounds between levels are this / 4 standard deviations apart; the outer levels have no end."""


def pack_values(values: Tensor, precision: Precision) -> Bytes:
    """Values (n,) as `packed_bytes` bytes."""
    import torch

    values = values.detach().cpu()
    if precision == "2bit":
        levels, codes = quantise(values.float())
        return np.concatenate([levels.numpy().view(np.uint8), pack(codes.numpy(), 2)])
    dtype = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[precision]
    packed: Bytes = values.to(dtype).contiguous().view(torch.uint8).numpy()
    return packed


def unpack_values(code: Bytes, count: int, precision: Precision) -> Tensor:
    """What a receiver makes of them, float32 (n,)."""
    import torch

    if not count:
        return torch.zeros(0)  # torch cannot view no bytes as no numbers
    raw = torch.from_numpy(code.copy())
    if precision == "2bit":
        levels = raw[: 4 * LEVELS].view(torch.float32)
        return levels[torch.from_numpy(unpack(code[4 * LEVELS :], count, 2))]
    return raw.view({"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[precision]).float()


def packed_bytes(count: int, precision: Precision) -> int:
    """Length of what `pack_values` makes of so many values."""
    return {"fp32": 4 * count, "fp16": 2 * count, "bf16": 2 * count, "2bit": 4 * LEVELS - (-count // 4)}[precision]


def quantise(values: Tensor) -> tuple[Tensor, Tensor]:
    """Four levels, float32 (4,), and which of them each value becomes, int64 (n,).

    Bins of equal width, by mean and standard deviation; a level is the mean of the values in its bin, so that equal values stay
    what they are and the sum of all is kept.
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


Precision = Literal["fp32", "fp16", "bf16", "2bit"]
"""Of a value in a message: IEEE single and half precision, bfloat16, or one of four levels that the message brings along."""
