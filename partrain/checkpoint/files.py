"""Files that are whole or absent: a temporary file in the same folder, made durable, then renamed over the name.

    checkpoints/round-000400.h5     written here
    checkpoint.h5                   a second name of the newest one

A file is written with plain `write`, so a full disk shows at the call that met it. Temporary files are locked while they are
written, so those of dead writers can be told apart and are removed. Python itself repeats calls that a signal interrupts.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from partrain.checkpoint.content import ContentRefused
from partrain.checkpoint.header import SIZE, parse
from partrain.errors import InputMissing, InputOutputFailed
from partrain.system.atomic_file import FolderNotSynced, atomic_file, discard, make_durable, open_folder, temporary_name

LATEST = "checkpoint.h5"
FOLDER = "checkpoints"
MAX_BYTES = 1 << 36
"""Largest file that is read into memory unless the caller says otherwise."""

_ROUND = re.compile(r"round-([0-9]{6}|[1-9][0-9]{6,17})\.h5")
_TEMPORARY = re.compile(r"\..*\.h5\.[0-9a-f]{16}\.tmp")
_CANNOT_RESERVE = {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
_ELSEWHERE = "then resume, or resume into another with --out"
_FORBIDDEN, _GONE = f"make the folder writable again, {_ELSEWHERE}", f"bring the folder back, {_ELSEWHERE}"
_REMEDIES = {
    errno.ENOSPC: "make room, then resume",
    errno.EDQUOT: "make room, then resume",
    errno.EFBIG: "raise the limit of file sizes (ulimit -f), then resume",
    errno.EMFILE: "raise the limit of open files (ulimit -n), then resume",
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), _FORBIDDEN),
    **dict.fromkeys((errno.ENOENT, errno.ENOTDIR), _GONE),
}
"""What mends an error; for others it is the disk that is to be mended."""
_CANNOT_LINK = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}


def round_path(run_folder: Path, number: int) -> Path:
    """Where a run keeps the checkpoint of a round."""
    return run_folder / FOLDER / f"round-{number:06d}.h5"


def write(path: Path, data: bytes) -> None:
    """Put a file at `path`, replacing what is there in one step; when this returns, it survives a power failure.

    InputOutputFailed otherwise: then the old file is as it was, unless the message says that the new one is in place.
    """
    with _translate_errors(path, "write"), atomic_file(path, sync_folder=True, mode=0o600) as descriptor:
        _reserve(descriptor, len(data))
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]


def link_latest(run_folder: Path, path: Path) -> Path:
    """Make `checkpoint.h5` of a run a second name of the checkpoint at `path`, in one step, and return its path.

    A copy where names can't be shared. InputOutputFailed otherwise: then `checkpoint.h5` is the old one, or already the new one.
    """
    latest = run_folder / LATEST
    temporary = temporary_name(LATEST)
    with _translate_errors(latest, "replace"), open_folder(run_folder) as folder:
        _sweep(folder)
        try:
            os.link(path, temporary, dst_dir_fd=folder)
            os.rename(temporary, LATEST, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError as error:
            if error.errno not in _CANNOT_LINK:
                raise
            write(latest, path.read_bytes())
        finally:
            # After success too: between two names of one file, rename does nothing and leaves both.
            discard(folder, temporary)
        make_durable(folder)
    return latest


def prune(folder: Path, newest_round: int, keep: int, best_round: int | None = None) -> list[int]:
    """Remove what nobody will read again and return the rounds removed.

    Kept are the newest `keep` (at least 1) checkpoints up to `newest_round`, and the best. Those of later rounds are left from
    before the run was taken back to an earlier one. Temporary files of dead writers go too. A removal that a power failure undoes
    is done again by the next call, so nothing is forced to disk here. InputOutputFailed when a file cannot be removed.
    """
    with _translate_errors(folder / "*", "prune"), open_folder(folder) as descriptor:
        _sweep(descriptor)
        rounds = {int(match[1]) for name in _names(descriptor) if (match := _ROUND.fullmatch(name))}
        past = sorted(number for number in rounds if number <= newest_round)
        doomed = sorted(rounds - {*past[-keep:], best_round})
        for number in doomed:
            os.unlink(f"round-{number:06d}.h5", dir_fd=descriptor)
    return doomed


def read(path: Path, max_bytes: int = MAX_BYTES) -> bytes:
    """All bytes of a file that starts like a checkpoint and is as long as its header says.

    InputMissing when there is no such file or it cannot be read; Refused, before it is read whole, for anything else.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # non-blocking: a FIFO must not hold us up
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise ContentRefused("this is no regular file")
        with open(descriptor, "rb") as file:
            size = status.st_size
            length = parse(file.read(SIZE)).length
            if size != SIZE + length:
                raise ContentRefused(
                    f"the file has {size} bytes, not the {SIZE + length} its header tells of: it is cut off or has grown"
                )
            if size > max_bytes:
                raise ContentRefused(f"the file has {size} bytes, more than the limit of {max_bytes}")
            file.seek(0)
            return file.read(size)
    except OSError as error:
        raise InputMissing(f"cannot read {path}: {error.strerror}") from None


@contextmanager
def _translate_errors(path: Path, verb: str) -> Iterator[None]:
    """Turn an OSError into InputOutputFailed, which tells the user how to resume."""
    try:
        yield
    except FolderNotSynced as error:
        message = f"{path} is in place, but its folder could not be synced ({error.strerror}): a power failure may undo it"
        raise InputOutputFailed(message) from error
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, "mend the disk, then resume")
        raise InputOutputFailed(f"cannot {verb} {path}: {error.strerror}; {remedy}") from error


def _reserve(descriptor: int, size: int) -> None:
    """Claim the space at once, so that a full disk is met before anything is written; skipped where it cannot be done."""
    try:
        os.posix_fallocate(descriptor, 0, size)
    except AttributeError:
        return
    except OSError as error:
        if error.errno not in _CANNOT_RESERVE:
            raise


def _sweep(folder: int) -> None:
    """Remove temporary files whose writer is dead: its lock died with it."""
    for name in _names(folder):
        if _TEMPORARY.fullmatch(name) and _is_abandoned(folder, name):
            discard(folder, name)


def _names(folder: int) -> list[str]:
    return os.listdir(folder)


def _is_abandoned(folder: int, name: str) -> bool:
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
