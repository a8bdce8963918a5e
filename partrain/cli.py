"""The command line. Nothing heavy is imported before a command needs it: help and `validate` never see torch."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from partrain import __version__
from partrain.after.commands import app as after
from partrain.data_commands import app as data
from partrain.errors import INTERNAL, USAGE, BadCheckpoint, BadJob, Failure, InputMissing, Internal
from partrain.opening import job_of, newest, opened
from partrain.options import Checkpoint, Debug, Job, Json, Out, Quiet, Sets, Trust

if TYPE_CHECKING:
    from partrain.checkpoint import Content
    from partrain.comm.machine import Machine
    from partrain.job import LoadedJob
    from partrain.launch.ending import Outcome

app = typer.Typer(
    name="partrain",
    help="Train one PyTorch network on many workers at once: CPU processes and CUDA GPUs in the same training.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        print(f"partrain {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def run(job: Job, out: Out = None, set_: Sets = None, quiet: Quiet = False, as_json: Json = False, debug: Debug = False) -> None:
    """Train a job; exit 1 if a target was set and not reached."""
    from partrain.job import load

    loaded = load(job, set_ or ())
    _warn(loaded)
    machine = _machine()
    folder = _join(machine, loaded, quiet, as_json) if machine else None
    from partrain.console import make_display
    from partrain.launch.folder import new_folder
    from partrain.launch.run import run as train
    from partrain.launch.stage import Stage

    folder = folder or new_folder(out, loaded.job.name)
    stage = Stage(folder, make_display(sys.stdout, as_json, quiet), _say, machine=machine)
    _finish(train(loaded, stage), loaded, as_json)


@app.command()
def resume(
    checkpoint: Checkpoint,
    until: Annotated[
        list[str] | None, typer.Option("--until", metavar="KEY=VALUE", help="Move a stop condition, as in rounds=500.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Folder for a checkpoint from outside a run folder.")
    ] = None,
    trust_code: Trust = False,
    quiet: Quiet = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Continue to the bit where a checkpoint stands; exit 0 if there is nothing to do."""
    machine = _machine()
    if machine and machine.number:
        _join(machine, None, quiet, as_json)
    path, content = opened(checkpoint)
    if not any(name.startswith("workers/") for name in content.arrays):
        raise BadCheckpoint(f"{path} holds a network and no workers, as soups do: there is nothing to resume; use a member of it")
    loaded = job_of(content, path, trust_code, until or (), here=True)
    from partrain.console import make_display
    from partrain.launch.ending import beyond, conclude, nothing_left, went_on
    from partrain.launch.folder import new_folder
    from partrain.launch.run import resume as proceed
    from partrain.launch.stage import Stage

    loaded = beyond(loaded, content, until or ())
    folder = out or _run_folder(path)
    if (reason := nothing_left(loaded, content, _run_folder(path))) is not None:
        if own := _run_folder(path):

            def test() -> tuple[float, float | None] | None:
                from partrain.evaluation import tested

                return tested(loaded, content)

            conclude(loaded, content, own, reason, test)
        _nothing_to_do(path, content, reason, loaded, as_json)
        return
    if folder is None:
        folder = new_folder(None, loaded.job.name)
    elif out is not None:
        folder = new_folder(out, loaded.job.name)
    stage = Stage(folder, make_display(sys.stdout, as_json, quiet), _say, machine=machine)
    outcome = proceed(loaded, content, stage)
    outcome = replace(outcome, checkpoint=outcome.checkpoint or path)  # where it came from, if it has added nothing
    _finish(outcome, loaded, as_json, () if went_on(stage, content) else until or ())


