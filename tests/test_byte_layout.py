"""Arrays in one buffer: aligned, and seen without a copy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from partrain.byte_layout import offsets, view
from partrain.data.base import ArrayField, fingerprint_of, lay_out


def test_each_array_begins_on_a_cache_line() -> None:
    assert list(offsets([1, 64, 0, 65, 3])) == [0, 64, 128, 128, 256]
    assert list(offsets([])) == []


def test_a_view_shares_the_bytes() -> None:
    buffer = bytearray(np.arange(6, dtype="<f4").tobytes())
    array = view(memoryview(buffer), "float32", (2, 3))
    array[1, 2] = 9
    assert np.frombuffer(buffer, "<f4").tolist() == [0, 1, 2, 3, 4, 9]
    assert view(memoryview(buffer)[:0], "int64", (0, 2)).shape == (0, 2)


def test_windows_overlap() -> None:
    buffer = memoryview(np.arange(4, dtype="<i8").tobytes())
    assert view(buffer, "int64", (3, 2), (8, 8)).tolist() == [[0, 1], [1, 2], [2, 3]]


class Renamed(ArrayField):
    """A field of another class and `repr`."""

    def __repr__(self) -> str:
        return "Renamed()"


def test_fingerprints_hash_named_fields() -> None:
    """Neither the name of a class nor its `repr` is part of them."""
    fields = lay_out({"inputs": ("float32", (3, 2)), "targets": ("int64", (3,))})
    content = memoryview(bytes(fields[-1].end))
    renamed = tuple(Renamed(**vars(field)) for field in fields)
    assert fingerprint_of(renamed, content, {"windows": renamed}) == fingerprint_of(fields, content, {"windows": fields})
    assert fingerprint_of((replace(fields[0], offset=64), fields[1]), content) != fingerprint_of(fields, content)
