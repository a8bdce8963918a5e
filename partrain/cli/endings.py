"""The end of `partrain run` and `partrain resume`: what is printed, and the exit code."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from partrain.cli.shared import print_failure, print_wrapped
from partrain.inference.open import foreign
from partrain.record.run_folder import RunFolder
from partrain.tasks.kinds import LANGUAGE

if TYPE_CHECKING:
    from partrain.checkpoint import Content
    from partrain.inference.open import Use
    from partrain.job.load import LoadedJob
    from partrain.job.schema import Job
    from partrain.launch.folder.outcome import Outcome


def finish(outcome: Outcome, loaded: LoadedJob, *, as_json: bool, until: Sequence[str] = ()) -> None:
    """Print the end of a run and exit. `until`: stop conditions that are missing from the job in its newest checkpoint."""
    from partrain.display.closing_lines import closing_lines
    from partrain.job.contradictions import count_of
    from partrain.job.workers import has_replicas

    stop = loaded.job.stop.model_dump(exclude_none=True)
    kept = RunFolder(outcome.folder).summary_file.exists()  # the log may have been moved away
    if as_json:
        print(json.dumps({"folder": str(outcome.folder) if kept else None, "code": outcome.code, **outcome.summary}))
    elif not kept:
        if outcome.failure is None:
            print(f"{outcome.summary['reason']}: no run folder is left", flush=True)
    else:
        spent = _rate_is_zero(loaded, outcome.horizon, outcome.summary["item_iterations"])
        code, remedy = bool(loaded.job.item_code), remedy_of(loaded.job)
        uses: tuple[Use, Use] = "items", "run"
        trust = [bool(outcome.checkpoint and foreign(loaded, loaded.text, outcome.checkpoint, use)) for use in uses]
        lines = closing_lines(
            outcome.summary,
            outcome.folder,
            outcome.checkpoint,
            stop,
            own_code=code,
            spent=spent,
            until=until,
            trust_to_evaluate=trust[0],
            trust_to_resume=trust[1],
            remedy=remedy,
            language=outcome.task == LANGUAGE,
            machines=len(outcome.summary["workers"]) // count_of(loaded.job.workers),
            replicas=has_replicas(loaded.job.workers),
            simulated=loaded.job.transport.kind == "simulated",
        )
        print_wrapped(*lines)  # before the failure, even if both go to one file
    if outcome.failure:
        print_failure(outcome.failure)
    raise typer.Exit(outcome.code)


def remedy_of(job: Job) -> str:
    """Return advice on how to wait less for a slow worker; "" if its work already follows its speed."""
    from partrain.job.contradictions import unbalanced_reason

    if job.partition.balance == "rate":
        return ""
    refused = unbalanced_reason(job.sync, job.workers) or any(group.partition_size for group in job.workers)
    balance = "" if refused else ', or set balance = "rate" in [partition]'
    if any(group.passes or (job.sync.passes and not group.iterations) for group in job.workers):
        return f"give it a smaller `partition_size` in [[workers]]{balance}"
    if job.faults.round_seconds:
        return "set [faults] round_seconds above the seconds of one of its iterations, and below the seconds of its whole round"
    if job.sync.syncs_every_iteration:
        return "leave it out, or take a rule whose workers train several iterations alone"
    own = "give it fewer `iterations` in [[workers]]"
    return own + (balance or (", or set [faults] round_seconds" if not job.sync.uncapped_reason else ""))


def nothing_to_do(path: Path, content: Content, reason: str, loaded: LoadedJob, *, ended: bool, as_json: bool) -> None:
    """Print why a run is not continued, and how to continue it. `ended`: False if only `--until` ends it here."""
    from partrain.checkpoint.manifest import manifest_of
    from partrain.record.stop_conditions import suggest_until

    stop = loaded.job.stop
    if as_json:
        print(json.dumps({"status": "nothing to do", "reason": reason, "round": content.round}))
        return
    trust = " --trust-code" * bool(foreign(loaded, content.job, path, "run"))
    if not ended:
        print(f"nothing to do: {path} has reached --until already (round {content.round}, {reason})")
        print(f"to continue to the end of its job: partrain resume {path}{trust}")
        return
    print(f"nothing to do: {path} is at the end of its run (round {content.round}, {reason})")
    manifest = manifest_of(content)
    progress = manifest.progress
    if _rate_is_zero(loaded, manifest.horizon, progress.item_iterations):
        print("the learning rate is 0: to train longer, start the job again with a higher limit or `horizon`")
        return
    status = "reached" if reason == "target" else "finished"
    arguments = suggest_until(stop.model_dump(), status, reason, progress.standing())
    further = "".join(f" --until {argument}" for argument in arguments)
    print(f"to continue: partrain resume {path}{trust}{further}")


def _rate_is_zero(loaded: LoadedJob, horizon: int | None, items: int) -> bool:
    """Return whether the learning rate is 0 after this many item-iterations."""
    return horizon is not None and not loaded.job.optimizer.rate(items, horizon)
