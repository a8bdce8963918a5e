"""The folder of a run, for its readers. `partrain/launch/folder/run_folder.py` makes and locks it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, NamedTuple

from partrain.config.toml_source import TomlSource
from partrain.errors import Failure, InputMissing
from partrain.number_format import counted
from partrain.record.event_log import read_events
from partrain.record.events import COMMIT_MARK, Event, StartEvent, is_sound
from partrain.record.file_names import CHECKPOINT, CHECKPOINTS, EVENTS, JOB, PRUNED, RANKING, STEP, SUMMARY, WORKFLOW
from partrain.system.regular_file import open_regular, parse_json, read_object

TRAINING, KILLED = "training", "killed"
"""Statuses of runs without a summary."""
STATUSES = (TRAINING, KILLED, "reached", "finished", "not-reached", "stopped", "diverged", "failed", "pruned")
MOST_NAMED = 5
"""Largest number of runs that a message names."""
_FIRST_LINES = 8
"""Number of first lines that show whether a run has begun to train."""
_TAIL_BYTES = 1 << 16
BEST_MARK = b'"best":true'
"""Bytes in the line of a judgement that was the best so far."""
START_MARK = b'"event":"start"'
"""Bytes in the line of the start of a session."""


@dataclass(frozen=True)
class RunFolder:
    """The paths and files of a run. Each property reads its file at every use, and caches nothing."""

    path: Path

    @property
    def events_file(self) -> Path:
        """The path of `events.jsonl`."""
        return self.path / EVENTS

    @property
    def summary_file(self) -> Path:
        """The path of `summary.json`."""
        return self.path / SUMMARY

    @property
    def job_file(self) -> Path:
        """The path of `job.toml`."""
        return self.path / JOB

    @property
    def checkpoint(self) -> Path:
        """The path of `checkpoint.h5`."""
        return self.path / CHECKPOINT

    @property
    def checkpoints(self) -> Path:
        """The path of the checkpoints' folder."""
        return self.path / CHECKPOINTS

    @property
    def exists(self) -> bool:
        """True if this is a run folder: it has events."""
        return self.events_file.is_file()

    @property
    def newest_checkpoint(self) -> Path | None:
        """The newest checkpoint: `checkpoint.h5`, or the newest file of a round; None if nothing was committed.

        A run that was killed before it named its first file `checkpoint.h5`, or that could not do so, has only the latter.
        """
        if self.checkpoint.exists():
            return self.checkpoint
        return max(self.checkpoints.glob("round-*.h5"), key=lambda path: (len(path.name), path.name), default=None)

    @property
    def holds_checkpoints(self) -> bool:
        """True if the checkpoints' folder holds any file."""
        return self.checkpoints.is_dir() and any(self.checkpoints.iterdir())

    @property
    def is_training(self) -> bool:
        """True if a process holds the folder's lock: the run is under way."""
        return is_locked(self.path)

    @property
    def job(self) -> dict[str, Any]:
        """The job; {} if it cannot be read."""
        try:
            return TomlSource.read(self.job_file).data
        except Failure:
            return {}

    @property
    def summary(self) -> dict[str, Any]:
        """The content of `summary.json`; {} if it cannot be read. A trial that its sweep ended has the status `pruned`."""
        content = read_object(self.summary_file)
        pruned = self._pruned(content)
        return content | ({"status": "pruned", "reason": f"poor at round {pruned.get('round')}"} if pruned else {})

    @property
    def pruned(self) -> dict[str, Any]:
        """The poor judgement at which its sweep ended the run; {} if the run ended by itself, before or after that judgement."""
        return self._pruned(read_object(self.summary_file))

    def _pruned(self, content: dict[str, Any]) -> dict[str, Any]:
        return read_object(self.path / PRUNED) if content.get("status") == "stopped" else {}

    def events(self) -> Iterator[Event]:
        """Read the events, like `read_events`. Raises InputMissing if the file is missing or damaged, or a value is malformed."""
        for event in read_events(self.events_file):
            if not is_sound(event):
                kind = getattr(event, "kind", "unknown")
                raise InputMissing(f"{self.events_file}: an event `{kind}` has a wrong value; restore the file")
            yield event

    @property
    def start(self) -> StartEvent | None:
        """The first `start` event; None if the run ended before it began to train. Raises InputMissing if the file is damaged."""
        events = self.events() if self.events_file.exists() else ()
        return next((event for event in events if isinstance(event, StartEvent)), None)

    def first_values(self) -> Iterator[dict[str, Any]]:
        """Yield the values of the first events, up to and including the first `start`. Skip lines that are not events."""
        try:
            with open_regular(self.events_file) as file:
                for values in _objects(islice(file, _FIRST_LINES)):
                    yield values
                    if values.get("event") == "start":
                        return
        except OSError:
            return

    def last_values(self) -> Iterator[dict[str, Any]]:
        """Yield the values of the events in the last 64 kB. Skip lines that are not events."""
        try:
            with open_regular(self.events_file) as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
                lines = file.read().splitlines()
        except OSError:
            return
        yield from _objects(lines)

    def newest_values(self, pattern: bytes) -> dict[str, Any]:
        """Return the values of the newest event whose line contains these bytes, such as `START_MARK`; {} without one."""
        return next(self.values_backwards(pattern), {})

    def values_backwards(self, pattern: bytes) -> Iterator[dict[str, Any]]:
        """Yield the values of the events whose lines contain these bytes, the newest first. Skip lines that are not events."""
        try:
            with open_regular(self.events_file) as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
                end = len(data)
                while (place := data.rfind(pattern, 0, end)) >= 0:
                    end = data.rfind(b"\n", 0, place) + 1
                    yield from _objects([data[end : data.find(b"\n", place)]])
        except (OSError, ValueError):  # an empty file cannot be mapped
            return

    @property
    def newest_best(self) -> dict[str, Any]:
        """The newest best judgement whose network is on disk, as `RunState.saved_best`; before the first checkpoint, the newest; {}
        without one."""
        saved = {commit.get("round") for commit in self.values_backwards(COMMIT_MARK)}
        return next((best for best in self.values_backwards(BEST_MARK) if not saved or best.get("round") in saved), {})


