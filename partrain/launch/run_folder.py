"""The folder of a run: what may begin or go on in it, one process at a time."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from partrain.checkpoint import link_best, link_latest, round_path
from partrain.checkpoint.signature import SIGNATURES
from partrain.errors import BadCheckpoint, CannotCreate, InputOutputFailed
from partrain.record.event_log import FORBIDDEN, read_events, unwritable
from partrain.record.events import COMMIT_MARK, StartEvent
from partrain.system.atomic_file import atomic_file
from partrain.system.regular_file import read_regular

if TYPE_CHECKING:
    from partrain.checkpoint import Content


_FIRST_EVENTS = 8
"""Events before which a run that has begun says so."""
FILES = ("job.toml", "events.jsonl", "summary.json", "checkpoint.h5", "best.h5")
"""Files of a run beside its checkpoints."""
LOCK_TRIALS = 10
"""Attempts to lock a folder, 20 ms apart."""


class NewFolder(NamedTuple):
    """The folder of a new run."""

    path: Path
    made: Path | None
    """The topmost folder that had to be made for it; None if it was there."""


def new_folder(out: Path | None, name: str) -> NewFolder:
    """Make the folder of a new run: DIR, which may exist but hold no run, or `runs/<name>/<time>`."""
    base = out or Path("runs") / name / time.strftime("%Y-%m-%dT%H-%M-%S")
    folder, number = base, 2
    try:
        while out is None and folder.exists():
            folder, number = base.with_name(f"{base.name}-{number}"), number + 1
        if _holds_a_run(folder):
            raise CannotCreate(
                f"{folder} already holds a run; give --out another folder, or continue it: partrain resume {folder}"
            )
        if theirs := [name for name in FILES if (folder / name).exists() and not (folder / "checkpoints").is_dir()]:
            raise CannotCreate(f"{folder / theirs[0]} is not of a run, and would be replaced; give --out another folder")
        made = next((each for each in reversed([folder, *folder.parents]) if not each.exists()), None)
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        if (folder / "checkpoints").is_symlink():
            raise CannotCreate(f"{folder / 'checkpoints'} is a link, which is not followed; give --out another folder")
    except OSError as error:
        raise CannotCreate(f"{folder}: {error.strerror}; give --out a folder that can be created") from None
    return NewFolder(folder, made)


@contextmanager
def removed_unless_begun(folder: Path, made: Path | None) -> Iterator[None]:
    """Remove the files of a run that ended before it began to train, and the folders from `made` down. Files of others stay.

    A folder that holds anything else, as that of a workflow's step does, stays as it is.
    """
    try:
        yield
    finally:
        with suppress(OSError):
            _discard(folder, made)


def _discard(folder: Path, made: Path | None) -> None:
    ours = {"checkpoints", "job.toml", "events.jsonl", "summary.json", SIGNATURES}
    if not {each.name for each in folder.iterdir()} <= ours or any((folder / "checkpoints").iterdir()):
        return
    events = folder / "events.jsonl"
    if events.exists() and any(isinstance(event, StartEvent) for event in islice(read_events(events), _FIRST_EVENTS)):
        return
    for name in ours - {"checkpoints"}:
        (folder / name).unlink(missing_ok=True)
    (folder / "checkpoints").rmdir()
    for each in (folder, *folder.parents) if made else ():
        each.rmdir()
        if each == made:
            return


def _holds_a_run(folder: Path) -> bool:
    """Tell if a checkpoint was committed there. A run that ended before that may be tried again."""
    events, checkpoints = folder / "events.jsonl", folder / "checkpoints"
    return (checkpoints.is_dir() and any(checkpoints.iterdir())) or (events.exists() and COMMIT_MARK in read_regular(events))


def remove_stale(folder: Path, *names: str) -> None:
    """Remove small files of a run folder that tell of what is no more."""
    for name in names:
        try:
            (folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise CannotCreate(f"{folder / name} is in the way: {error.strerror}") from None


def check_same_run(content: Content, folder: Path) -> None:
    """Refuse to continue one run in the folder of another, whose events and checkpoints would be lost."""
    path = folder / "events.jsonl"
    told = next((event for event in read_events(path) if isinstance(event, StartEvent)), None) if path.exists() else None
    if told and told.run_id not in ("", content.run):
        raise BadCheckpoint(f"{folder} holds another run than the one this checkpoint is of; give --out a folder of its own")


def relink(content: Content, folder: Path, best_round: int | None) -> None:
    """Make `checkpoint.h5` and `best.h5` those of the events that stay, whose best round is `best_round`.

    A run that is killed before its first commit goes on from here again. `best.h5` goes if that round's file is not there: it would
    be of rounds that no longer count.
    """
    path = round_path(folder, content.round)
    try:
        if path.exists():
            link_latest(folder, path)
        link_best(folder, best_round, renew=True)
    except InputOutputFailed as failure:
        cause = failure.__cause__
        if isinstance(cause, OSError) and cause.errno in FORBIDDEN:
            raise unwritable(folder, cause) from cause
        raise


def stage_file(path: Path, text: str) -> None:
    """Write a small file of a run folder as a whole."""
    try:
        with atomic_file(path, unique=False, sync=False) as descriptor, open(descriptor, "wb", closefd=False) as file:
            file.write(text.encode())
    except OSError as error:
        raise CannotCreate(f"{path}: {error.strerror}") from None


def is_training(folder: Path) -> bool:
    """Tell if a process holds a run folder's lock: the run is under way."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # gone again at once: see `locked`
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)


class locked:
    """One process at a time writes in a run folder. The kernel lets go of the lock when the process dies."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor = -1

    def __enter__(self) -> None:
        try:
            self._descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._lock()
        except BlockingIOError:
            os.close(self._descriptor)
            raise CannotCreate(f"{self._folder} is in use by a run that is under way") from None
        except OSError as error:
            raise CannotCreate(f"{self._folder}: {error.strerror}; give --out another folder") from None

    def _lock(self) -> None:
        """Take the lock; try again for a moment, because `is_training` may hold it so long. Raises BlockingIOError."""
        for _ in range(LOCK_TRIALS - 1):
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                time.sleep(0.02)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
