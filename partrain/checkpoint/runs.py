"""The run that a folder means: the folder itself, or the newest run in it. Imports neither numpy nor h5py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from partrain.errors import InputMissing
from partrain.record.file_names import BEST, CHECKPOINT, CHECKPOINTS, EVENTS
from partrain.record.run_folder import RunFolder, chosen_run, run_folders


def silent(text: str) -> None:
    """Ignore the sentence."""


def run_folder_of(path: Path) -> Path | None:
    """Return the run folder that contains a checkpoint."""
    whole = path.absolute()
    for folder in (whole.parent, whole.parent.parent):
        if (folder / EVENTS).exists():
            return folder if path.is_absolute() or not folder.is_relative_to(Path.cwd()) else folder.relative_to(Path.cwd())
    return None


def run_of(folder: Path, note: Callable[[str], None] = silent) -> Path:
    """Return the run folder that a folder means. Raises `InputMissing` if it holds no run with a checkpoint.

    Args:
        folder: A run folder, its `checkpoints`, or a folder of runs.
        note: Called with a sentence if the run was chosen from several.
    """
    if RunFolder(folder).newest_checkpoint:
        return folder
    if folder.name == CHECKPOINTS and RunFolder(folder.parent).newest_checkpoint:
        return folder.parent
    chosen = chosen_run(folder, runs_in(folder))
    if chosen.reason:
        note(chosen.reason)
    return chosen.path


def runs_in(folder: Path) -> list[Path]:
    """Return the run folders with a checkpoint at and below a folder, newest first. Raises `InputMissing` without any."""
    runs = run_folders(folder, files=(CHECKPOINT, CHECKPOINTS))  # copied runs may lack their events
    newest_of = {run: path for run in runs if (path := RunFolder(run).newest_checkpoint)}
    if not newest_of:
        began = (folder / EVENTS).exists()
        raise InputMissing(
            f"{folder} has no {CHECKPOINT}" + (": nothing was committed there" if began else ", and no run below it has")
        )
    return sorted(newest_of, key=lambda run: newest_of[run].stat().st_mtime_ns, reverse=True)


def checkpoint_of(path: Path, note: Callable[[str], None] = silent, *, newest: bool = False) -> Path:
    """Return the checkpoint that a path means: a file itself; for a folder, the best checkpoint of the run that it means.

    For a run without a judged round, or with `newest`, it is the newest checkpoint.
    """
    if path.is_dir():
        run = run_of(path, note)
        path = RunFolder(run).newest_checkpoint or run / CHECKPOINT
        if not newest and (run / BEST).exists():
            return run / BEST
        if path.parent.name == CHECKPOINTS:
            note(f"{run} has no {CHECKPOINT}: its run ended before it named one; this is its newest round: {path}")
        return path
    if path.suffix == ".toml" and path.is_file():
        raise InputMissing(f"{path} is a job, not a checkpoint; to train it: partrain run {path}")
    if newest:
        raise InputMissing(f"{path}: --newest takes a run folder, for its {CHECKPOINT}; leave --newest out to name a file")
    return path
