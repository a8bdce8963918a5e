"""Whole numbers as bits, least significant first: fixed widths, unary, and increasing indices in the cheaper of two forms."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Integers = NDArray[np.int64]

FIXED, RICE = 0, 1
"""Forms of increasing indices below d: ceil(log2 d) bits each; or Golomb-Rice codes of the gaps between them."""


def pack(values: Integers, width: int) -> Bytes:
    """Pack numbers below 2**width, width <= 32, into ceil(n * width / 8) bytes."""
    words = values.astype("<u4").view(np.uint8).reshape(-1, 4)
    return np.packbits(np.unpackbits(words, axis=1, count=width, bitorder="little"), bitorder="little")


def unpack(code: Bytes, count: int, width: int) -> Integers:
    """Invert `pack`."""
    starts = np.arange(count) * width
    padded = np.zeros(len(code) + 8, np.uint8)
    padded[:-8] = code
    words = np.ndarray(len(code) + 1, "<u8", padded, strides=(1,))  # eight bytes from each byte on
    shifted: Integers = words[starts >> 3].astype(np.int64) >> (starts & 7)
    return shifted & ((1 << width) - 1)


def pack_unary(values: Integers) -> Bytes:
    """Encode each number n as n zeros and a one."""
    ends = np.cumsum(values + 1) - 1
    bits = np.zeros(ends[-1] + 1 if len(ends) else 0, np.uint8)
    bits[ends] = 1
    return np.packbits(bits, bitorder="little")


def ends_of_unary(code: Bytes, count: int) -> Integers:
    """Find the ends of `pack_unary`'s codes: the code of number i ends at the sum of numbers 0 to i, plus i."""
    return np.flatnonzero(np.unpackbits(code, bitorder="little"))[:count]


def pack_indices(index: Integers, d: int) -> tuple[int, Bytes]:
    """Encode increasing indices below d in the shorter form: the form and the code."""
    rice = pack_rice(index)
    return (RICE, rice) if len(rice) < -(-len(index) * _width(d) // 8) else (FIXED, pack_fixed(index, d))


def unpack_indices(form: int, code: Bytes, count: int, d: int) -> Integers:
    """Invert `pack_indices`."""
    return unpack(code, count, _width(d)) if form == FIXED else unpack_rice(code, count)


def pack_fixed(index: Integers, d: int) -> Bytes:
    return pack(index, _width(d))


def pack_rice(index: Integers) -> Bytes:
    """Encode the gaps between increasing indices: b, the low b bits of each gap, then the rest in unary. b is the best choice.

    All low bits come before all unary ones. The length is the same, and whole arrays can be decoded at once (Elias-Fano).

    Source: Rice. Some Practical Universal Noiseless Coding Techniques. 1979. JPL 79-22
    """
    gaps = np.diff(index, prepend=-1) - 1
    low = _best_low(gaps)
    return np.concatenate([np.array([low], np.uint8), pack(gaps & ((1 << low) - 1), low), pack_unary(gaps >> low)])


def _best_low(gaps: Integers) -> int:
    """Find the b with the fewest bits: n b low bits, and sum(gaps >> b) for the unary rest. Their number is convex in b."""

    def bits(b: int) -> int:
        return len(gaps) * b + int((gaps >> b).sum())

    best = int(gaps.mean()).bit_length() if len(gaps) else 0
    while best and bits(best - 1) <= bits(best):
        best -= 1
    while bits(best + 1) < bits(best):
        best += 1
    return best


def unpack_rice(code: Bytes, count: int) -> Integers:
    low = int(code[0])
    middle = 1 + -(-count * low // 8)
    high = ends_of_unary(code[middle:], count) - np.arange(count)
    return (high << low) + np.cumsum(unpack(code[1:middle], count, low) + 1) - 1


def _width(d: int) -> int:
    return (d - 1).bit_length()
