"""The folder of a run: one process at a time may begin or continue a run in it."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from partrain.checkpoint import copy_file, link_best, link_latest, read_best, round_path
from partrain.errors import BadCheckpoint, CannotCreate, InputOutputFailed
from partrain.record.event_log import FORBIDDEN, unwritable
from partrain.record.events import COMMIT_MARK
from partrain.record.file_names import BEST, CHECKPOINTS, EVENTS, FILES, FORMER_BEST, JOB, SIGNATURES, SUMMARY
from partrain.record.run_folder import RunFolder
from partrain.system.atomic_file import atomic_file
from partrain.system.regular_file import read_regular

if TYPE_CHECKING:
    from partrain.checkpoint import Content


LOCK_TRIALS = 10
"""Attempts to lock a folder, 20 ms apart."""


class NewFolder(NamedTuple):
    """The folder of a new run."""

    path: Path
    made: Path | None
    """The topmost folder made for it; None if it existed."""


def new_folder(out: Path | None, name: str) -> NewFolder:
    """Make the folder of a new run: `out`, which may exist but hold no run, or `runs/<name>/<time>`."""
    base = out or Path("runs") / name / time.strftime("%Y-%m-%dT%H-%M-%S")
    folder, number = base, 2
    try:
        while out is None and folder.exists():
            folder, number = base.with_name(f"{base.name}-{number}"), number + 1
        if _holds_a_run(folder):
            raise CannotCreate(
                f"{folder} already holds a run; give --out another folder, or continue it: partrain resume {folder}"
            )
        if theirs := [name for name in FILES if (folder / name).exists() and not (folder / CHECKPOINTS).is_dir()]:
            raise CannotCreate(f"{folder / theirs[0]} is not of a run, and would be replaced; give --out another folder")
        made = next((ancestor for ancestor in reversed([folder, *folder.parents]) if not ancestor.exists()), None)
        (folder / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
        if (folder / CHECKPOINTS).is_symlink():
            raise CannotCreate(f"{folder / CHECKPOINTS} is a link, which is not followed; give --out another folder")
    except OSError as error:
        raise CannotCreate(f"{folder}: {error.strerror}; give --out a folder that can be created") from None
    return NewFolder(folder, made)


@contextmanager
def removed_unless_begun(folder: Path, made: Path | None) -> Iterator[None]:
    """Remove the files of a run that ended before it began to train, and the folders from `made` down. Other files stay.

    A folder that holds anything else, such as a workflow step's, does not change.
    """
    try:
        yield
    finally:
        with suppress(OSError):
            _discard(folder, made)


def _discard(folder: Path, made: Path | None) -> None:
    files, ours = RunFolder(folder), {CHECKPOINTS, BEST, JOB, EVENTS, SUMMARY, SIGNATURES}
    if not {path.name for path in folder.iterdir()} <= ours or any(files.checkpoints.iterdir()) or files.start:
        return
    for name in ours - {CHECKPOINTS}:
        (folder / name).unlink(missing_ok=True)
    files.checkpoints.rmdir()
    for ancestor in (folder, *folder.parents) if made else ():
        ancestor.rmdir()
        if ancestor == made:
            return


def _holds_a_run(folder: Path) -> bool:
    """Return whether the folder has a committed checkpoint. A run that ended before its first commit may be tried again."""
    files = RunFolder(folder)
    return files.holds_checkpoints or (files.events_file.exists() and COMMIT_MARK in read_regular(files.events_file))


def remove_stale(folder: Path, *names: str) -> None:
    """Remove outdated small files of a run folder."""
    for name in names:
        try:
            (folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise CannotCreate(f"{folder / name} is in the way: {error.strerror}") from None


def check_same_run(content: Content, folder: Path) -> None:
    """Refuse to continue a run in another run's folder, whose events and checkpoints would be lost."""
    start = RunFolder(folder).start
    if start and start.run_id not in ("", content.run):
        raise BadCheckpoint(f"{folder} holds another run than the one this checkpoint is of; give --out another folder")


def relink(content: Content, folder: Path, best_round: int | None, best: Path | None = None) -> None:
    """Make `checkpoint.h5` and `best.h5` match the remaining events, whose best round is `best_round`.

    A run killed before its first commit continues from here again. Without that round's file, remove `best.h5`: it would
    be of rounds that no longer count. A new folder gets a copy of the file `best`.
    """
    path = round_path(folder, content.round)
    try:
        if path.exists():
            link_latest(folder, path)
        if best_round and best:
            copy_file(best, folder / BEST)
        if not best_round or round_path(folder, best_round).exists() or not read_best(folder, best_round):
            link_best(folder, best_round, renew=True)
    except InputOutputFailed as failure:
        cause = failure.__cause__
        if isinstance(cause, OSError) and cause.errno in FORBIDDEN:
            raise unwritable(folder, cause) from cause
        raise


def set_best_aside(folder: Path, number: int) -> Path | None:
    """Rename `best.h5` of rounds up to this one, judged by code that has changed since; None without the file."""
    path = folder / FORMER_BEST.format(f"{number:06d}")
    try:
        (folder / BEST).rename(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unwritable(folder, error) from error
    return path


def stage_file(path: Path, text: str) -> None:
    """Write a small file of a run folder as a whole."""
    try:
        with atomic_file(path, unique=False, sync=False) as descriptor, open(descriptor, "wb", closefd=False) as file:
            file.write(text.encode())
    except OSError as error:
        raise CannotCreate(f"{path}: {error.strerror}") from None


class locked:
    """The lock that lets one process at a time write in the folder of a run or workflow. The kernel frees it when the process dies."""

    def __init__(self, folder: Path, holder: str = "by a run that is under way") -> None:
        """`holder`: words for the message about a folder in use."""
        self._folder, self._holder = folder, holder
        self._descriptor = -1

    def __enter__(self) -> None:
        try:
            self._descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._lock()
        except BlockingIOError:
            os.close(self._descriptor)
            raise CannotCreate(f"{self._folder} is in use {self._holder}") from None
        except OSError as error:
            raise CannotCreate(f"{self._folder}: {error.strerror}; give --out another folder") from None

    def _lock(self) -> None:
        """Take the lock; retry for a moment, because `is_locked` may hold it that long. Raises BlockingIOError."""
        for _ in range(LOCK_TRIALS - 1):
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                time.sleep(0.02)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
