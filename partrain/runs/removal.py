"""Removal of runs: only files of the run itself, never those of a run that is training or belongs to a workflow."""

from __future__ import annotations

import shutil
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from partrain.errors import CannotCreate, InputMissing
from partrain.launch.folder.run_folder import locked
from partrain.record.file_names import ATTEMPT_LOG, EVENTS, FILES, FORMER_BEST, LOG, PLANNED, SIGNATURES, STEP, TAGS
from partrain.record.run_folder import TRAINING, RunFolder, is_superseded
from partrain.runs.listing import ListedRun, size_of
from partrain.runs.tags import read_tags

DAY_S = 86_400


class OwnedByWorkflow(ValueError):
    """A run that belongs to a workflow: one line for the user."""


def owner(folder: Path) -> Path | None:
    """Return the folder of the workflow that owns a run: its steps, their trials and their outputs.

    It does not own runs of earlier settings.
    """
    place = folder.absolute()
    if is_superseded(place):
        return None
    steps = [ancestor for ancestor in (place, *place.parents) if (ancestor / STEP).is_file()]
    return steps[-1].parent if steps else None


def check_removable(folder: Path) -> None:
    """Check that a folder is a run that may be removed.

    Raises:
        InputMissing: It is not a run folder.
        OwnedByWorkflow: It belongs to a workflow.
        CannotCreate: The run is training, or has a tag.
    """
    if not folder.is_dir():
        raise InputMissing(f"no such run: {folder}; partrain runs lists them")
    if not RunFolder(folder).exists:
        raise InputMissing(f"{folder} is no run folder (it has no {EVENTS}): nothing was removed")
    if workflow := owner(folder):
        raise OwnedByWorkflow(f"{folder} belongs to the workflow in {_shown(workflow)}, which would run this step again; "
                              "to remove the workflow, delete its folder")  # fmt: skip
    if tags := read_tags(folder):
        raise CannotCreate(
            f"{folder} has the tag `{tags[0]}` and stays; to remove it, take the tag away first: "
            f"partrain runs tag {folder} {' '.join(tags)} --remove"
        )
    with locked(folder):
        pass


def remove(folder: Path) -> tuple[int, list[str]]:
    """Remove a run; return the bytes freed, and the names of files in its folder that are not the run's and stay."""
    with locked(folder):
        before = size_of(folder)
        try:
            if (checkpoints := RunFolder(folder).checkpoints).is_symlink():
                checkpoints.unlink()
            elif checkpoints.exists():
                shutil.rmtree(checkpoints)
            patterns = [
                FORMER_BEST.format("*"),
                *((STEP, LOG, ATTEMPT_LOG.format("*"), PLANNED) if is_superseded(folder) else ()),
            ]
            names = {*FILES, *(path.name for pattern in patterns for path in folder.glob(pattern)), SIGNATURES, TAGS}
            for name in sorted(names, key=lambda name: name == EVENTS):  # last: until then it is a run
                for file in (folder / f"{name}.part", folder / name):
                    file.unlink(missing_ok=True)
        except OSError as error:
            raise CannotCreate(f"{error.filename or folder}: cannot be removed: {error.strerror}") from None
        left = sorted(entry.name for entry in folder.iterdir())
        freed = before - size_of(folder)
    if not left:
        folder.rmdir()
        with suppress(OSError):  # other runs are in it
            folder.parent.rmdir() if _made_by_us(folder.parent) else None
    return freed, left


def garbage(runs: Sequence[ListedRun], keep: int | None, older_than: float | None) -> Iterator[tuple[ListedRun, str]]:
    """Find disposable runs, each with the reason.

    These are runs that never committed a checkpoint. `keep` (newest runs of each job) or `older_than` (days) adds runs beyond the
    limit; both together add only runs beyond both. Never included: tagged runs, a workflow's runs, the best run of each job, and
    running ones.

    Args:
        runs: The newest first.
        keep: Number of runs of each job to keep.
        older_than: Age in days up to which runs are kept.
    """
    best = {run.folder for run in _best(runs)}
    seen: defaultdict[str, int] = defaultdict(int)
    for run in runs:
        seen[_job(run)] += 1
        if run.columns["tags"] or run.columns["status"] == TRAINING or owner(run.folder):
            continue
        if not _committed(run.folder):
            yield run, "committed no checkpoint"
        elif run.folder not in best:
            days = (time.time() - run.columns["when"]) / DAY_S
            reasons = []
            if keep is not None:
                reasons.append(f"not among the newest {keep} of `{_job(run)}`" if seen[_job(run)] > keep else "")
            if older_than is not None:
                reasons.append(f"{days:,.0f} days old" if days > older_than else "")
            if reasons and all(reasons):
                yield run, ", ".join(reasons)


def _committed(folder: Path) -> bool:
    files = RunFolder(folder)
    return files.checkpoint.exists() or files.holds_checkpoints


def _best(runs: Sequence[ListedRun]) -> Iterator[ListedRun]:
    """Yield the best run of each job, by the number that chose the run's network; if a job's runs differ in it, by each."""
    ranked: defaultdict[tuple[str, str], list[ListedRun]] = defaultdict(list)
    for run in runs:
        if _committed(run.folder) and run.result.rank is not None:
            ranked[_job(run), run.result.by].append(run)
    for several in ranked.values():
        yield min(several, key=lambda run: run.result.place)


def _job(run: ListedRun) -> str:
    return str(run.start.get("name") or run.folder.parent.name)


def _made_by_us(folder: Path) -> bool:
    """Return whether a folder is `runs/NAME`."""
    return folder.absolute().parent.name == "runs"


def _shown(path: Path) -> Path:
    cwd = Path.cwd()
    return path.relative_to(cwd) if path.is_relative_to(cwd) else path
