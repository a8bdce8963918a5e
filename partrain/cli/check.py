"""`partrain validate` and `partrain verify`: check job files and checkpoints."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from partrain.checkpoint.runs import checkpoint_of
from partrain.cli.options import Checkpoint, Debug, Json, Overrides
from partrain.cli.shared import examples, print_note
from partrain.errors import BadJob, InputMissing

app = typer.Typer()


@app.command(epilog=examples("partrain validate jobs/mnist.toml", "partrain validate jobs/*.toml --json"))
def validate(
    context: typer.Context,
    jobs: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Job files and workflows.")],
    set_: Overrides = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Report every problem of jobs and workflows, each with its place and a suggestion. Exit 78 if there is an error, 66 if only files are
    missing.
    """
    from partrain.config.problems import Problem, Rejected, Unreadable, shown
    from partrain.job.load import load
    from partrain.workflow.kinds import is_sweep, is_workflow

    found: list[tuple[Path, list[Problem]]] = []
    missing, unreadable = [], 0
    for path in jobs:
        try:
            if is_workflow(path):
                from partrain.cli.workflow import commands
                from partrain.workflow.load import load as load_workflow

                found.append((path, load_workflow(path, commands(context.obj.commands())).warnings))
            elif is_sweep(path, set_ or ()):
                from partrain.cli.workflow import commands
                from partrain.workflow.load import of_jobs

                found.append((path, of_jobs([path], set_ or (), commands(context.obj.commands())).warnings))
            else:
                found.append((path, load(path, set_ or ()).warnings))
        except Rejected as rejected:
            found.append((path, rejected.problems))
            unreadable += len([one for one in rejected.problems if one.severity == "error"]) * isinstance(rejected, Unreadable)
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
        raise typer.Exit(BadJob.code if len(errors) > len(missing) + unreadable else InputMissing.code)


@app.command(epilog=examples("partrain verify runs/mnist"))
def verify(checkpoint: Checkpoint, as_json: Json = False, debug: Debug = False) -> None:
    """Check header, digest and structure of a checkpoint; exit 65 if any is wrong."""
    from partrain import checkpoint as checkpoints

    summary = checkpoints.verify(checkpoint_of(checkpoint, print_note))
    print(json.dumps(summary) if as_json else f"{summary['file']}: ok, round {summary['round']}, sha256 {summary['sha256']}")
