"""The command line. Commands import heavy modules when they need them: help and `validate` never import torch."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup
from typer.main import get_command_from_info, get_group

from partrain.cli.completion import join_words
from partrain.cli.shared import CommandLine, print_failure
from partrain.display.progress_line import ProgressLine
from partrain.errors import INTERNAL, USAGE, Failure, Internal
from partrain.system.progress import SHOWN
from partrain.version import __version__

if TYPE_CHECKING:
    from typer._click import Command, Context, HelpFormatter

COMMANDS = {
    "init": ("init", "Write a job, from a template or for your data."),
    "run": ("train", "Train a job, or run a workflow."),
    "resume": ("train", "Continue from a checkpoint, with the same bits."),
    "refit": ("train", "Train again, also on the held-out items."),
    "watch": ("watch", "Watch runs of other terminals, as they train."),
    "stop": ("control", "Stop a run from another terminal, resumable."),
    "checkpoint": ("control", "Have a run commit a checkpoint now."),
    "flow": ("workflow", "Look at workflows."),
    "validate": ("check", "Report all problems of jobs and workflows."),
    "plan": ("plan", "Show partitions, memory and speed of a job before it runs."),
    "verify": ("check", "Check a checkpoint's header, digests and manifest."),
    "bench": ("bench", "Measure the speed-up of more workers."),
    "compare": ("bench", "Compare jobs or runs side by side."),
    "runs": ("runs", "List, show, tag and remove runs."),
    "report": ("report", "Write a report of runs, one HTML file."),
    "plot": ("report", "Draw one figure of runs as SVG or PNG."),
    "inspect": ("inference", "Show what a checkpoint holds."),
    "evaluate": ("inference", "Evaluate a checkpoint's network."),
    "predict": ("inference", "Predict the items of a file, or continue a text."),
    "export": ("inference", "Export a network to a format of other programs."),
    "diff": ("inference", "Measure the distances of two networks."),
    "soup": ("inference", "Average the networks of several checkpoints."),
    "data": ("data", "Look at data sets, convert them, fetch them."),
    "config": ("config", "Print a job with its defaults, origins, differences."),
    "explain": ("reference", "Explain a key of a job, a rule, an exit code."),
    "ls": ("reference", "List rules, models, data sets, optimizers, jobs."),
    "doctor": ("doctor", "Show versions, devices and limits; test each device."),
    "schema": ("reference", "Print the JSON Schema of job files."),
}
"""Commands in the order of help: each command's module, and its line in `partrain --help`."""


class LazyCommands(Mapping[str, "Command"]):
    """The commands by name. Each is imported and built when it is looked up."""

    def __getitem__(self, name: str) -> Command:
        part = _typer_of(COMMANDS[name][0])
        if part.info.name == name:
            return get_group(part)
        (info,) = (
            command for command in part.registered_commands if name in (command.name, getattr(command.callback, "__name__", ""))
        )
        return get_command_from_info(info, pretty_exceptions_short=True, rich_markup_mode=None)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class CommandGroup(TyperGroup):
    """The command line. Its help needs no command."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = LazyCommands()  # type: ignore[assignment]  # nothing adds to it

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        """Run a command; an error about a value is shown without pydantic's prefix."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")
            raise

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


def _typer_of(module: str) -> typer.Typer:
    part: typer.Typer = import_module(f"partrain.cli.{module}").app
    return part


def all_commands() -> list[typer.Typer]:
    """Import all commands: workflows run them as steps."""
    return [_typer_of(module) for module in dict.fromkeys(module for module, _ in COMMANDS.values())]


app = typer.Typer(
    name="partrain",
    cls=CommandGroup,
    help="Train one PyTorch network on many workers at once: CPU processes and CUDA GPUs in the same training.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(*, asked: bool) -> None:
    if asked:
        print(f"partrain {__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    context.obj = CommandLine(all_commands, main)


def _print_failure(name: str, code: int, message: str) -> None:
    """Print a failure as the single JSON document, if `--json` is given."""
    if "--json" in sys.argv:
        print(json.dumps({"error": {"name": name, "code": code, "message": message}}))


def main() -> None:
    """Run a command; turn every failure into its message and its exit code."""
    join_words()
    SHOWN.set(ProgressLine(sys.stderr).note)
    try:
        app()
    except SystemExit as end:
        if end.code == USAGE:
            _print_failure("usage", USAGE, getattr(end.__context__, "format_message", str)())
            if any(word.endswith(".toml") for word in sys.argv[1:2]):
                print(f"Did you mean: partrain run {' '.join(sys.argv[1:])}", file=sys.stderr)
        raise
    except Failure as failure:
        _exit_with(failure)
    except Exception as error:
        from partrain.system.surroundings import surroundings_failure

        if recognised := surroundings_failure(error):
            _exit_with(recognised)
        traceback.print_exc()
        what = str(error).partition("\n")[0] if isinstance(error, Internal) else f"{type(error).__name__}: {error}"
        _print_failure("internal", INTERNAL, what)
        print(f"partrain: error[internal]: {what}; this is a defect of partrain, please report it", file=sys.stderr)
        sys.exit(INTERNAL)


def _exit_with(failure: Failure) -> NoReturn:
    """Print a failure and exit with its code."""
    if "--debug" in sys.argv:
        traceback.print_exc()
    _print_failure(failure.name, failure.code, failure.message)
    print_failure(failure)
    sys.exit(failure.code)
