"""The command line. Commands import heavy modules when they need them: help and `validate` never import torch."""

from __future__ import annotations

import json
import sys
import traceback
from typing import Annotated

import typer

from partrain.cli import bench, check, data, inference, reference, train, workflow
from partrain.cli.shared import CommandLine
from partrain.errors import INTERNAL, USAGE, Failure, Internal
from partrain.version import __version__

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
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    context.obj = CommandLine(app, main)


def _print_failure(name: str, code: int, message: str) -> None:
    """Print a failure as the one JSON document, if `--json` is given."""
    if "--json" in sys.argv:
        print(json.dumps({"error": {"name": name, "code": code, "message": message}}))


for module in train, workflow, check, bench, inference, data, reference:
    app.add_typer(module.app)


def main() -> None:
    """Run a command; turn every failure into its message and its exit code."""
    try:
        app()
    except SystemExit as end:
        if end.code == USAGE:
            _print_failure("usage", USAGE, getattr(end.__context__, "format_message", str)())
            if any(word.endswith(".toml") for word in sys.argv[1:2]):
                print(f"Did you mean: partrain run {' '.join(sys.argv[1:])}", file=sys.stderr)
        raise
    except Failure as failure:
        if "--debug" in sys.argv:
            traceback.print_exc()
        _print_failure(failure.name, failure.code, failure.message)
        print(failure.render(), file=sys.stderr)
        sys.exit(failure.code)
    except Exception as error:
        traceback.print_exc()
        what = str(error).partition("\n")[0] if isinstance(error, Internal) else f"{type(error).__name__}: {error}"
        _print_failure("internal", INTERNAL, what)
        print(f"partrain: error[internal]: {what}; this is a defect of partrain, please report it", file=sys.stderr)
        sys.exit(INTERNAL)
