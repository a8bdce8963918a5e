"""`partrain config`: a job as partrain reads it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from partrain.cli.options import Debug, Json, Overrides
from partrain.cli.shared import examples, print_warnings

app = typer.Typer()


@app.command(
    epilog=examples(
        "partrain config jobs/mnist.toml --full",
        "partrain config jobs/mnist.toml --origin --set optimizer.lr=0.1",
        "partrain config jobs/mnist.toml --diff runs/mnist/2026-11-23T10-00-00",
    )
)
def config(
    job: Annotated[Path, typer.Argument(metavar="JOB.toml", help="A job file, or a run folder for its job.")],
    set_: Overrides = None,
    *,
    full: Annotated[bool, typer.Option("--full", help="Also print all defaults, as comments.")] = False,
    origin: Annotated[bool, typer.Option("--origin", help="Print each value with the place that sets it.")] = False,
    diff: Annotated[
        Path | None,
        typer.Option("--diff", metavar="OTHER", help="Print the keys that differ from another job or run, defaults included."),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Print a job after --set: as it is, with its defaults, with the origin of each value, or its differences from another job."""
    from partrain.config.overrides import toml_value
    from partrain.display.text_table import aligned
    from partrain.job.resolved import difference, full_text, load_any

    if full + origin + (diff is not None) > 1:
        raise typer.BadParameter("choose one of --full, --origin and --diff", param_hint="--full")
    loaded, resolved = load_any(job, set_ or ())
    print_warnings(loaded)
    if diff is not None:
        rows = difference(resolved, load_any(diff)[1])
        if as_json:
            print(json.dumps([dict(zip(("key", "this", "other"), row, strict=True)) for row in rows]))
        else:
            print("\n".join(aligned([("key", str(job), str(diff)), *rows])) if rows else "the same settings")
    elif as_json:
        print(json.dumps([{"key": row.key, "value": row.value, "origin": row.origin} for row in resolved]))
    elif origin:
        print("\n".join(aligned([(row.key, toml_value(row.value), row.origin) for row in resolved])))
    else:
        sys.stdout.write(full_text(resolved) if full else loaded.text)
