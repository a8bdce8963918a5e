"""Files from the network: `https://host/file.csv#sha256=...` wherever a `[dataset]` table names a file.

Each file is fetched once into a cache, under its digest (`PARTRAIN_CACHE`, else `partrain` in the user's cache folder). It is
checked against the digest at each use, so a file put there by hand works equally well. A broken transfer resumes if the server
supports it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import BufferedRandom
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, BeforeValidator

from partrain.errors import CannotCreate, InputMissing, one_line
from partrain.system.caches import own_cache

if TYPE_CHECKING:
    from partrain.data.base import DataSection

TransferReport = Callable[[str, int, int | None], None]
"""Receiver of progress: the URL, the bytes fetched, and their total if the server gives it."""

_SCHEME = re.compile(r"https?://", re.IGNORECASE)
_DIGEST = re.compile(r"sha256=[0-9a-fA-F]{64}")
_BLOCK = 1 << 18
_TIMEOUT_S = 30.0
"""Longest silence of a server, in seconds."""


def _check_file(text: str) -> str:
    """Check the name of a file; a URL must come with a digest."""
    _check_name(text)
    if _SCHEME.match(text) and not _DIGEST.fullmatch(urlsplit(text).fragment):
        raise ValueError("a file from the network needs its SHA-256, as in https://host/file.csv#sha256=<64 hex digits>")
    return text


def _check_name(text: str) -> None:
    if not text or "\0" in text:
        raise ValueError("expected the name of a file or folder" + " without NUL characters" * bool(text))


def _check_folder(text: str) -> str:
    _check_name(text)
    if _SCHEME.match(text):
        raise ValueError("expected a folder: only single files can be fetched from the network")
    return text


def _check_files(value: Any) -> tuple[str, ...]:
    names = value if isinstance(value, list | tuple) else [value]
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ValueError("expected a file or folder, or a list of files")
    return tuple(map(_check_file, names))


File = Annotated[str, AfterValidator(_check_file)]
"""A path relative to the job, or a URL with a digest."""
Folder = Annotated[str, AfterValidator(_check_folder)]
"""A path relative to the job."""
Files = Annotated[tuple[str, ...], BeforeValidator(_check_files, str | list[str])]
"""One file name or several."""


POINTER, POINTER_BYTES = b"version https://git-lfs.github.com/spec/", 1024
"""Beginning of a Git LFS pointer, and its maximum size in bytes."""


def local_path(name: str, folder: Path) -> Path:
    """Return the path of a file that a job names, even before it is fetched. `folder` is the job's.

    Raises:
        InputMissing: the path is a pipe or a device.
    """
    if not _SCHEME.match(name):
        return require_regular(folder / name)
    parts = urlsplit(name)
    stem = PurePosixPath(unquote(parts.path)).name or "file"
    return own_cache() / parts.fragment.removeprefix("sha256=").lower() / stem


def require_regular(path: Path) -> Path:
    """Return the path; InputMissing for a pipe or a device: reading it may block forever, and a second read finds it empty.

    Refuses a Git LFS pointer, the placeholder of a file that was not fetched.
    """
    try:
        state = path.stat()
        mode = state.st_mode
        if stat.S_ISREG(mode) and state.st_size < POINTER_BYTES and path.read_bytes().startswith(POINTER):
            raise InputMissing(f"{path}: is a pointer of Git LFS, not the data: git lfs pull")
    except OSError:  # opening the file reports the error
        return path
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise InputMissing(f"{path}: is a pipe or a device: save its content to a file")
    return path


def names_in(table: Mapping[str, Any]) -> list[str]:
    """Return the files, folders and URLs that a `[dataset]` table names."""
    if "name" in table:  # an embedded data set, or user code, whose keys may mean anything
        return []
    keys = ("path", "test_path", "validation_path") if "path" in table else ("inputs", "targets", "test_inputs", "test_targets")
    values = [value if isinstance(value, list | tuple) else [value] for value in map(table.get, keys) if value is not None]
    return [name for value in values for name in value]


def paths_of(table: Mapping[str, Any], folder: Path) -> list[Path]:
    """Return the paths of files and folders that a `[dataset]` table names."""
    return [local_path(name, folder) for name in names_in(table)]


def describe_source(table: Mapping[str, Any], folder: Path) -> str:
    """Name a data set for messages: its first file or folder, else its name or kind."""
    files = paths_of(table, folder)
    return str(files[0]) if files else f"[dataset] `{table.get('name') or table.get('kind')}`"


def missing_urls(section: DataSection) -> dict[str, str]:
    """Return the URLs that have not been fetched yet, by key."""
    return {key: url for key, url in _urls(section) if not local_path(url, Path()).is_file()}


def fetch(section: DataSection, report: TransferReport | None = None) -> list[Path]:
    """Fetch missing files and check the present ones; return the paths of the fetched ones.

    Raises:
        InputMissing: no such file, no network, or the content does not match the digest.
        CannotCreate: the cache cannot be written.
    """
    report = report or TransferLines()
    return [path for path in (_fetch_one(url, report) for _, url in _urls(section)) if path]


def is_url(name: str) -> bool:
    """Return whether a name is a URL. Raises InputMissing if it has no digest."""
    if not _SCHEME.match(name):
        return False
    try:
        _check_file(name)
    except ValueError as error:
        raise InputMissing(f"{name}: {error}") from None
    return True


def fetch_url(url: str, report: TransferReport) -> Path | None:
    """Fetch one file, as `fetch` does; return its path, or None if it was in the cache."""
    return _fetch_one(url, report)


class TransferLines:
    """Print a line on stderr for each file, as its transfer begins."""

    def __init__(self) -> None:
        self._told = ""

    def __call__(self, url: str, done: int, total: int | None) -> None:
        if url != self._told:
            self._told = url
            size = "" if total is None else f" ({total:,} bytes)"
            print(f"partrain: fetching {url.partition('#')[0]}{size}", file=sys.stderr, flush=True)


def _urls(section: DataSection) -> Iterator[tuple[str, str]]:
    for key in type(section).model_fields:
        value = getattr(section, key)
        for name in value if isinstance(value, tuple) else (value,):
            if isinstance(name, str) and _SCHEME.match(name):
                yield key, name


def _fetch_one(url: str, report: TransferReport) -> Path | None:
    """Fetch one file and return its path; None if it is in the cache."""
    target = local_path(url, Path())
    wanted = target.parent.name
    if target.is_file():
        with target.open("rb") as file:
            actual = hashlib.file_digest(file, "sha256").hexdigest()
        if actual != wanted:
            raise InputMissing(f"{target}: its SHA-256 is {actual}, not the one the job gives: delete it to fetch it again")
        return None
    with _part(target) as part:
        if target.is_file():  # another run has fetched it meanwhile
            return None
        digest = _transfer(url, part, target, report)
        if digest != wanted:
            part.truncate(0)
            raise InputMissing(f"{url.partition('#')[0]}: its SHA-256 is {digest}, not the one the job gives ({wanted})")
        os.fsync(part.fileno())
        Path(part.name).replace(target)
    return target


@contextmanager
def _part(target: Path) -> Iterator[BufferedRandom]:
    """Open the partial file of a transfer for appending, and lock it: one process at a time may write to it."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.with_name(f"{target.name}.part").open("ab+") as part:
            fcntl.flock(part, fcntl.LOCK_EX)
            yield part
    except OSError as error:
        raise _cannot_write(target, error) from None