@app.command()
def validate(
    jobs: Annotated[list[Path], typer.Argument(metavar="JOB.toml...", help="Job files.")],
    set_: Sets = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Report every problem of job files, each with its place and a suggestion; exit 78 if there is an error, 66 if all that is
    wrong is that files are missing."""
    from partrain.job import load
    from partrain.problems import Problem, Rejected, shown

    found: list[tuple[Path, list[Problem]]] = []
    missing = []
    for path in jobs:
        try:
            found.append((path, load(path, set_ or ()).warnings))
        except Rejected as rejected:
            found.append((path, rejected.problems))
        except InputMissing as failure:
            if len(jobs) == 1:
                raise
            print(failure.render(), file=sys.stderr)
            missing.append(Problem(shown(str(path)), 0, 1, 1, failure.message))
            found.append((path, missing[-1:]))
    problems = [problem for _, some in found for problem in some]
    errors = [problem for problem in problems if problem.severity == "error"]
    if as_json:
        print(json.dumps({"problems": [problem.as_dict() for problem in problems]}))
    else:
        for problem in problems:
            if problem not in missing:
                print(problem.render() + "\n")
        for path, some in found:
            count = sum(problem.severity == "error" for problem in some)
            print(f"{path}: " + ("ok" if not count else f"{count} error{'s' * (count > 1)}"))
    if errors:
        raise typer.Exit(BadJob.code if len(errors) > len(missing) else InputMissing.code)


@app.command()
def verify(checkpoint: Checkpoint, as_json: Json = False, debug: Debug = False) -> None:
    """Check header, digest and structure of a checkpoint; exit 65 if anything is off."""
    from partrain import checkpoint as checkpoints

    summary = checkpoints.verify(newest(checkpoint))
    print(json.dumps(summary) if as_json else f"{summary['file']}: ok, round {summary['round']}, sha256 {summary['sha256']}")


@app.command()
def bench(
    job: Annotated[Path | None, typer.Argument(metavar="[JOB.toml]", help="The job; default: an MLP on MNIST.")] = None,
    threads: Annotated[
        str | None, typer.Option("--threads", metavar="N,N...", help="Numbers of CPU workers, one thread each; default: 1,2.")
    ] = None,
    suite: Annotated[str | None, typer.Option("--suite", metavar="seeds", help="A fixed suite instead of a job.")] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Repeats, each with a seed of its own.")] = 3,
    items: Annotated[
        int | None, typer.Option("--items", min=1000, help="With --suite: cap on each worker's items; default: 30000.")
    ] = None,
    set_: Sets = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Time to target, items and speed-up for each number of CPU workers."""
    if suite not in (None, "seeds"):
        raise typer.BadParameter(f"no suite `{suite}`; there is: seeds", param_hint="--suite")
    if suite and (job or threads or set_):
        raise typer.BadParameter("a suite has jobs of its own: give no job, no --threads and no --set", param_hint="--suite")
    if items and not suite:
        raise typer.BadParameter("belongs to --suite", param_hint="--items")
    counts = _counts(threads or "1,2")
    if suite:
        from partrain.bench import seeds as fit

        result = fit.bench(items or 30_000, seeds, _progress)
        lines = [] if as_json else fit.render(result)
    else:
        from partrain.bench import workers

        result = workers.bench(job, counts, set_ or (), seeds, _progress, _warn)
        lines = [] if as_json else workers.render(result)
    print(json.dumps(result) if as_json else "\n".join(lines))
    raise typer.Exit(result["code"])


@app.command()
def compare(
    paths: Annotated[
        list[Path], typer.Argument(metavar="JOB.toml|RUN_DIR...", help="Jobs to train, run folders, or checkpoints in them.")
    ],
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Repeats of each job, with a seed of its own each.")] = 3,
    set_: Sets = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Jobs or runs side by side: time and items to target, accuracy, bytes, waiting, and the settings that differ."""
    from partrain.bench import compare as comparison

    contenders = comparison.enter([_compared(path) for path in paths], set_ or ())
    for one in contenders:
        if one.loaded:
            _warn(one.loaded)
    result = comparison.compare(contenders, seeds, _progress)
    print(json.dumps(result) if as_json else "\n".join(comparison.render(result)))
    raise typer.Exit(result["code"])


def _compared(path: Path) -> Path:
    """A checkpoint stands for the run folder it lies in: only there is what its run took."""
    if path.suffix != ".h5" or path.is_dir():
        return path
    if not path.exists():
        raise InputMissing(f"no such file: {path}")
    if (folder := _run_folder(path)) is None:
        raise InputMissing(f"{path} lies in no run folder, and only there is what its run took: give that, or a job")
    return folder


def _counts(text: str) -> list[int]:
    try:
        counts = sorted({int(part) for part in text.split(",")})
    except ValueError:
        counts = [0]
    if min(counts) < 1:
        raise typer.BadParameter(f"`{text}` is no list of numbers of workers such as 1,2,4", param_hint="--threads")
    return counts


def _progress(text: str) -> None:
    print(f"partrain: {text}", file=sys.stderr)


def _run_folder(path: Path) -> Path | None:
    """The run folder a checkpoint lies in."""
    path = path.absolute()
    for folder in (path.parent, path.parent.parent):
        if (folder / "events.jsonl").exists():
            return folder
    return None


def _machine() -> Machine | None:
    """Which machine this is under torchrun, whose death nobody here outlives."""
    from partrain.comm.machine import Machine

    if machine := Machine.find():
        from partrain.launch.lifeline import arm

        arm(os.getppid())
    return machine


def _join(machine: Machine, own: LoadedJob | None, quiet: bool, as_json: bool) -> Path | None:
    """One of several machines: the first goes on where torchrun has started it anew, the others help it, and both end here.

    Returns the folder in which the first is to begin once more, if nothing was committed there.
    """
    from partrain.launch.machines import assist, kept_folder

    if machine.number:
        failure = assist(machine, own, _note)
        if failure:
            raise failure
        raise typer.Exit(0)
    folder = kept_folder(machine)
    if folder and (folder / "checkpoint.h5").exists():
        resume(folder, None, None, True, quiet, as_json, False)
        raise typer.Exit(0)
    return folder


def _note(text: str) -> None:
    print(f"partrain: {text}", file=sys.stderr)


def _finish(outcome: Outcome, loaded: LoadedJob, as_json: bool, until: Sequence[str] = ()) -> None:
    """Say how a run ended; `until`: what the job in its newest checkpoint does not know of."""
    from partrain.epilogue import epilogue

    stop = loaded.job.stop.model_dump(exclude_none=True)
    if as_json:
        print(json.dumps({"folder": str(outcome.folder), "code": outcome.code, **outcome.summary}))
    else:
        spent = _spent(loaded, outcome.horizon, outcome.summary["item_iterations"])
        lines = epilogue(outcome.summary, outcome.folder, outcome.checkpoint, stop, bool(loaded.job.user_code), spent, until)
        print("\n".join(lines), flush=True)  # before the line about the failure, also where both go to one file
    if outcome.failure:
        print(outcome.failure.render(), file=sys.stderr)
    raise typer.Exit(outcome.code)


def _nothing_to_do(path: Path, content: Content, reason: str, loaded: LoadedJob, as_json: bool) -> None:
    from partrain.epilogue import moved
    from partrain.launch.manifest import manifest_of

    stop = loaded.job.stop
    older = {"judge": stop.judge} if stop.judge == "any-worker" else {}
    if as_json:
        print(json.dumps({"status": "nothing to do", "reason": reason, "round": content.round, **older}))
        return
    by = "".join(f", {key}={value}" for key, value in older.items())
    print(f"nothing to do: {path} is at the end of its run (round {content.round}, {reason}{by})")
    manifest = manifest_of(content)
    progress = manifest.progress
    ending: dict[str, Any] = {
        "status": "reached" if reason == "target" else "finished",
        "reason": reason,
        "rounds": content.round,
    }
    ending |= {"loss": progress.loss, "metrics": {"accuracy": progress.accuracy}, "item_iterations": progress.item_iterations}
    if _spent(loaded, manifest.horizon, progress.item_iterations):
        print("its learning rate has come to 0: to train for longer, run the job anew with a higher limit, or `horizon`")
        return
    further = "".join(f" --until {each}" for each in moved(ending, stop.model_dump(exclude_none=True)))
    print(f"to go further: partrain resume {path}{' --trust-code' * bool(loaded.job.user_code)}{further}")


def _spent(loaded: LoadedJob, horizon: int | None, items: int) -> bool:
    """Whether the learning rate has come to 0 after so many item-iterations."""
    return horizon is not None and not loaded.job.optimizer.rate(items, horizon)


def _warn(loaded: LoadedJob) -> None:
    for problem in loaded.warnings:
        print(problem.render(), file=sys.stderr)


def _say(text: str) -> None:
    print(f"partrain: warning: {text}", file=sys.stderr)


def _tell(name: str, code: int, message: str) -> None:
    """A failure as the one JSON document, if that is wanted."""
    if "--json" in sys.argv:
        print(json.dumps({"error": {"name": name, "code": code, "message": message}}))


app.add_typer(after)
app.add_typer(data)


def main() -> None:
    """Entry point: every failure becomes its line and its exit code."""
    try:
        app()
    except SystemExit as end:
        if end.code == USAGE:
            _tell("usage", USAGE, getattr(end.__context__, "format_message", str)())
            if any(word.endswith(".toml") for word in sys.argv[1:2]):
                print(f"Did you mean: partrain run {' '.join(sys.argv[1:])}", file=sys.stderr)
        raise
    except Failure as failure:
        if "--debug" in sys.argv:
            traceback.print_exc()
        _tell(failure.name, failure.code, failure.message)
        print(failure.render(), file=sys.stderr)
        sys.exit(failure.code)
    except Exception as error:
        traceback.print_exc()
        what = str(error).partition("\n")[0] if isinstance(error, Internal) else f"{type(error).__name__}: {error}"
        _tell("internal", INTERNAL, what)
        print(f"partrain: error[internal]: {what}; this is a defect of partrain, please report it", file=sys.stderr)
        sys.exit(INTERNAL)
