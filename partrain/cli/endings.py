"""The end of `partrain run` and `partrain resume`: what is printed, and the exit code."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from partrain.checkpoint import Content
    from partrain.job.load import LoadedJob
    from partrain.launch.outcome import Outcome


def finish(outcome: Outcome, loaded: LoadedJob, as_json: bool, until: Sequence[str] = ()) -> None:
    """Print the end of a run and exit. `until`: stop conditions that the job in its newest checkpoint does not have."""
    from partrain.checkpoint.signature import is_signed
    from partrain.display.closing_lines import closing_lines

    stop = loaded.job.stop.model_dump(exclude_none=True)
    kept = (outcome.folder / "summary.json").exists()  # the log may have been moved away
    if as_json:
        print(json.dumps({"folder": str(outcome.folder) if kept else None, "code": outcome.code, **outcome.summary}))
    elif not kept:
        if outcome.failure is None:
            print(f"{outcome.summary['reason']}: no run folder is left", flush=True)
    else:
        spent = _rate_is_zero(loaded, outcome.horizon, outcome.summary["item_iterations"])
        code, hook = bool(loaded.job.item_code), bool(loaded.job.hooks.code)
        signed = (code or hook) and is_signed(outcome.folder, loaded.text, loaded.folder)
        lines = closing_lines(outcome.summary, outcome.folder, outcome.checkpoint, stop, code, spent, until, hook, signed)
        print("\n".join(lines), flush=True)  # before the failure, even if both go to one file
    if outcome.failure:
        print(outcome.failure.render(), file=sys.stderr)
    raise typer.Exit(outcome.code)


def nothing_to_do(path: Path, content: Content, reason: str, loaded: LoadedJob, as_json: bool) -> None:
    """Print that a run is at its end, and how it can continue."""
    from partrain.checkpoint.manifest import manifest_of
    from partrain.checkpoint.runs import run_folder_of
    from partrain.checkpoint.signature import is_signed
    from partrain.display.stop_conditions import suggest_until

    stop = loaded.job.stop
    older = {"judge": stop.judge} if stop.judge == "any-worker" else {}
    if as_json:
        print(json.dumps({"status": "nothing to do", "reason": reason, "round": content.round, **older}))
        return
    by = "".join(f", {key}={value}" for key, value in older.items())
    print(f"nothing to do: {path} is at the end of its run (round {content.round}, {reason}{by})")
    manifest = manifest_of(content)
    progress = manifest.progress
    if _rate_is_zero(loaded, manifest.horizon, progress.item_iterations):
        print("the learning rate is 0: to train longer, start the job again with a higher limit or `horizon`")
        return
    status = "reached" if reason == "target" else "finished"
    arguments = suggest_until(stop.model_dump(), status, reason, progress.standing())
    further = "".join(f" --until {each}" for each in arguments)
    trusted = not loaded.job.user_code or is_signed(run_folder_of(path), content.job, loaded.folder)
    print(f"to continue: partrain resume {path}{'' if trusted else ' --trust-code'}{further}")


def _rate_is_zero(loaded: LoadedJob, horizon: int | None, items: int) -> bool:
    """Return whether the learning rate is 0 after this many item-iterations."""
    return horizon is not None and not loaded.job.optimizer.rate(items, horizon)
