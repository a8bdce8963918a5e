"""`--log`, `--metrics-port` and `--metrics-host`: other tools that follow a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from partrain.cli.shared import print_note

if TYPE_CHECKING:
    from partrain.launch.hook_process import HookProcess

LOOPBACK = "127.0.0.1"

Log = Annotated[
    list[str] | None,
    typer.Option("--log", metavar="HOOK", help="Log the run to tensorboard, mlflow, wandb or another installed hook."),
]
MetricsPort = Annotated[
    int | None,
    typer.Option("--metrics-port", min=0, max=65535, metavar="N", help="Serve Prometheus text at this port; 0: a free one."),
]
MetricsHost = Annotated[str, typer.Option("--metrics-host", metavar="HOST", help="Address of that port.")]


class HookOptions(NamedTuple):
    """The options that choose hooks."""

    log: tuple[str, ...] = ()
    port: int | None = None
    host: str = LOOPBACK

    def check(self) -> None:
        """Refuse unknown hooks, and hooks whose packages are missing."""
        if not self:
            return
        from partrain.hooks.select import find_hooks, require

        try:
            find_hooks(self.log)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--log") from None
        try:
            if self.port is not None:
                require("prometheus")
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--metrics-port") from None

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
