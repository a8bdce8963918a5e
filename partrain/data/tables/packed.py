"""Text files, plain or compressed; the suffix determines which."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NamedTuple

from partrain.data.base import reading
from partrain.errors import InputMissing


class Packing(NamedTuple):
    """A compressed file format."""

    name: str
    open: Callable[[Path], IO[bytes]]
    faults: Callable[[], tuple[type[Exception], ...]]
    """Returns the exceptions for damaged files, in addition to OSError and EOFError."""


def _by(module: str) -> Callable[[Path], IO[bytes]]:
    return lambda path: import_module(module).open(path)


def _member(path: Path) -> IO[bytes]:
    """Open the file in an archive. InputMissing unless there is exactly one."""
    from zipfile import ZipFile

    archive = ZipFile(path)
    names = [name for name in archive.namelist() if not name.endswith("/") and not name.startswith("__MACOSX/")]
    if len(names) != 1:
        raise InputMissing(f"{path}: holds {len(names)} files: pack one table alone, or unpack it")
    return archive.open(names[0])


def _zip_faults() -> tuple[type[Exception], ...]:
    from zipfile import BadZipFile
    from zlib import error

    return BadZipFile, error, NotImplementedError, RuntimeError  # unknown method, or password


PACKINGS: dict[str, Packing] = {
    ".gz": Packing("gzip", _by("gzip"), lambda: (import_module("zlib").error,)),
    ".bz2": Packing("bzip2", _by("bz2"), tuple),
    ".xz": Packing("xz", _by("lzma"), lambda: (import_module("lzma").LZMAError,)),
    ".zip": Packing("zip", _member, _zip_faults),
}
"""Formats by the last suffix, in lower case."""


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file as bytes, unpacked."""
    packing = PACKINGS.get(path.suffix.lower())
    return packing.open(path) if packing else open(path, "rb")


def open_text(path: Path, encoding: str) -> IO[str]:
    """Open a file as text, unpacked."""
    encoding = "utf-8-sig" if encoding.lower().replace("_", "-") == "utf-8" else encoding
    return io.TextIOWrapper(open_bytes(path), encoding=encoding, newline="")


def unpacking(path: Path, *more: type[Exception]) -> AbstractContextManager[Any]:
    """Turn errors of reading a file, and `more` exceptions, into InputMissing."""
    packing = PACKINGS.get(path.suffix.lower())
    return (
        reading(path, f"damaged {packing.name} data", EOFError, *packing.faults(), *more) if packing else reading(path, "", *more)
    )
