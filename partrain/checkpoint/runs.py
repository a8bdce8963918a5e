"""The run that a folder stands for: itself, or the newest of the runs in it. Imports neither numpy nor h5py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from partrain.errors import InputMissing

CHECKPOINT = "checkpoint.h5"
"""The newest checkpoint of a run folder."""
BEST = "best.h5"
"""The best checkpoint of a run folder by the judged metric."""
FOLDER = "checkpoints"
"""The folder of a run's checkpoints, one file per round."""
EVENTS = "events.jsonl"
"""The events of a run."""
_DEPTH = 3
"""Levels below a folder that may hold runs: `runs/NAME/TIME`."""


def silent(text: str) -> None:
    """Ignore the sentence."""


def run_folder_of(path: Path) -> Path | None:
    """Return the run folder that a checkpoint lies in."""
    path = path.absolute()
    for folder in (path.parent, path.parent.parent):
        if (folder / EVENTS).exists():
            return folder
    return None


def run_of(folder: Path, note: Callable[[str], None] = silent) -> Path:
    """Return the run folder that a folder stands for. Raises `InputMissing` if it holds no run with a checkpoint.

    Args:
        folder: A run folder, its `checkpoints`, or a folder of runs.
        note: Called with a sentence if the run was chosen among several.
    """
    if newest_checkpoint(folder):
        return folder
    if folder.name == FOLDER and newest_checkpoint(folder.parent):
        return folder.parent
    try:
        levels = ["*/" * depth for depth in range(1, _DEPTH + 1)]
        found = {path.parent: path for level in levels for path in folder.glob(f"{level}{CHECKPOINT}")}
        begun = (path.parent for level in levels for path in folder.glob(f"{level}{FOLDER}"))
        found |= {run: path for run in begun if run not in found and (path := newest_checkpoint(run))}
        newest = max(found, key=lambda run: found[run].stat().st_mtime_ns, default=None)
    except OSError as error:
        raise InputMissing(f"{folder}: {error.strerror}") from None
    if newest is None:
        began = (folder / EVENTS).exists()
        raise InputMissing(
            f"{folder} has no {CHECKPOINT}" + (": nothing was committed there" if began else ", and no run below it has")
        )
    note(f"{folder} holds {len(found):,} run{'s'[: len(found) > 1]}; this is the newest: {newest}")
    return newest


def newest_checkpoint(run: Path) -> Path | None:
    """Return the newest checkpoint of a run folder: `checkpoint.h5`, or the newest file of a round.

    A run that was killed before it named its first file `checkpoint.h5`, or could not, has only the latter.
    """
    if (run / CHECKPOINT).exists():
        return run / CHECKPOINT
    return max((run / FOLDER).glob("round-*.h5"), key=lambda path: (len(path.name), path.name), default=None)


def runs_below(folder: Path) -> list[Path]:
    """List the run folders that a folder stands for: itself, or all runs in it, with and without a checkpoint."""
    if (folder / EVENTS).exists():
        return [folder]
    return sorted(path.parent for depth in range(1, _DEPTH + 1) for path in folder.glob(f"{'*/' * depth}{EVENTS}"))


def checkpoint_of(path: Path, note: Callable[[str], None] = silent, best: bool = False) -> Path:
    """Return the checkpoint that a path stands for: a file, or the newest (or `best`) checkpoint of the run that a folder stands for."""
    if path.is_dir():
        run = run_of(path, note)
        if best and not (run / BEST).exists():
            why = "no round of it was judged since it began there, or the checkpoint of its best round is gone"
            raise InputMissing(f"{run} has no {BEST}: {why}; without --best it stands for its newest checkpoint")
        path = run / BEST if best else newest_checkpoint(run) or run / CHECKPOINT
        if path.parent.name == FOLDER:
            note(f"{run} has no {CHECKPOINT}: its run ended before it named one; this is its newest round: {path}")
        return path
    if path.suffix == ".toml" and path.is_file():
        raise InputMissing(f"{path} is a job, not a checkpoint; to train it: partrain run {path}")
    if best:
        raise InputMissing(f"{path}: --best takes a run folder, for its {BEST}; without --best a file stands for itself")
    return path
