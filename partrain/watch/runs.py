"""The runs below a path, searched repeatedly: new ones appear, removed ones disappear."""

from __future__ import annotations

import os
import time
from functools import lru_cache
from pathlib import Path

from partrain.config.toml_source import TomlSource
from partrain.errors import Failure, InputMissing
from partrain.record.file_names import EVENTS, STEP, WORKFLOW
from partrain.record.run_folder import run_folders
from partrain.watch.watched import WatchedRun, WatchedStep

DEPTH = 3
"""Levels below a folder that may hold runs: `runs/NAME/TIME`, or `runs/STUDY/STEP/TRIAL`."""
LOOK_S = 2.0
"""Seconds between two searches of the folders. Slow searches are rarer: they cost at most one percent of a core."""
SLICE_S = 0.03
"""Seconds of reading at a time, so that keys are answered in between."""


def root_of(path: str) -> Path:
    """Return the folder to watch: `latest` is the newest run in `runs/`. Raises InputMissing."""
    folder = Path(path)
    if path == "latest" and not folder.exists():
        folders = list(run_folders(Path("runs"))) if Path("runs").is_dir() else []
        if not folders:
            raise InputMissing("runs/ holds no run yet; train one: partrain run JOB.toml")
        return max(folders, key=lambda run: (run / EVENTS).stat().st_mtime_ns)
    if not folder.is_dir():
        raise InputMissing(f"{path}: no such folder; give a run folder or a folder of runs, or train: partrain run JOB.toml")
    return folder


class Runs:
    """The runs below a folder. `look` and `read` do little in each call; nothing here waits."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.runs: dict[Path, WatchedRun] = {}
        self.steps: dict[Path, WatchedStep] = {}
        self._next_look = 0.0

    def look(self, now: float) -> None:
        """Find runs and their status, if it is time. `now` comes from a monotonic clock."""
        if now < self._next_look:
            return
        begun = time.perf_counter()
        runs, steps = _folders(self.root)
        for folder in runs:
            if folder not in self.runs:
                self.runs[folder] = WatchedRun(folder, self._label(folder))
        self.runs = {folder: run for folder, run in self.runs.items() if folder in runs}
        self.steps = {folder: self.steps.get(folder) or WatchedStep(folder, self._label(folder)) for folder in steps}
        for run in self.runs.values():
            run.look()
        for step in self.steps.values():
            step.look()
        self._next_look = now + max(LOOK_S, 100 * (time.perf_counter() - begun))

    def refresh(self) -> None:
        """Check the training runs again: one may have ended."""
        for run in self.runs.values():
            if run.training:
                run.look()

    def read(self, wanted: list[WatchedRun], seconds: float = SLICE_S) -> bool:
        """Read events for about this time: of the wanted runs, then of all runs without a summary.

        Return True if there are more.
        """
        end = time.perf_counter() + seconds
        more = False
        others = [
            run for run in self.runs.values() if run.needs_events and run not in wanted and (run.training or not run.has_events)
        ]
        for run in [*wanted, *others]:
            left = end - time.perf_counter()
            if left <= 0:
                return True
            more = run.read(left) or more
        return more

    def read_all(self) -> None:
        """Read all events of the runs without a summary."""
        while self.read([], 60.0):
            pass

    def _label(self, folder: Path) -> str:
        return str(folder.relative_to(self.root)) if folder != self.root else folder.resolve().name


def _folders(root: Path) -> tuple[set[Path], set[Path]]:
    """Return the run folders below a folder, and the folders of a workflow's steps that are not run folders."""
    runs: set[Path] = set()
    steps: set[Path] = set()
    level = [root]
    for _ in range(DEPTH + 1):
        below: list[Path] = []
        for folder in level:
            if (folder / EVENTS).exists():
                runs.add(folder)
                continue
            try:
                with os.scandir(folder) as entries:
                    inner = [Path(entry.path) for entry in entries if entry.is_dir() and not entry.name.startswith(".")]
            except OSError:
                continue
            if (folder / STEP).exists():
                steps.add(folder)
            steps.update(folder / name for name in _steps_of(folder / WORKFLOW))
            below += inner
        level = below
    return runs, {step for step in steps if not any(step == run or step in run.parents for run in runs)}


def _steps_of(path: Path) -> tuple[str, ...]:
    """Return the names of a workflow's steps, which have no folder before they start."""
    try:
        return _names_in(path, path.stat().st_mtime_ns)
    except OSError:
        return ()


@lru_cache
def _names_in(path: Path, changed: int) -> tuple[str, ...]:
    try:
        steps = TomlSource.read(path).data.get("steps", [])
        names = [step["name"] for step in steps]
    except (Failure, LookupError, TypeError):
        return ()
    return tuple(name for name in names if isinstance(name, str) and name == Path(name).name)
