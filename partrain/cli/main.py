"""The command line. Nothing heavy is imported before a command needs it: help and `validate` never see torch."""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from partrain.cli.data import app as data
from partrain.cli.inference import app as after
from partrain.cli.options import Checkpoint, Debug, Json, Sets
from partrain.errors import INTERNAL, USAGE, BadJob, Failure, InputMissing, Internal
from partrain.inference.open import newest
from partrain.version import __version__

if TYPE_CHECKING:
    from partrain.job.load import LoadedJob

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
def validate(
    jobs: Annotated[list[Path], typer.Argument(metavar="JOB.toml...", help="Job files.")],
    set_: Sets = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Report every problem of job files, each with its place and a suggestion; exit 78 if there is an error, 66 if all that is
    wrong is that files are missing."""
    from partrain.config.problems import Problem, Rejected, shown
    from partrain.job.load import load

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


def _warn(loaded: LoadedJob) -> None:
    for problem in loaded.warnings:
        print(problem.render(), file=sys.stderr)


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
