"""Files that appear whole or not at all: written under a temporary name in the same folder, then renamed.

All steps go through one descriptor of the folder, so they see the same folder even if it is renamed meanwhile. Every system call is
in `os`, so tests can make each of them fail.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class FolderNotSynced(OSError):
    """The new file is in place, but its folder could not be synced: a power failure may undo the rename."""


@contextmanager
def atomic_file(
    path: Path, *, unique: bool = True, exclusive: bool = False, sync: bool = True, sync_folder: bool = False, follow: bool = True
) -> Iterator[int]:
    """Open a temporary file, and give it the name `path` in one step when the block ends. After an error `path` is unchanged.

    Yields the temporary file's descriptor, locked: `flock` distinguishes a file being written from one whose writer died.

    Args:
        path: The file to create or replace.
        unique: Use a hidden temporary name that no other process uses. Otherwise use `<name>.part`: if the process is killed,
            the next attempt removes its remains.
        exclusive: Raise FileExistsError instead of replacing a file. Some file systems have no hard links; there it is replaced.
        sync: Flush the content to disk before the rename.
        sync_folder: Flush the new name to disk after the rename. FolderNotSynced if that fails.
        follow: The folder may be a link.

    Raises:
        OSError: any step failed.
    """
    temporary = temporary_name(path.name) if unique else f"{path.name}.part"
    access = (os.O_RDONLY if sync_folder else os.O_PATH) | (0 if follow else os.O_NOFOLLOW)
    with open_folder(path.parent, access) as folder:
        if not unique:
            discard(folder, temporary)
        try:
            with _created(folder, temporary) as descriptor:
                yield descriptor
                if sync:
                    os.fsync(descriptor)
            _publish(folder, temporary, path.name, exclusive=exclusive)
        except BaseException:
            discard(folder, temporary)
            raise
        if sync_folder:
            make_durable(folder)


@contextmanager
def open_folder(path: Path, access: int = os.O_RDONLY) -> Iterator[int]:
    """Open a descriptor of a folder, for calls that take `dir_fd`. O_PATH suffices if the folder is neither listed nor synced."""
    descriptor = os.open(path, access | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        with suppress(OSError):  # nothing was written through it
            os.close(descriptor)


def temporary_name(name: str) -> str:
    """Make up a hidden name for a temporary file next to `name`, cut so that it stays a legal name."""
    return f".{name[:200]}.{os.urandom(8).hex()}.tmp"


def make_durable(folder: int) -> None:
    """Sync a folder, so that a new name in it survives a power failure. Some file systems cannot: they return EINVAL."""
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise FolderNotSynced(error.errno, error.strerror) from error


def discard(folder: int, name: str) -> None:
    """Remove a temporary file, if it exists."""
    with suppress(OSError):
        os.unlink(name, dir_fd=folder)


@contextmanager
def _created(folder: int, name: str) -> Iterator[int]:
    """Open a new file for writing, and lock it. A failed fsync or close is final: the kernel may have dropped the pages."""
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=folder)
    try:
        with suppress(OSError):  # file systems without locks: then no process removes temporary files either
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield descriptor
    except BaseException:
        with suppress(OSError):
            os.close(descriptor)
        raise
    os.close(descriptor)  # some network file systems report a full disk only here


def _publish(folder: int, temporary: str, name: str, *, exclusive: bool) -> None:
    """Give a finished file its name."""
    if exclusive:
        try:
            os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except FileExistsError:
            raise
        except OSError:  # no hard links here: the caller has checked that the file does not exist
            pass
        else:
            discard(folder, temporary)
            return
    os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
