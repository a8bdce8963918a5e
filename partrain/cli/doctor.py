"""`partrain doctor`: the environment, ready to paste into an issue."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from partrain.cli.options import Debug, Json
from partrain.cli.shared import examples
from partrain.errors import NOT_REACHED

app = typer.Typer()


@app.command(epilog=examples("partrain doctor", "partrain doctor --test"))
def doctor(
    *,
    test: Annotated[bool, typer.Option("--test", help="Train a tiny network on each device, twice, and resume it.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show versions, devices, memory and limits of this machine, with advice. Exit 1 if a test fails."""
    from partrain.bench import doctor

    facts = list(doctor.facts())
    tested = doctor.check_devices() if test else []
    facts += tested
    print(json.dumps([asdict(fact) for fact in facts]) if as_json else "\n".join(doctor.render(facts)))
    raise typer.Exit(NOT_REACHED if any(fact.advice for fact in tested) else 0)
