"""Checkpoint files on disk, whole or absent: written next to the target, made durable, then renamed.

    checkpoints/round-000400.h5     one file per committed round
    checkpoint.h5                   a second name of the newest file
    best.h5                         a second name of the best file by the judged metric

Plain `write` calls fill a file, so a full disk shows at the call that met it. The writer locks its temporary file, so files of dead
writers can be recognized and removed. Python itself repeats calls that a signal interrupts.
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
from partrain.record.file_names import BEST, CHECKPOINT, CHECKPOINTS
from partrain.system.atomic_file import FolderNotSynced, atomic_file, discard, make_durable, open_folder, temporary_name

MAX_BYTES = 1 << 36
"""Default size limit of a file that is read into memory."""

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
"""Advice by error number; for other errors the advice is to repair the disk."""
_CANNOT_LINK = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}


def round_path(run_folder: Path, number: int) -> Path:
    """Return the path of a round's checkpoint in a run folder."""
    return run_folder / CHECKPOINTS / _name(number)


def _name(number: int) -> str:
    return f"round-{number:06d}.h5"


def write(path: Path, data: bytes) -> None:
    """Write a file at `path`, replacing an old file in one step. After the return it survives a power failure.

    Raises InputOutputFailed. The old file is then unchanged, unless the message says that the new file is in place.
    """
    with (
        _translate_errors(path, "write"),
        atomic_file(path, sync_folder=True, follow=path.parent.name != CHECKPOINTS) as descriptor,
    ):
        _reserve(descriptor, len(data))
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]


def link_latest(run_folder: Path, path: Path) -> Path:
    """Make `checkpoint.h5` of a run a hard link to the checkpoint at `path`, in one step, and return its path.

    Copies the file if hard links are impossible. Raises InputOutputFailed; `checkpoint.h5` is then the old file or the new one.
    """
    return _link(run_folder, CHECKPOINT, path)


def link_best(run_folder: Path, best_round: int | None, *, renew: bool = False) -> None:
    """Make `best.h5` of a run the checkpoint of its best round, like `link_latest`; remove it if there is no such checkpoint.

    `best_round`: None if no round was judged. An existing `best.h5` stays unless `renew`: the caller knows that it may belong to
    another round. Raises InputOutputFailed.
    """
    path, best = round_path(run_folder, best_round or 0), run_folder / BEST
    if best_round and path.exists():
        if renew or not best.exists():
            _link(run_folder, BEST, path)
    elif renew:
        with _translate_errors(best, "remove"):
            best.unlink(missing_ok=True)


def copy_file(source: Path, target: Path) -> None:
    """Copy a checkpoint, if it exists and the target does not. Raises InputOutputFailed."""
    if source.exists() and not target.exists():
        write(target, read(source))


def _link(run_folder: Path, name: str, path: Path) -> Path:
    """Give a checkpoint a second name in its run folder, in one step, and return that path."""
    link = run_folder / name
    temporary = temporary_name(name)
    with _translate_errors(link, "replace"), open_folder(run_folder) as folder:
        _sweep(folder)
        try:
            os.link(path, temporary, dst_dir_fd=folder)
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError as error:
            if error.errno not in _CANNOT_LINK:
                raise
            write(link, path.read_bytes())
        finally:
            # Also after success: if both names are links to one file, rename does nothing and leaves both.
            discard(folder, temporary)
        make_durable(folder)
    return link


def prune(folder: Path, newest_round: int, keep: int, best_round: int | None = None) -> list[int]:
    """Remove old checkpoints, and temporary files of dead writers; return the rounds removed.

    Keeps the newest `keep` (at least 1) checkpoints up to `newest_round`, and the best. Checkpoints of later rounds are removed:
    they were written before the run was resumed at an earlier round. Nothing is synced: if a power failure undoes a removal, the
    next call repeats it. Raises InputOutputFailed if a file cannot be removed.
    """
    with _translate_errors(folder / "*", "prune"), open_folder(folder, os.O_RDONLY | os.O_NOFOLLOW) as descriptor:
        _sweep(descriptor)
        rounds = {int(match[1]) for name in _names(descriptor) if (match := _ROUND.fullmatch(name))}
        past = sorted(number for number in rounds if number <= newest_round)
        removed = sorted(rounds - {*past[-keep:], best_round})
        for number in removed:
            os.unlink(_name(number), dir_fd=descriptor)
    return removed


def read(path: Path, max_bytes: int = MAX_BYTES) -> bytes:
    """Read a whole file that has a checkpoint's header with the right size.

    Raises InputMissing if it does not exist or cannot be read. Raises ContentRefused for any other file, before reading all of it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # non-blocking: opening a FIFO must not hang
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise ContentRefused("this is not a regular file")
        with open(descriptor, "rb") as file:
            size = status.st_size
            length = parse(file.read(SIZE)).length
            if size != SIZE + length:
                raise ContentRefused(
                    f"the file has {size} bytes, but its header says {SIZE + length}: it is cut off or has grown"
                )
            if size > max_bytes:
                raise ContentRefused(f"the file has {size} bytes, more than the limit of {max_bytes}")
            file.seek(0)
            return file.read(size)
    except OSError as error:
        raise InputMissing(f"cannot read {path}: {error.strerror}") from None


@contextmanager
def _translate_errors(path: Path, verb: str) -> Iterator[None]:
    """Turn an OSError into InputOutputFailed, which explains how to resume."""
    try:
        yield
    except FolderNotSynced as error:
        message = f"{path} is in place, but its folder could not be synced ({error.strerror}): a power failure may undo it"
        raise InputOutputFailed(message) from error
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, "mend the disk, then resume")
        raise InputOutputFailed(f"cannot {verb} {path}: {error.strerror}; {remedy}") from error


def _reserve(descriptor: int, size: int) -> None:
    """Reserve the space on disk, so that a full disk shows before anything is written. Does nothing if this is not supported."""
    try:
        os.posix_fallocate(descriptor, 0, size)
    except AttributeError:
        return
    except OSError as error:
        if error.errno not in _CANNOT_RESERVE:
            raise


def _sweep(folder: int) -> None:
    """Remove temporary files of dead writers: the kernel released their locks."""
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