def is_simulated(job: Mapping[str, Any]) -> bool:
    """Return whether the training seconds of a job's runs are those of a simulated clock."""
    transport = job.get("transport")
    return isinstance(transport, dict) and transport.get("kind") == "simulated"


def run_folders(folder: Path, depth: int = 6, files: Collection[str] = (EVENTS,)) -> Iterator[Path]:
    """Find the run folders at and below a folder, by name, without following links. Raises `InputMissing` if one cannot be read.

    `depth`: largest number of levels below it: those of `runs/WORKFLOW/STEP/TRIAL`, and some for the user's folders. `files`: a
    run has one of these.
    """
    try:
        with os.scandir(folder) as entries:
            inner = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
    except OSError as error:
        raise InputMissing(f"{folder}: {error.strerror}") from None
    if any(name in inner for name in files):
        yield folder
    for name in sorted(name for name, is_folder in inner.items() if depth and is_folder and name != CHECKPOINTS):
        yield from run_folders(folder / name, depth - 1, files)


def is_superseded(run: Path) -> bool:
    """Return whether a run has former settings: a workflow's step kept it next to the newer run, as STEP.1, STEP.2, ..."""
    step, dot, number = run.name.rpartition(".")
    return bool(dot) and number.isdigit() and (run.with_name(step) / STEP).exists()


class ChosenRun(NamedTuple):
    """The run that a folder of runs means."""

    path: Path
    reason: str
    """A sentence about it; empty if there is only one run."""


def chosen_run(folder: Path, runs: Sequence[Path]) -> ChosenRun:
    """Choose from the `runs` below a folder (newest first): the best run of their common sweep, else the newest of their common
    job.

    Raises `InputMissing` if they belong to several jobs or steps of a workflow.
    """
    newest_of = {_job_of(run): run for run in reversed(runs)}
    (place, *others) = newest_of
    if not others and isinstance(place, Path):
        best = place / Path(str(read_object(place / RANKING).get("best"))).name  # a name only: the file may be hostile
        if best in runs:
            return ChosenRun(best, f"{folder} is a sweep; this is its best run: {best}")
    if others:
        some = ", ".join(str(run) for run in sorted(newest_of.values())[:MOST_NAMED])
        more = f" and {len(newest_of) - MOST_NAMED:,} more" if len(newest_of) > MOST_NAMED else ""
        raise InputMissing(f"{folder} holds runs of {len(newest_of):,} jobs, so name one of them: {some}{more}")
    return ChosenRun(
        runs[0], f"{folder} holds {counted(len(runs), 'run')}; this is the newest: {runs[0]}" if len(runs) > 1 else ""
    )


def _job_of(run: Path) -> Path | str:
    """Identify a run's job: by the folder of its sweep, by its own folder as a step of a workflow, or by the name of the job."""
    is_step = (run / STEP).exists()
    if (run.parent / RANKING).exists() or (is_step and not (run.parent / WORKFLOW).exists()):
        return run.parent
    return run if is_step else RunFolder(run).job.get("name") or run


def is_locked(folder: Path) -> bool:
    """Return whether a process holds the lock of a folder: a run or a workflow is under way there."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # released at once: see `locked`
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)


def status_of(summary: Mapping[str, Any], *, training: bool, ended: str | None = None) -> str:
    """Return the status of a run, one of `STATUSES`.

    Args:
        summary: The content of `summary.json`; {} without one.
        training: `RunFolder.is_training`.
        ended: The status of the `end` event if that is the last event, else None.
    """
    if summary:
        return str(summary.get("status", "?"))
    return TRAINING if training else ended or KILLED


def _objects(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in lines, one of which may be cut off."""
    for line in lines:
        try:
            values = parse_json(line)
        except ValueError:
            continue
        if isinstance(values, dict):
            yield values
