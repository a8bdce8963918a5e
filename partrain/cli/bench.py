"""`partrain bench` and `partrain compare`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from partrain.checkpoint.runs import run_of
from partrain.cli.options import Debug, Json, Overrides
from partrain.cli.shared import examples, print_note, print_warnings, run_folder_of
from partrain.errors import InputMissing

app = typer.Typer()


@app.command(
    epilog=examples(
        "partrain bench --threads 1,2,4", "partrain bench jobs/wine.toml --threads 1,2 --seeds 3", "partrain bench --suite seeds"
    )
)
def bench(
    job: Annotated[Path | None, typer.Argument(metavar="[JOB.toml]", help="The job; default: an MLP on MNIST.")] = None,
    threads: Annotated[
        str | None, typer.Option("--threads", metavar="N,N...", help="Numbers of CPU workers, one thread each; default: 1,2.")
    ] = None,
    suite: Annotated[str | None, typer.Option("--suite", metavar="seeds", help="A fixed suite instead of a job.")] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Repeats, each with a seed of its own.")] = 3,
    items: Annotated[
        int | None, typer.Option("--items", min=1000, help="With --suite: cap on each worker's items; default: 30000.")
    ] = None,
    set_: Overrides = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure time to target, items and speed-up for each number of CPU workers."""
    if suite not in (None, "seeds"):
        raise typer.BadParameter(f"unknown suite `{suite}`; available: seeds", param_hint="--suite")
    if suite and (job or threads or set_):
        raise typer.BadParameter("a suite has its own jobs: omit JOB.toml, --threads and --set", param_hint="--suite")
    if items and not suite:
        raise typer.BadParameter("only with --suite", param_hint="--items")
    counts = _counts(threads or "1,2")
    if suite:
        from partrain.bench import seeds as fit

        result = fit.bench(items or 30_000, seeds, print_note)
        lines = [] if as_json else fit.render(result)
    else:
        from partrain.bench import workers

        result = workers.bench(job, counts, set_ or (), seeds, print_note, print_warnings)
        lines = [] if as_json else workers.render(result)
    print(json.dumps(result) if as_json else "\n".join(lines))
    raise typer.Exit(result["code"])


@app.command(
    epilog=examples(
        "partrain compare jobs/rules/bsp.toml jobs/rules/easgd.toml --seeds 3", "partrain compare runs/mnist runs/wine"
    )
)
def compare(
    paths: Annotated[
        list[Path], typer.Argument(metavar="JOB.toml|RUN_DIR...", help="Jobs to train, run folders, or checkpoints in them.")
    ],
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Repeats of each job, with a seed of its own each.")] = 3,
    set_: Overrides = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare jobs or runs: time and items to target, accuracy, bytes, waiting, and the settings that differ."""
    from partrain.bench import compare as comparison

    contenders = comparison.enter([_folder_of_run(path) for path in paths], set_ or (), print_note)
    for one in contenders:
        if one.loaded:
            print_warnings(one.loaded)
    result = comparison.compare(contenders, seeds, print_note)
    print(json.dumps(result) if as_json else "\n".join(comparison.render(result)))
    raise typer.Exit(result["code"])


def _folder_of_run(path: Path) -> Path:
    """Return the run folder of a checkpoint, which records time and bytes; of a folder of runs, the newest."""
    if path.is_dir() and not (path / "summary.json").exists() and not (path / "events.jsonl").exists():
        return run_of(path, print_note)
    if path.suffix != ".h5" or path.is_dir():
        return path
    if not path.exists():
        raise InputMissing(f"no such file: {path}")
    if (folder := run_folder_of(path)) is None:
        raise InputMissing(f"{path} is not in a run folder, which records time and bytes; give a run folder or a job")
    return folder


def _counts(text: str) -> list[int]:
    try:
        counts = sorted({int(part) for part in text.split(",")})
    except ValueError:
        counts = [0]
    if min(counts) < 1:
        raise typer.BadParameter(f"`{text}` is not a list of worker counts such as 1,2,4", param_hint="--threads")
    return counts
