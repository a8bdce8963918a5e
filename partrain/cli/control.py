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
from partrain.record.events import decode
from partrain.record.run_state import RunState

app = typer.Typer()

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or a folder of runs for the newest that trains.")]
POLL_S = 0.05
"""Seconds between two looks at the run folder."""


@app.command(epilog=examples("partrain stop runs/mnist", "partrain stop runs/mnist/2026-11-23T10-00-00 --now"))
def stop(
    run: Run = Path("runs"),
    now: Annotated[bool, typer.Option("--now", help="Do not wait for the end of the round.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Stop a run that another terminal trains: after its round, with a checkpoint. Return when it has ended."""
    from partrain.launch.control import NotTraining, ask_to_stop
    from partrain.launch.run_folder import is_training
    from partrain.launch.signals import ONE_WISH_S

    folder = _training_run(run)
    process = ask_to_stop(folder)
    print_note(f"process {process} stops {folder} {'now' if now else 'after its round'}")
    if now:
        time.sleep(ONE_WISH_S + POLL_S)  # signals closer than that count as one
        try:
            ask_to_stop(folder)
        except NotTraining:  # it has ended, or is about to
            now = False
    _wait(lambda: not is_training(folder))
    if not folder.exists():
        left = {"folder": None, "status": "stopped", "reason": "stopped before the first round", "round": 0}
        print(json.dumps(left) if as_json else "stopped before the first round: no run folder is left")
        return
    state = FollowedState(folder).read()
    document = {"folder": str(folder), "status": state.status, "reason": state.reason, "round": state.round}
    resume = f"\n  partrain resume {folder}" if (folder / "checkpoint.h5").exists() else ""
    print(json.dumps(document) if as_json else f"{state.status} ({state.reason}) in round {state.round:,}{resume}")


@app.command(epilog=examples("partrain checkpoint runs/mnist", "partrain checkpoint"))
def checkpoint(run: Run = Path("runs"), as_json: Json = False, debug: Debug = False) -> None:
    """Make a run that another terminal trains commit a checkpoint now. Return when the file is on disk."""
    from partrain.launch.control import NotTraining, ask_to_commit
    from partrain.launch.run_folder import is_training

    folder = _training_run(run)
    followed = FollowedState(folder)
    before = followed.read().round
    process = ask_to_commit(folder)
    print_note(f"process {process} commits a checkpoint of {folder}")

    def committed() -> bool:
        commit = followed.read().commit
        return commit is not None and commit.round > before

    _wait(lambda: committed() or not is_training(folder))
    commit = followed.read().commit
    if commit is None or commit.round <= before:
        raise NotTraining(f"{folder}: the run ended before another checkpoint was committed")
    path = folder / commit.file
    document = {"folder": str(folder), "file": str(path), "round": commit.round, "bytes": commit.bytes}
    print(json.dumps(document) if as_json else f"round {commit.round:,}: {path}")


def _training_run(path: Path) -> Path:
    """Return the run that a folder stands for: itself, or the newest run below it that trains."""
    from partrain.checkpoint.runs import runs_below
    from partrain.launch.control import NotTraining
    from partrain.launch.run_folder import is_training

    found = [folder for folder in runs_below(path) if is_training(folder)]
    if not found:
        raise NotTraining(f"{path}: no process trains a run here now")
    newest = max(found, key=lambda folder: (folder / "events.jsonl").stat().st_mtime_ns)
    if len(found) > 1:
        print_note(f"{len(found)} runs below {path} train now; this is the newest: {newest}")
    return newest


class FollowedState:
    """The state of a run that trains, from the lines that its events have grown by."""

    def __init__(self, folder: Path) -> None:
        from partrain.watch.tail import Tail

        self._tail, self._state = Tail(folder / "events.jsonl"), RunState()

    def read(self) -> RunState:
        """Read the new events."""
        while True:
            try:
                anew, lines = self._tail.read()
            except FileNotFoundError:  # the run ended before it began, and its folder went with it
                return self._state
            if anew:
                self._state = RunState()
            for line in lines:
                with suppress(ValueError):  # no event
                    self._state.apply(decode(line))
            if self._tail.at_end:
                return self._state


def _wait(done: Callable[[], bool]) -> None:
    while not done():
        time.sleep(POLL_S)
