"""Decoding of a checkpoint. Checks run in a safe order: size, header and digest; then structure, manifest and numbers.

All steps work on one copy in memory, so a file that changes meanwhile has no effect. HDF5 never reads numbers: they have the same
bytes in the file as in memory, at offsets that `structure` has checked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partrain.checkpoint.content import (
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
from partrain.checkpoint.hdf5 import stored_dtype
from partrain.checkpoint.header import SIZE, Header, parse
from partrain.checkpoint.structure import Extent, read_structure

FINITE = ("model/", "optimizer/", "training/", "workers/")
"""Groups whose floats must be finite: training resumes from them. A history may hold NaN."""


def decode(data: bytes, allow_nonfinite: bool = False) -> tuple[Header, Content]:
    """Decode a whole file. ContentRefused if any byte is wrong. The arrays are copies and may be written to."""
    header = parse(data[:SIZE])
    header.check(memoryview(data)[SIZE:])
    extents = read_structure(data)
    manifest, listed = _manifest(data, extents)
    _compare(listed, extents)
    job = _read_array(data, JOB, extents[JOB], listed[JOB])
    arrays = {path: _read_array(data, path, extents[path], listed[path]) for path in sorted(set(extents) - {JOB, MANIFEST})}
    _check_meaning(header, manifest, arrays)
    if not allow_nonfinite:
        _check_finite(arrays)
    return header, Content(arrays, _text(job, JOB), manifest)


def _manifest(data: bytes, extents: Mapping[str, Extent]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the manifest as the writer received it, and its list of datasets."""
    extent = extents.get(MANIFEST)
    if extent is None or extent.dtype.kind != "S" or extent.shape:
        raise ContentRefused("it has no manifest")
    manifest = parse_manifest(data[extent.start : extent.start + extent.nbytes])
    listed = manifest.pop(DATASETS, None)
    if not isinstance(listed, dict) or JOB not in listed:
        raise ContentRefused("its manifest lists no datasets")
    for path, entry in listed.items():
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "sha256"}:
            raise ContentRefused(f"the manifest's entry of {path[:80]!r} has other keys than dtype, shape and sha256")
    return manifest, listed


def _compare(listed: Mapping[str, Mapping[str, Any]], extents: Mapping[str, Extent]) -> None:
    """Refuse datasets that the manifest does not list, missing ones, and ones whose type or shape differs from it."""
    for path in sorted(set(listed) ^ (set(extents) - {MANIFEST})):
        raise ContentRefused(f"{path[:80]!r} is {'missing' if path in listed else 'not in the manifest'}")
    for path, entry in listed.items():
        extent, kind = extents[path], entry["dtype"]
        known = path == JOB or kind in DTYPES
        if not known or extent.kind != stored_dtype(kind) or entry["shape"] != list(extent.shape):
            raise ContentRefused(f"{path!r} is {extent.kind} {extent.shape}, which differs from the manifest")


def _read_array(data: bytes, path: str, extent: Extent, entry: Mapping[str, Any]) -> NDArray[Any]:
    """Copy the numbers of one dataset into an array that owns its memory."""
    count = extent.nbytes // extent.dtype.itemsize
    array = np.frombuffer(data, extent.dtype, count, extent.start).reshape(extent.shape).copy()
    if hashlib.sha256(array.data).hexdigest() != entry["sha256"]:
        raise ContentRefused(f"the numbers of {path!r} do not match their SHA-256")
    if entry["dtype"] != "bool":
        return array
    if (array > 1).any():
        raise ContentRefused(f"{path!r} holds booleans other than 0 and 1")
    return array.view(np.bool_)


def _text(array: NDArray[Any], path: str) -> str:
    """Decode a fixed-length string (). The empty text is stored as one zero byte; no other text contains one."""
    data = b"" if array.tobytes() == b"\0" else array.tobytes()
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ContentRefused(f"{path!r} is not UTF-8 text") from None
    if "\0" in text:
        raise ContentRefused(f"{path!r} holds a zero byte")
    return text


def _check_meaning(header: Header, manifest: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    check(manifest, arrays)
    if (header.run, header.round) != (manifest["run"], manifest["round"]):
        raise ContentRefused("header and manifest name different runs or rounds")
    if "history/round" in arrays:
        check_history(arrays["history/round"], header.round)


def _check_finite(arrays: Mapping[str, NDArray[Any]]) -> None:
    for path, array in arrays.items():
        if path.startswith(FINITE) and array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ContentRefused(f"{path!r} holds NaN or infinite numbers")
