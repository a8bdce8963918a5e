"""Sample contents, and a forge that makes wrong files with right digests."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from partrain.checkpoint import Content
from partrain.checkpoint.header import SIZE, Header
from partrain.training.stop import Progress

JOB = 'name = "sample"\n'


def arrays() -> dict[str, np.ndarray]:
    """Return the arrays of a small network after three rounds of two workers."""
    values = {f"model/{name}": np.linspace(-1, 1, size, dtype=np.float32) for name, size in (("0.weight", 12), ("0.bias", 3))}
    workers = {f"workers/{rank}/optimizer/momentum": np.full(15, rank, np.float32) for rank in range(2)}
    history = {"history/round": np.arange(1, 4), "history/loss": np.array([2.0, 1.0, 0.5])}
    judged = {"history/judged_loss": np.array([np.nan, np.nan, 0.6]), "history/items": np.full((3, 2), 640)}
    return {**values, **workers, **history, **judged, "rule/step": np.array(3)}


def manifest(**more: Any) -> dict[str, Any]:
    return {"run": "0123abcd", "round": 3, "item_iterations": 3840, **more}


TRAINED: dict[str, Any] = {
    "format": 1,
    "name": "sample",
    "versions": {},
    "data": "0" * 64,
    "codec": {},
    "folder": "/",
    "horizon": None,
    "network": {"input": [4], "outputs": 3, "task": "classification", "vocabulary": None},
    "workers": [{"rank": rank, "device": "cpu", "threads": 1, "partition": 8} for rank in range(2)],
    "progress": asdict(Progress(round=3)),
}
"""The keys that a training adds to a manifest."""


def content(**more: np.ndarray) -> Content:
    return Content(arrays() | {path.replace("__", "/"): array for path, array in more.items()}, JOB, manifest())


def sealed(payload: bytes, run: str = "0123abcd", number: int = 3) -> bytes:
    """Prefix a payload with its right header."""
    return Header.of(payload, run, number).render() + payload


def entry(array: np.ndarray) -> dict[str, Any]:
    return {"dtype": array.dtype.name, "shape": list(array.shape), "sha256": hashlib.sha256(array.tobytes()).hexdigest()}


def forge(
    change: Callable[[Any], None] | None = None,
    listed: Callable[[dict[str, Any]], None] = lambda datasets: None,
    text: Callable[[str], str] = lambda text: text,
    job: bytes = JOB.encode(),
    more_arrays: dict[str, np.ndarray] | None = None,
    patch: Callable[[bytearray], None] | None = None,
    **more: Any,
) -> bytes:
    """Make a file with right digests, damaged after it was built.

    `change` alters the open h5py file, `patch` then the bytes of the image, `listed` the manifest's list of datasets, `text` its
    text, `more` its keys; `more_arrays` are stored and listed.
    """
    import h5py

    from partrain.checkpoint import writer

    stored = arrays() | (more_arrays or {})
    datasets = {path: entry(array) for path, array in stored.items()}
    datasets["job"] = {"dtype": f"S{len(job)}", "shape": [], "sha256": hashlib.sha256(job).hexdigest()}
    listed(datasets)
    said = text(json.dumps(manifest(**more) | {"datasets": datasets}, sort_keys=True, separators=(",", ":")))
    # Booleans are stored as bytes.
    plain = {path: array.view(np.uint8) if array.dtype == np.bool_ else array for path, array in stored.items()}
    payload = writer._build({**plain, "job": np.array(job), "manifest": np.array(said.encode())})
    buffer = io.BytesIO(bytes(SIZE) + payload)
    if change:
        with h5py.File(buffer, "r+", libver=("v108", "latest")) as file:
            change(file)
    image_bytes = bytearray(buffer.getvalue()[SIZE:])
    end = int.from_bytes(image_bytes[28:36], "little") - SIZE  # space that was reserved and never written to
    image_bytes.extend(bytes(max(0, end - len(image_bytes))))
    if patch:
        patch(image_bytes)
        repair(image_bytes)
    return sealed(bytes(image_bytes))


def put(file: Any, path: str, array: np.ndarray) -> None:
    """Create a dataset as the writer does."""
    file.create_dataset(path, data=array, track_times=False)


def repair(image: bytearray) -> None:
    """Repair the checksums of all object headers, so that HDF5 itself accepts a patch."""
    start = image.find(b"OHDR")
    while start >= 0:
        flags = image[start + 5]
        sizes = start + 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
        width = 1 << (flags & 3)
        end = sizes + width + int.from_bytes(image[sizes : sizes + width], "little")
        image[end : end + 4] = lookup3(image[start:end]).to_bytes(4, "little")
        start = image.find(b"OHDR", end)


def lookup3(data: bytes) -> int:
    """Compute Bob Jenkins' hash of 2006, the checksum of HDF5's metadata."""
    mask = 0xFFFFFFFF
    a = b = c = (0xDEADBEEF + len(data)) & mask

    def rotate(x: int, k: int) -> int:
        return (x << k | x >> (32 - k)) & mask

    while True:
        block, data = data[:12].ljust(12, b"\0"), data[12:]
        a, b, c = ((x + int.from_bytes(block[i : i + 4], "little")) & mask for x, i in ((a, 0), (b, 4), (c, 8)))
        if not data:
            break
        a = (a - c & mask) ^ rotate(c, 4)
        c = c + b & mask
        b = (b - a & mask) ^ rotate(a, 6)
        a = a + c & mask
        c = (c - b & mask) ^ rotate(b, 8)
        b = b + a & mask
        a = (a - c & mask) ^ rotate(c, 16)
        c = c + b & mask
        b = (b - a & mask) ^ rotate(a, 19)
        a = a + c & mask
        c = (c - b & mask) ^ rotate(b, 4)
        b = b + a & mask
    c = (c ^ b) - rotate(b, 14) & mask
    a = (a ^ c) - rotate(c, 11) & mask
    b = (b ^ a) - rotate(a, 25) & mask
    c = (c ^ b) - rotate(b, 16) & mask
    a = (a ^ c) - rotate(c, 4) & mask
    b = (b ^ a) - rotate(a, 14) & mask
    return (c ^ b) - rotate(b, 24) & mask
