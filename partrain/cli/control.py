"""`partrain stop` and `partrain checkpoint`: requests to a run that another process trains."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from partrain.cli.options import Debug, Json
from partrain.cli.shared import examples, print_note
from partrain.record.file_names import RUNNER
from partrain.record.run_folder import RunFolder, is_locked, run_folders
from partrain.record.run_state import RunState
from partrain.record.tail import FollowedState

app = typer.Typer()

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or a folder of runs for the newest that trains.")]
Stopped = Annotated[
    Path,
    typer.Argument(metavar="RUN", help="A run folder, the folder of a workflow, or a folder of runs for the newest that trains."),
]
POLL_S = 0.05
"""Seconds between two checks of the run folder."""


@app.command(epilog=examples("partrain stop runs/mnist", "partrain stop runs/mnist/2026-11-23T10-00-00 --now"))
def stop(
    run: Stopped = Path("runs"),
    *,
    now: Annotated[bool, typer.Option("--now", help="Do not wait for the end of the round.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Stop a run or a workflow of another terminal: after the round, with a checkpoint. Return when it has ended."""
    from partrain.launch.control import NotTraining, ask_to_stop
    from partrain.launch.signals import ONE_WISH_S

    run_folder = None if (run / RUNNER).exists() and is_locked(run) else _training_run(run)
    folder = run_folder.path if run_folder else run
    if run_folder and not folder.samefile(run):  # the newest of several: not a single step of a workflow, which would go on
        from partrain.runs.removal import owner

        study = owner(folder)
        run_folder, folder = (None, study) if study and is_locked(study) else (run_folder, folder)
    process = ask_to_stop(folder)
    print_note(f"process {process} stops {folder} {'now' if now else 'after its round'}")
    if now:
        time.sleep(ONE_WISH_S + POLL_S)  # closer signals count as one
        try:
            ask_to_stop(folder)
        except NotTraining:  # it has ended, or is about to
            now = False
    _wait(lambda: not is_locked(folder))
    if run_folder is None:
        print(json.dumps({"folder": str(folder), "status": "stopped"}) if as_json else f"stopped\n  partrain resume {folder}")
        return
    if not folder.exists():
        left = {"folder": None, "status": "stopped", "reason": "stopped before the first round", "round": 0}
        print(json.dumps(left) if as_json else "stopped before the first round: no run folder is left")
        return
    state = _state(FollowedState(run_folder.events_file))
    document = {"folder": str(folder), "status": state.status, "reason": state.reason, "round": state.round}
    resume = f"\n  partrain resume {folder}" if run_folder.checkpoint.exists() else ""
    print(json.dumps(document) if as_json else f"{state.status} ({state.reason}) in round {state.round:,}{resume}")


@app.command(epilog=examples("partrain checkpoint runs/mnist", "partrain checkpoint"))
def checkpoint(run: Run = Path("runs"), *, as_json: Json = False, debug: Debug = False) -> None:
    """Ask a run of another terminal for a checkpoint now. Return when the file is on disk."""
    from partrain.launch.control import NotTraining, ask_to_commit

    run_folder = _training_run(run)
    folder, followed = run_folder.path, FollowedState(run_folder.events_file)
    before = _state(followed).round
    process = ask_to_commit(folder)
    print_note(f"process {process} commits a checkpoint of {folder}")

    def committed() -> bool:
        commit = _state(followed).commit
        return commit is not None and commit.round > before

    _wait(lambda: committed() or not run_folder.is_training)
    commit = _state(followed).commit
    if commit is None or commit.round <= before:
        raise NotTraining(f"{folder}: the run ended before another checkpoint was committed")
    path = folder / commit.file
    document = {"folder": str(folder), "file": str(path), "round": commit.round, "bytes": commit.bytes}
    print(json.dumps(document) if as_json else f"round {commit.round:,}: {path}")


def _training_run(path: Path) -> RunFolder:
    """Return the run of a folder: the folder itself, or the newest training run below it."""
    from partrain.launch.control import NotTraining

    training = [run for run in map(RunFolder, run_folders(path)) if run.is_training]
    if not training:
        raise NotTraining(f"{path}: no process trains a run here now")
    newest = max(training, key=lambda run: run.events_file.stat().st_mtime_ns)
    if len(training) > 1:
        print_note(f"{len(training)} runs below {path} train now; this is the newest: {newest.path}")
    return newest


def _state(followed: FollowedState) -> RunState:
    """Read the new events. A run that ended before it began has removed its folder."""
    with suppress(FileNotFoundError):
        followed.read()
    return followed.state


def _wait(done: Callable[[], bool]) -> None:
    while not done():
        time.sleep(POLL_S)
