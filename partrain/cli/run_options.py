"""Options of both `run` and `resume`. `--log` and `--metrics-port` let other tools follow the run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from partrain.cli.completion import complete_hook
from partrain.cli.shared import print_note, print_warning

if TYPE_CHECKING:
    from partrain.comm.machine import Machine
    from partrain.launch.context import RunContext
    from partrain.launch.hook_process import HookProcess

LOOPBACK = "127.0.0.1"

Log = Annotated[
    list[str] | None,
    typer.Option(
        "--log",
        metavar="HOOK",
        help="Log the run to tensorboard, mlflow, wandb or another installed hook.",
        autocompletion=complete_hook,
    ),
]
MetricsPort = Annotated[
    int | None,
    typer.Option("--metrics-port", min=0, max=65535, metavar="N", help="Serve Prometheus text at this port; 0 takes a free one."),
]
MetricsHost = Annotated[str, typer.Option("--metrics-host", metavar="HOST", help="With --metrics-port: address to listen on.")]


class HookOptions(NamedTuple):
    """The options that choose hooks."""

    log: tuple[str, ...] = ()
    port: int | None = None
    host: str = LOOPBACK

    @classmethod
    def checked(cls, log: list[str] | None, port: int | None, host: str) -> HookOptions:
        """Build them; refuse unknown hooks, and hooks whose packages are missing."""
        options = cls(tuple(log or ()), port, host)
        if options:
            from partrain.hooks.select import find_hooks, require

            with _reported("--log"):
                find_hooks(options.log)
            with _reported("--metrics-port"):
                if port is not None:
                    require("prometheus")
        return options

    def open(self) -> HookProcess:
        """Open the port and print its address. The hooks start with the run."""
        from partrain.launch.hook_process import HookProcess

        if not self:
            return HookProcess()
        from partrain.hooks.select import find_hooks, open_port

        listening = None if self.port is None else open_port(self.host, self.port)
        if listening:
            host = f"[{self.host}]" if ":" in self.host else self.host
            print_note(f"metrics at http://{host}:{listening.getsockname()[1]}/metrics")
        return HookProcess(find_hooks(self.log), listening)

    def __bool__(self) -> bool:
        return bool(self.log) or self.port is not None


@contextmanager
def _reported(option: str) -> Iterator[None]:
    """Report a ValueError as wrong use of an option."""
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


class RunOptions(NamedTuple):
    """Options of both `run` and `resume`."""

    hooks: HookOptions
    quiet: bool
    as_json: bool
    verbose: bool

    def context(self, folder: Path, hooks: HookProcess, machine: Machine | None, made: Path | None) -> RunContext:
        """Return the context of a run in a folder.

        `made` is the topmost folder created for it, `machine` this machine under torchrun.
        """
        from partrain.display.display import make_display
        from partrain.launch.context import RunContext

        display = make_display(sys.stdout, json=self.as_json, quiet=self.quiet, verbose=self.verbose, folder=folder)
        several = machine if machine and not machine.alone else None
        return RunContext(
            folder, display, print_warning, machine=several, torchrun=machine, note=print_note, hooks=hooks, made=made
        )