def _transfer(url: str, part: BufferedRandom, target: Path, report: TransferReport) -> str:
    """Append the missing bytes, and return the digest of the whole file."""
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    address, start = url.partition("#")[0], part.seek(0, os.SEEK_END)
    byhand = f"or put the file there by hand: {target}"
    try:
        wanted = Request(address, headers={"User-Agent": "partrain", **({"Range": f"bytes={start}-"} if start else {})})
        with urlopen(wanted, timeout=_TIMEOUT_S) as answer:
            if start and not _continues(answer, start):
                start = part.truncate(0)
            length = answer.headers.get("Content-Length")
            total = start + int(length) if length else None
            done = start
            report(url, done, total)
            while block := answer.read(_BLOCK):
                done += _append(part, block, target)
                report(url, done, total)
        if total is not None and done < total:
            raise InputMissing(f"{address}: the transfer ended after {done:,} of {total:,} bytes; try again, {byhand}")
    except HTTPError as error:
        error.close()
        if error.code == 416 and start:  # the partial file is complete, or of another file
            part.seek(0)
            digest = hashlib.file_digest(part, "sha256").hexdigest()
            if digest == target.parent.name:
                return digest
            part.truncate(0)
            return _transfer(url, part, target, report)
        raise InputMissing(
            f"{address}: the server says {error.code} {one_line(error.reason)}; look at the URL, {byhand}"
        ) from None
    except (HTTPException, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        cause = getattr(reason, "strerror", None) or one_line(reason) or type(reason).__name__
        raise InputMissing(f"{address}: cannot be fetched: {cause}; try again, {byhand}") from None
    part.flush()
    part.seek(0)
    return hashlib.file_digest(part, "sha256").hexdigest()


def _continues(answer: Any, start: int) -> bool:
    """Return whether a server sends the requested range: some servers send the whole file instead."""
    asked = f"bytes {start}-"
    return answer.status == 206 and str(answer.headers.get("Content-Range", asked)).startswith(asked)


def _append(part: BufferedRandom, block: bytes, target: Path) -> int:
    """Write a block. An error here comes from the disk, not from the network."""
    try:
        return part.write(block)
    except OSError as error:
        raise _cannot_write(target, error) from None


def _cannot_write(target: Path, error: OSError) -> CannotCreate:
    return CannotCreate(f"{target}: {error.strerror or error}; PARTRAIN_CACHE names another folder for fetched files")
