"""Messages of some or all entries of a vector (d,): encode and decode. A message is flat, bytes on the CPU.

form | count | content of each entry | indices       some entries, in increasing order; or, for signs,
form | two bits for each of the d entries            all of them: none, plus, minus
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from partrain.flat import SparseVector
from partrain.rules.compression.bit_packing import Bytes, Integers, pack, pack_indices, unpack, unpack_indices
from partrain.rules.compression.quantize import pack_values, packed_bytes, unpack_values

if TYPE_CHECKING:
    from torch import Tensor

    from partrain.rules.compression.precision import Precision

MAP = 2
"""The form of a map of all d entries; `bit_packing` defines the others."""
HEAD = 5
"""Bytes of form and count."""
SAMPLE = 16
"""Stride of the sample in which `largest` looks first."""
STEP = 4
"""Bytes of a threshold."""


def total(vectors: list[SparseVector], weights: list[float], d: int) -> Tensor:
    """Compute sum_i w_i v_i (d,) of decoded vectors on the CPU: in the given order, in float64, so the same bits everywhere."""
    import torch

    result = np.zeros(d)  # numpy's, whose scattered additions are faster
    for (index, values), weight in zip(vectors, weights, strict=True):
        result[slice(None) if index is None else index.numpy()] += values.double().numpy() * weight
    return torch.from_numpy(result)


def raw_message(x: Tensor) -> Tensor:
    """Encode the vector unchanged."""
    import torch

    return x.detach().cpu().contiguous().view(torch.uint8).clone()


def read_raw(message: Tensor, d: int) -> SparseVector:
    """Decode a vector of float32 or float64, by the message's length."""
    import torch

    return SparseVector(None, message.view(torch.float64 if len(message) == 8 * d else torch.float32))


def dense_message(x: Tensor, precision: Precision) -> Tensor:
    """Encode all entries, rounded."""
    return _tensor(pack_values(x, precision))


def read_dense(message: Tensor, d: int, precision: Precision) -> SparseVector:
    return SparseVector(None, unpack_values(message.numpy(), d, precision))


def sparse_message(index: Tensor, values: Tensor, d: int, precision: Precision) -> Tensor:
    """Encode the entries of x at increasing indices (n,)."""
    form, code = pack_indices(index.cpu().numpy(), d)
    return _tensor(_head(form, len(index)), pack_values(values, precision), code)


def read_sparse(message: Tensor, d: int, precision: Precision) -> SparseVector:
    import torch

    form, count, rest = _read_head(message.numpy())
    middle = packed_bytes(count, precision)
    index = unpack_indices(form, rest[middle:], count, d)
    return SparseVector(torch.from_numpy(index), unpack_values(rest[:middle], count, precision))


def sign_message(x: Tensor, threshold: float) -> tuple[Tensor, Tensor, int]:
    """Encode the signs of the entries of at least the threshold's magnitude.

    Return the message, the vector (d,) it decodes to (+-threshold or zero), and the number of signs. The message starts with the
    threshold. Threshold zero sends the vector unchanged; a vector that is not finite becomes NaN.
    """
    import torch

    step = float(np.float32(threshold))
    if step == 0:
        return _tensor(_of(step), raw_message(x).numpy()), x.clone(), int(x.count_nonzero())
    index = where_not_below(x.abs(), step)
    values = x[index]
    if not values.isfinite().all():
        step, index, values = math.nan, torch.arange(len(x), device=x.device), x
    positive = values > 0
    message = _tensor(_of(step), _signs(index.cpu().numpy(), positive.cpu().numpy(), len(x)))
    sent = x.new_zeros(len(x))
    sent[index] = positive.to(x.dtype) * (2 * step) - step
    return message, sent, len(index)


def where_not_below(x: Tensor, least: float) -> Tensor:
    """Find the entries of x (d,) that are not below a number, NaN included: increasing indices (n,)."""
    import torch

    if not x.is_cpu:
        return (~(x < least)).nonzero().view(-1)
    return torch.from_numpy(np.flatnonzero(~(x.numpy() < least)))  # takes a sixth of torch's time


def largest(x: Tensor, k: int) -> Tensor:
    """Find the k largest entries of x (d,): indices (k,), in no order; NaN is larger than any number.

    A sample gives a lower bound, so topk has to compare few entries and takes a fifth of the time.
    """
    sample = x[::SAMPLE]
    reach = k * 3 // (2 * SAMPLE) + SAMPLE  # one and a half times the expected number, because samples vary
    if not x.is_cpu or reach > len(sample) // 2:
        return x.topk(k, sorted=False).indices
    few = where_not_below(x, float(sample.topk(reach).values[-1]))
    return few[x[few].topk(k, sorted=False).indices] if len(few) >= k else x.topk(k, sorted=False).indices


def read_signs(message: Tensor, d: int) -> SparseVector:
    import torch

    code = message.numpy()
    step = code[:STEP].copy().view("<f4")[0]
    if step == 0:
        return read_raw(message[STEP:].clone(), d)
    if code[STEP] == MAP:
        signs = unpack(code[STEP + 1 :], d, 2)
        return SparseVector(None, torch.from_numpy(np.array([0, step, -step], np.float32)[signs]))
    form, count, rest = _read_head(code[STEP:])
    middle = -(-count // 8)
    positive = np.unpackbits(rest[:middle], count=count, bitorder="little")
    index = unpack_indices(form, rest[middle:], count, d)
    return SparseVector(torch.from_numpy(index), torch.from_numpy(np.where(positive, step, -step)))


def _signs(index: Integers, positive: Bytes, d: int) -> Bytes:
    """Encode signs in the shorter of the sparse form and the map."""
    form, code = pack_indices(index, d)
    sparse = np.concatenate([_head(form, len(index)), np.packbits(positive, bitorder="little"), code])
    return sparse if len(sparse) <= 1 + -(-d // 4) else sign_map(index, positive, d)


def sign_map(index: Integers, positive: Bytes, d: int) -> Bytes:
    """Encode signs as a map: the form, and two bits for each of d entries."""
    signs = np.zeros(d, np.int64)
    signs[index] = np.where(positive, 1, 2)
    return np.concatenate([np.array([MAP], np.uint8), pack(signs, 2)])


def _of(step: float) -> Bytes:
    return np.array([step], "<f4").view(np.uint8)


def _head(form: int, count: int) -> Bytes:
    return np.concatenate([np.array([form], np.uint8), np.array([count], "<u4").view(np.uint8)])


def _read_head(code: Bytes) -> tuple[int, int, Bytes]:
    return int(code[0]), int(code[1:HEAD].copy().view("<u4")[0]), code[HEAD:]


def _tensor(*parts: Bytes) -> Tensor:
    import torch

    return torch.from_numpy(np.concatenate(parts))
