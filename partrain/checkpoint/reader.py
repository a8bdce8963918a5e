"""Decoding of a checkpoint. Checks run in a safe order: size, header and digest; then manifest, places and numbers.

All steps work on one copy in memory, so a file that changes meanwhile has no effect. The reader does not use the HDF5 library:
numbers have the same bytes in the file as in memory, at the places that the manifest gives.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partrain.checkpoint.content import (
    ALIGNED_FROM,
    ALIGNMENT,
    DATASETS,
    DTYPES,
    JOB,
    MANIFEST,
    Content,
    ContentRefused,
    check,
    check_history,
    parse_manifest,
)
from partrain.checkpoint.header import SIZE, Header, parse

FINITE = ("model/", "optimizer/", "training/", "workers/")
"""Groups whose floats must be finite: training resumes from them. A history may hold NaN."""
_TEXT = re.compile(r"S([1-9][0-9]{0,18})")


@dataclass(frozen=True)
class Extent:
    """One dataset as the manifest lists it."""

    dtype: str
    """Name of its number type, or `S<n>` for a text of n bytes."""
    shape: tuple[int, ...]
    start: int
    """First byte, from the file's beginning; 0 for an empty dataset."""
    nbytes: int
    sha256: str
    """SHA-256 of its bytes, in hex."""


def decode(data: bytes, *, allow_nonfinite: bool = False) -> tuple[Header, Content]:
    """Decode a whole file. Raises ContentRefused if any byte is wrong. The arrays are writable copies."""
    header = parse(data[:SIZE])
    header.check(memoryview(data)[SIZE:])
    start, length = header.manifest
    manifest = parse_manifest(data[start : start + length])
    listed = manifest.pop(DATASETS, None)
    if not isinstance(listed, dict) or JOB not in listed:
        raise ContentRefused("its manifest lists no datasets")
    extents = {path: _extent(path, entry) for path, entry in listed.items()}
    _check_apart(
        {path: (extent.start, extent.nbytes) for path, extent in extents.items()} | {MANIFEST: header.manifest}, len(data)
    )
    job = _text(_bytes(data, JOB, extents.pop(JOB)))
    check(manifest, extents)
    arrays = {path: _read_array(data, path, extent) for path, extent in extents.items()}
    if (header.run, header.round) != (manifest["run"], manifest["round"]):
        raise ContentRefused("header and manifest name different runs or rounds")
    if "history/round" in arrays:
        check_history(arrays["history/round"], header.round)
    if not allow_nonfinite:
        _check_finite(arrays)
    return header, Content(arrays, job, manifest)


def _extent(path: str, entry: Any) -> Extent:
    """Check a dataset's entry in the manifest."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "offset", "sha256"}:
        raise ContentRefused(f"the manifest's entry of {path[:80]!r} has other keys than dtype, shape, offset and sha256")
    dtype, shape, start = entry["dtype"], entry["shape"], entry["offset"]
    text = _TEXT.fullmatch(dtype) if path == JOB and isinstance(dtype, str) else None
    if text is None and (path == JOB or dtype not in DTYPES):
        raise ContentRefused(f"the manifest's entry of {path[:80]!r} has the type {str(dtype)[:40]!r}")
    counts = (start, *shape) if isinstance(shape, list) else (None,)
    if any(type(count) is not int or not 0 <= count < 2**63 for count in counts) or (text and shape):
        raise ContentRefused(f"the manifest's entry of {path[:80]!r} has no right shape and offset")
    width = int(text[1]) if text else np.dtype(dtype).itemsize
    if math.prod(max(1, length) for length in shape) * width >= 2**63:
        raise ContentRefused(f"{path[:80]!r} has more numbers than a memory can hold")
    return Extent(dtype, tuple(shape), start, math.prod(shape) * width, entry["sha256"])


def _check_apart(places: Mapping[str, tuple[int, int]], size: int) -> None:
    """Refuse places (first byte, bytes) that overlap, reach outside the file, or are not where the writer puts them."""
    end = SIZE
    for (start, nbytes), path in sorted((place, path) for path, place in places.items()):
        if not nbytes and not start:
            continue
        if start < end or start + nbytes > size:
            raise ContentRefused(f"{path[:80]!r} overlaps other data or lies outside the file")
        if not nbytes or (nbytes >= ALIGNED_FROM and start % ALIGNMENT):
            raise ContentRefused(f"{path[:80]!r} does not begin where a dataset of {nbytes} bytes does")
        end = start + nbytes


def _bytes(data: bytes, path: str, extent: Extent) -> memoryview:
    """Return the bytes of one dataset, which must match its digest."""
    part = memoryview(data)[extent.start : extent.start + extent.nbytes]
    if hashlib.sha256(part).hexdigest() != extent.sha256:
        raise ContentRefused(f"the numbers of {path!r} do not match their SHA-256")
    return part


def _read_array(data: bytes, path: str, extent: Extent) -> NDArray[Any]:
    """Copy the numbers of one dataset into an array that owns its memory."""
    dtype = np.dtype("uint8" if extent.dtype == "bool" else extent.dtype).newbyteorder("<")
    array = np.frombuffer(_bytes(data, path, extent), dtype).reshape(extent.shape).copy()
    if extent.dtype != "bool":
        return array
    if (array > 1).any():
        raise ContentRefused(f"{path!r} holds booleans other than 0 and 1")
    return array.view(np.bool_)


def _text(part: memoryview) -> str:
    """Decode the job. The empty text is stored as one zero byte; no other text contains one."""
    data = bytes(part)
    try:
        text = "" if data == b"\0" else data.decode()
    except UnicodeDecodeError:
        raise ContentRefused(f"{JOB!r} is not UTF-8 text") from None
    if "\0" in text:
        raise ContentRefused(f"{JOB!r} holds a zero byte")
    return text


def _check_finite(arrays: Mapping[str, NDArray[Any]]) -> None:
    for path, array in arrays.items():
        if path.startswith(FINITE) and array.dtype.kind in "fc" and not np.isfinite(array).all():
            raise ContentRefused(f"{path!r} holds NaN or infinite numbers")
