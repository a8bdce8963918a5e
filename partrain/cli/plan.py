"""`partrain plan`: the effects of a job on this machine, before it runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from partrain.cli.options import Debug, Json, Overrides
from partrain.cli.shared import examples, print_note, print_warnings, print_wrapped
from partrain.display.text_table import terminal_width

app = typer.Typer()


@app.command(epilog=examples("partrain plan jobs/mnist.toml", "partrain plan jobs/mnist.toml --probe --set workers.0.count=1"))
def plan(
    job: Annotated[Path, typer.Argument(metavar="JOB.toml", help="The job.")],
    set_: Overrides = None,
    *,
    probe: Annotated[
        bool, typer.Option("--probe", help="Train for some seconds to measure speed, memory, bytes per round and waiting.")
    ] = False,
    seconds: Annotated[float, typer.Option("--seconds", min=0.5, help="With --probe: seconds of each measurement.")] = 2.0,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show partitions, memory and end of a job before it runs. --probe also measures its speed, and predicts if one more worker pays."""
    from partrain.bench import busy, planned
    from partrain.bench.peak_memory import held
    from partrain.job.load import load

    own = held(os.getpid()) if probe else 0
    loaded = load(job, set_ or ())
    print_warnings(loaded)
    result = planned.plan(loaded)
    if probe:
        if note := busy():
            print_note(note)
        result["probe"] = planned.probe(loaded, result, seconds, own, print_note)
    if as_json:
        print(json.dumps(result))
    else:
        print_wrapped(*planned.render(result, terminal_width()))
