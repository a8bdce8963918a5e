"""Checkpoints: one valid HDF5 file, read without HDF5; equal states give equal bytes.

    content     the arrays, job and manifest        header      512 checked bytes before the HDF5 image
    writer      content -> bytes, with h5py         reader      bytes -> content, with numpy only
    files       bytes <-> disk, whole or absent     manifest    the origin of a checkpoint
    describe    content -> outline for people       section     the `[checkpoint]` table

A checkpoint is data. Nothing in it decides what is imported, and no pickle is read or written. The digests find damage; they
are not signatures. `decode` takes bytes, `read` a file; both check every byte and return a `Content`. `verify` reads a file and
returns only a summary. Importing this package loads neither numpy nor h5py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from partrain.checkpoint.content import Content, ContentRefused
from partrain.checkpoint.files import MAX_BYTES, copy_file, link_best, link_latest, prune, round_path, write
from partrain.errors import BadCheckpoint
from partrain.record.file_names import BEST

__all__ = [
    "Content",
    "copy_file",
    "decode",
    "encode",
    "link_best",
    "link_latest",
    "prune",
    "read",
    "read_best",
    "round_path",
    "verify",
    "write",
]


def encode(content: Content) -> bytes:
    """Encode a checkpoint. Equal contents give equal bytes, independent of the order of their arrays.

    Raises ValueError for a content that `read` would refuse (bad paths, complex numbers, NaN in the manifest, ragged history).
    """
    from partrain.checkpoint import writer

    return writer.encode(content)


def decode(data: bytes, name: str = "checkpoint", *, allow_nonfinite: bool = False) -> Content:
    """Decode the bytes of a checkpoint. Raises BadCheckpoint (65), whose message begins with `name`, if any byte is wrong.

    Floats under `model/` and `workers/` must be finite unless `allow_nonfinite`. The arrays own their memory.
    """
    from partrain.checkpoint import reader

    try:
        return reader.decode(data, allow_nonfinite=allow_nonfinite)[1]
    except ContentRefused as problem:
        raise _bad(name, problem) from None


def read(path: Path, *, allow_nonfinite: bool = False, max_bytes: int = MAX_BYTES) -> Content:
    """Read a checkpoint file. Raises InputMissing (66) if it cannot be read, BadCheckpoint (65) if its content is damaged.

    A file of more than `max_bytes` is refused before it is read.
    """
    return decode(_bytes(path, max_bytes), str(path), allow_nonfinite=allow_nonfinite)


def read_best(folder: Path, number: int) -> Content | None:
    """Read the checkpoint of a run's best round; None if it is gone. A folder that a run was resumed into may have only `best.h5`."""
    if (path := round_path(folder, number)).exists():
        return read(path)
    best = folder / BEST
    content = read(best) if best.exists() else None
    return content if content and content.round == number else None


def verify(path: Path, *, allow_nonfinite: bool = False, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """Check a file as `read` does, and every field of its manifest. Return its summary.

    The summary is {file, format, run, round, bytes, sha256, datasets}; `sha256` covers the whole file.
    """
    import hashlib

    from partrain.checkpoint.header import FORMAT
    from partrain.checkpoint.manifest import manifest_of

    data = _bytes(path, max_bytes)
    content = decode(data, str(path), allow_nonfinite=allow_nonfinite)
    manifest_of(content, str(path))
    return {
        "file": str(path),
        "format": FORMAT,
        "run": content.run,
        "round": content.round,
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "datasets": len(content.arrays),
    }


def _bytes(path: Path, max_bytes: int) -> bytes:
    from partrain.checkpoint import files

    try:
        return files.read(path, max_bytes)
    except ContentRefused as problem:
        raise _bad(str(path), problem) from None


def _bad(name: str, problem: ContentRefused) -> BadCheckpoint:
    return BadCheckpoint(f"{name}: {problem}; {problem.advice}")
