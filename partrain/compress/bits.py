"""Whole numbers as bits, least significant first: fixed widths, unary, and increasing indices in the cheaper of two forms."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Integers = NDArray[np.int64]

FIXED, RICE = 0, 1
"""Forms of increasing indices below d: ceil(log2 d) bits each; or Golomb-Rice codes of the gaps between them."""


def pack(values: Integers, width: int) -> Bytes:
    """Numbers below 2**width, width <= 32, in ceil(n * width / 8) bytes."""
    words = values.astype("<u4").view(np.uint8).reshape(-1, 4)
    return np.packbits(np.unpackbits(words, axis=1, count=width, bitorder="little"), bitorder="little")


def unpack(code: Bytes, count: int, width: int) -> Integers:
    """The inverse of `pack`."""
    bits = np.zeros((count, 32), np.uint8)
    bits[:, :width] = np.unpackbits(code, count=count * width, bitorder="little").reshape(count, width)
    return np.packbits(bits, axis=1, bitorder="little").view("<u4").reshape(count).astype(np.int64)


def pack_unary(values: Integers) -> Bytes:
    """Each number as so many zeros and a one."""
    ends = np.cumsum(values + 1) - 1
    bits = np.zeros(ends[-1] + 1 if len(ends) else 0, np.uint8)
    bits[ends] = 1
    return np.packbits(bits, bitorder="little")


def unpack_unary(code: Bytes, count: int) -> Integers:
    """The inverse of `pack_unary`."""
    ends = np.flatnonzero(np.unpackbits(code, bitorder="little"))[:count]
    return np.diff(ends, prepend=-1) - 1


def pack_indices(index: Integers, d: int) -> tuple[int, Bytes]:
    """Form and code of increasing indices below d, whichever is shorter."""
    fixed, rice = pack_fixed(index, d), pack_rice(index)
    return (RICE, rice) if len(rice) < len(fixed) else (FIXED, fixed)


def unpack_indices(form: int, code: Bytes, count: int, d: int) -> Integers:
    """The inverse of `pack_indices`."""
    return unpack(code, count, _width(d)) if form == FIXED else unpack_rice(code, count)


def pack_fixed(index: Integers, d: int) -> Bytes:
    return pack(index, _width(d))


def pack_rice(index: Integers) -> Bytes:
    """Gaps between increasing indices: the low b bits of each, then the rest in unary; b, the first byte, is the best there is.

    That all low bits come before all unary ones changes no length and lets whole arrays be decoded at once (Elias-Fano).

    Source: Rice. Some Practical Universal Noiseless Coding Techniques. 1979. JPL 79-22
    """
    gaps = np.diff(index, prepend=-1) - 1
    most = int(gaps.max(initial=0)).bit_length()
    low = min(range(most + 1), key=lambda b: len(gaps) * b + int((gaps >> b).sum()))
    return np.concatenate([np.array([low], np.uint8), pack(gaps & ((1 << low) - 1), low), pack_unary(gaps >> low)])


def unpack_rice(code: Bytes, count: int) -> Integers:
    low = int(code[0])
    middle = 1 + -(-count * low // 8)
    gaps = (unpack_unary(code[middle:], count) << low) | unpack(code[1:middle], count, low)
    return np.cumsum(gaps + 1) - 1


def _width(d: int) -> int:
    return (d - 1).bit_length()
