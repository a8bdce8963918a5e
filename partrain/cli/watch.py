"""`partrain watch`: runs of other terminals while they train."""

from __future__ import annotations

import json
import sys
import time
from typing import Annotated

import typer

from partrain.cli.options import Debug, Json
from partrain.cli.shared import examples

app = typer.Typer()


@app.command(epilog=examples("partrain watch", "partrain watch latest", "partrain watch runs/mnist --once"))
def watch(
    runs: Annotated[
        str,
        typer.Argument(
            metavar="RUN|FOLDER|latest",
            help="A run folder, or a folder of runs, a sweep or a workflow; `latest`: the newest run.",
        ),
    ] = "runs",
    *,
    once: Annotated[bool, typer.Option("--once", help="Print one frame and exit. This needs no Textual.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Watch runs that other terminals train: curves, workers, progress. This only reads run folders. Without a terminal it prints one frame."""
    from partrain.watch.runs import root_of

    root = root_of(runs)
    if once or as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        import shutil

        from partrain.watch.once import document, once_lines, read_once

        watched = read_once(root)
        if as_json:
            print(json.dumps(document(watched)))
            return
        width, height = shutil.get_terminal_size()
        unicode = "utf" in (sys.stdout.encoding or "").lower()
        print("\n".join(once_lines(watched, time.time(), width, height, unicode=unicode)))
        return
    from partrain.watch.start import show

    show(root)
