"""`partrain validate` and `partrain verify`: check job files and checkpoints."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from partrain.checkpoint.runs import checkpoint_of
from partrain.cli.options import Debug, Json, NewestOf, Overrides
from partrain.cli.shared import examples, print_note, print_warning, print_wrapped
from partrain.errors import BadJob, Failure, InputMissing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from partrain.config.problems import Problem
    from partrain.job.load import LoadedJob

app = typer.Typer()


@app.command(
    epilog=examples(
        "partrain validate jobs/mnist.toml", "partrain validate jobs/*.toml --json", "partrain validate --build jobs/wine.toml"
    )
)
def validate(
    context: typer.Context,
    jobs: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Job files and workflows.")],
    set_: Overrides = None,
    *,
    build: Annotated[
        bool,
        typer.Option("--build", help="Then read the data, import your code, build the network, and try one batch, for each job."),
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Report every problem of jobs and workflows, each with its place and a suggestion. Exit 78 if there is an error, 66 if only files are
    missing; with --build as `run` would.
    """
    from partrain.config.problems import Problem, Rejected, Unreadable, shown
    from partrain.job.load import load
    from partrain.workflow.kinds import is_sweep, is_workflow

    warnings: list[tuple[Path, list[Problem]]] = []
    loaded: list[tuple[Path, LoadedJob]] = []
    missing, unreadable = [], 0
    for path in jobs:
        try:
            if is_workflow(path):
                if build:
                    raise typer.BadParameter(
                        f"{path} is a workflow, and jobs are built: name the jobs of its steps", param_hint="--build"
                    )
                from partrain.cli.workflow import commands
                from partrain.workflow.load import load as load_workflow

                warnings.append((path, load_workflow(path, commands(context.obj.commands())).warnings))
            elif is_sweep(path, set_ or ()):
                from partrain.cli.workflow import commands
                from partrain.workflow.load import of_jobs

                warnings.append((path, of_jobs([path], set_ or (), commands(context.obj.commands())).warnings))
                if build:
                    loaded.append((path, load(path, set_ or ())))
            else:
                loaded.append((path, load(path, set_ or ())))
                warnings.append((path, loaded[-1][1].warnings))
        except Rejected as rejected:
            warnings.append((path, rejected.problems))
            unreadable += len([problem for problem in rejected.problems if problem.severity == "error"]) * isinstance(
                rejected, Unreadable
            )
        except InputMissing as failure:
            if len(jobs) == 1:
                raise
            print_wrapped(failure.render(), stream=sys.stderr)
            missing.append(Problem(shown(str(path)), 0, 1, 1, failure.message))
            warnings.append((path, missing[-1:]))
    problems = [problem for _, some in warnings for problem in some]
    errors = [problem for problem in problems if problem.severity == "error"]
    if as_json and not (build and not errors):
        print(json.dumps({"problems": [problem.as_dict() for problem in problems]}))
    elif not as_json:
        for problem in problems:
            if problem not in missing:
                print_wrapped(problem.render() + "\n")
        for path, some in warnings:
            count = sum(problem.severity == "error" for problem in some)
            if count or not build:
                print(f"{path}: " + ("ok" if not count else f"{count} error{'s' * (count > 1)}"))
    if errors:
        raise typer.Exit(BadJob.code if len(errors) > len(missing) + unreadable else InputMissing.code)
    if build:
        _build(loaded, problems, as_json=as_json)


def _build(jobs: Sequence[tuple[Path, LoadedJob]], problems: Sequence[Problem], *, as_json: bool) -> None:
    """Try jobs without errors, one after another; exit as the first failure does."""
    from partrain.launch.dry_run import dry_run

    failures: list[Failure] = []
    results: list[dict[str, str]] = []
    for path, loaded in jobs:
        try:
            signal = dry_run(loaded, print_warning, print_note)
        except Failure as failure:
            failures.append(failure)
            results.append({"file": str(path), "failed": failure.name, "message": failure.message})
            print_wrapped(failure.render(), stream=sys.stderr)
        else:
            if signal is not None:
                raise typer.Exit(128 + signal)
            results.append({"file": str(path)})
        if not as_json:
            print(
                f"{path}: " + (f"failed ({failures[-1].name})" if "failed" in results[-1] else "ok, built and tried on a batch")
            )
    if as_json:
        print(json.dumps({"problems": [problem.as_dict() for problem in problems], "built": results}))
    if failures:
        raise typer.Exit(failures[0].code)


@app.command(epilog=examples("partrain verify runs/mnist"))
def verify(checkpoint: NewestOf, *, as_json: Json = False, debug: Debug = False) -> None:
    """Check header, digests and manifest of a checkpoint; exit 65 if any is wrong."""
    from partrain import checkpoint as checkpoints

    summary = checkpoints.verify(checkpoint_of(checkpoint, print_note, newest=checkpoint.is_dir()))
    print(json.dumps(summary) if as_json else f"{summary['file']}: ok, round {summary['round']}, sha256 {summary['sha256']}")
