"""The folder of a run: what may begin or go on in it, one process at a time."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from partrain.checkpoint import link_latest, round_path
from partrain.display.event_log import FORBIDDEN, read_events, unwritable
from partrain.display.events import COMMIT_MARK, StartEvent
from partrain.errors import BadCheckpoint, CannotCreate, InputOutputFailed
from partrain.system.atomic_file import atomic_file

if TYPE_CHECKING:
    from partrain.checkpoint import Content


FILES = ("job.toml", "events.jsonl", "summary.json", "checkpoint.h5")
"""Files of a run beside its checkpoints."""
LOCK_TRIALS = 10
"""Attempts to lock a folder, 20 ms apart."""


def new_folder(out: Path | None, name: str) -> Path:
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
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotCreate(f"{folder}: {error.strerror}; give --out a folder that can be created") from None
    return folder


def _holds_a_run(folder: Path) -> bool:
    """Tell if a checkpoint was committed there. A run that ended before that may be tried again."""
    events, checkpoints = folder / "events.jsonl", folder / "checkpoints"
    return (checkpoints.is_dir() and any(checkpoints.iterdir())) or (events.exists() and COMMIT_MARK in events.read_bytes())


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


def relink_latest(content: Content, folder: Path) -> None:
    """`checkpoint.h5` is where the events that stay end: a run that is killed before its first commit goes on from here again."""
    path = round_path(folder, content.round)
    if not path.exists():
        return
    try:
        link_latest(folder, path)
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


class locked:
    """One process at a time writes in a run folder. The kernel lets go of the lock when the process dies.

    Commands that look whether a run trains hold the lock for a moment, so a taken one is tried again.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor = -1

    def __enter__(self) -> None:
        try:
            self._descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            for trial in range(LOCK_TRIALS):
                try:
                    fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return
                except BlockingIOError:
                    if trial == LOCK_TRIALS - 1:
                        raise
                    time.sleep(0.02)
        except BlockingIOError:
            os.close(self._descriptor)
            raise CannotCreate(f"{self._folder} is in use by a run that is under way") from None
        except OSError as error:
            raise CannotCreate(f"{self._folder}: {error.strerror}; give --out another folder") from None

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
