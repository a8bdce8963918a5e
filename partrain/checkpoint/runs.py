"""The run that a folder stands for: itself, or the newest of the runs in it. Imports neither numpy nor h5py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from partrain.errors import InputMissing

CHECKPOINT = "checkpoint.h5"
"""The newest checkpoint of a run folder."""
EVENTS = "events.jsonl"
"""The events of a run."""
_DEPTH = 3
"""Levels below a folder that may hold runs: `runs/NAME/TIME`."""


def silent(text: str) -> None:
    """Ignore the sentence."""


def run_of(folder: Path, note: Callable[[str], None] = silent) -> Path:
    """Return the run folder that a folder stands for. Raises `InputMissing` if it holds no run with a checkpoint.

    Args:
        folder: A run folder, its `checkpoints`, or a folder of runs.
        note: Called with a sentence if the run was chosen among several.
    """
    if (folder / CHECKPOINT).exists():
        return folder
    if folder.name == "checkpoints" and (folder.parent / CHECKPOINT).exists():
        return folder.parent
    try:
        found = [path.parent for depth in range(1, _DEPTH + 1) for path in folder.glob(f"{'*/' * depth}{CHECKPOINT}")]
        newest = max(found, key=lambda run: (run / CHECKPOINT).stat().st_mtime_ns, default=None)
    except OSError as error:
        raise InputMissing(f"{folder}: {error.strerror}") from None
    if newest is None:
        began = (folder / EVENTS).exists()
        raise InputMissing(
            f"{folder} has no {CHECKPOINT}" + (": nothing was committed there" if began else ", and no run below it has")
        )
    note(f"{folder} holds {len(found):,} run{'s'[: len(found) > 1]}; this is the newest: {newest}")
    return newest


def runs_below(folder: Path) -> list[Path]:
    """List the run folders that a folder stands for: itself, or all runs in it, with and without a checkpoint."""
    if (folder / EVENTS).exists():
        return [folder]
    return sorted(path.parent for depth in range(1, _DEPTH + 1) for path in folder.glob(f"{'*/' * depth}{EVENTS}"))


def checkpoint_of(path: Path, note: Callable[[str], None] = silent) -> Path:
    """Return the checkpoint that a path stands for: a file, or the newest checkpoint of the run that a folder stands for."""
    if path.is_dir():
        return run_of(path, note) / CHECKPOINT
    if path.suffix == ".toml" and path.is_file():
        raise InputMissing(f"{path} is a job, not a checkpoint; to train it: partrain run {path}")
    return path
