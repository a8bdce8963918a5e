"""`partrain bench` and `partrain compare`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from partrain.checkpoint.runs import run_folder_of, run_of
from partrain.cli.options import Csv, Debug, Force, Json, Markdown, OnlyChanged, Overrides, Sort
from partrain.cli.shared import check_one_format, examples, print_note, print_warnings
from partrain.display.text_table import terminal_width
from partrain.errors import InputMissing
from partrain.record.file_names import STUDY_FILES
from partrain.record.run_folder import RunFolder

if TYPE_CHECKING:
    from partrain.bench.compare import LineSource

app = typer.Typer()


@app.command(
    epilog=examples(
        "partrain bench --workers 1,2,4", "partrain bench jobs/wine.toml --workers 1,2 --seeds 3", "partrain bench --suite seeds"
    )
)
def bench(
    job: Annotated[Path | None, typer.Argument(metavar="[JOB.toml]", help="The job; default: an MLP on MNIST.")] = None,
    workers: Annotated[
        str | None,
        typer.Option("--workers", metavar="N,N...", help="Numbers of CPU workers to compare, one thread each; default: 1,2."),
    ] = None,
    threads: Annotated[str | None, typer.Option("--threads", metavar="N,N...", help="The same as --workers.")] = None,
    suite: Annotated[
        Literal["seeds", "mixing"] | None, typer.Option("--suite", help="Fixed jobs: an older trainer's, or meetings of workers.")
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Repeats, each with another seed.")] = 3,
    items: Annotated[
        int | None, typer.Option("--items", min=1000, help="With --suite seeds: most items of each worker; default: 30000.")
    ] = None,
    set_: Overrides = None,
    *,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure time to target, items and speed-up for each number of CPU workers."""
    if workers and threads:
        raise typer.BadParameter("--workers and --threads are the same: give one of them", param_hint="--threads")
    if suite and (job or workers or threads or set_):
        raise typer.BadParameter("a suite has its own jobs: omit JOB.toml, --workers and --set", param_hint="--suite")
    if items and suite != "seeds":
        raise typer.BadParameter("only with --suite seeds", param_hint="--items")
    counts = _counts(workers or threads or "1,2", "--threads" if threads else "--workers")
    width = terminal_width()
    if suite == "mixing":
        from partrain.bench import mixing

        result = mixing.bench(seeds, print_note)
        lines = [] if as_json else mixing.render(result, width)
    elif suite:
        from partrain.bench import seeds as fit

        result = fit.bench(items or 30_000, seeds, print_note)
        lines = [] if as_json else fit.render(result, width)
    else:
        from partrain.bench import workers as speed_up

        result = speed_up.bench(job, counts, set_ or (), seeds, print_note, print_warnings)
        lines = [] if as_json else speed_up.render(result, width)
    print(json.dumps(result) if as_json else "\n".join(lines))
    raise typer.Exit(result["code"])


@app.command(
    epilog=examples(
        "partrain compare jobs/rules/bsp.toml jobs/rules/easgd.toml --seeds 3",
        "partrain compare runs/mnist/* --sort seconds --only-changed",
        "partrain compare jobs/wine.toml --assert 'test.accuracy >= 0.97'",
    )
)
def compare(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="JOB.toml|RUN_DIR...", help="Jobs to train, run folders, checkpoints in them, or folders of runs."
        ),
    ],
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Repeats of each job, each with another seed.")] = 3,
    asserts: Annotated[
        list[str] | None,
        typer.Option(
            "--assert",
            metavar="CONDITION",
            help="Exit 1 unless this holds for each run, or for the medians over the seeds of each job: 'test.accuracy >= 0.97'.",
        ),
    ] = None,
    sort: Sort = None,
    *,
    only_changed: OnlyChanged = False,
    set_: Overrides = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="F.md|F.csv", help="Also write the table to this file, as Markdown or CSV."),
    ] = None,
    force: Force = False,
    markdown: Markdown = False,
    csv: Csv = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare jobs or runs, the best first: result, test, seconds, item-iterations, waiting, and the settings that differ."""
    from partrain.bench import compare as comparison
    from partrain.bench import compare_table
    from partrain.inference.output import check, create
    from partrain.runs.selection import BadSelection, parse_condition

    check_one_format(markdown=markdown, csv=csv, as_json=as_json)
    if output:
        if output.suffix not in (".md", ".csv"):
            raise typer.BadParameter(f"{output}: the suffix says the format: .md or .csv", param_hint="--output")
        check(output, force=force)
    try:
        conditions = [parse_condition(text) for text in asserts or ()]
    except BadSelection as error:
        raise typer.BadParameter(str(error), param_hint="--assert") from None
    contenders = comparison.enter(_entries(paths), set_ or (), print_note)
    for contender in contenders:
        if contender.loaded:
            print_warnings(contender.loaded)
    hint = "--assert" if not sort else "--sort" if not asserts else "--assert, --sort"
    try:
        result = comparison.compare(contenders, seeds, print_note, conditions, sort)
    except BadSelection as error:
        raise typer.BadParameter(str(error), param_hint=hint) from None

    def lines(suffix: str) -> list[str]:
        if suffix == ".csv":
            return compare_table.as_csv(result)
        width = None if suffix else terminal_width()
        return compare_table.render(result, width, only_changed=only_changed, as_markdown=suffix == ".md")

    if output:
        create(output, "".join(f"{line}\n" for line in lines(output.suffix)).encode(), force=force)
    shown = [json.dumps(result)] if as_json else lines(".csv" if csv else ".md" if markdown else "")
    print("\n".join(shown), flush=True)
    for verdict in result.get("asserts", ()):
        if not verdict["holds"]:
            print_note(verdict["line"])
    if unknown := result.get("unknown"):
        print(f"partrain: {hint}: {unknown}", file=sys.stderr)
    raise typer.Exit(result["code"])


def _entries(paths: Sequence[Path]) -> list[LineSource]:
    """Return jobs and run folders. Paths that are neither are skipped with a note, unless nothing is left."""
    entries: list[LineSource] = []
    refused = []
    for path in paths:
        try:
            entries += _entries_at(path)
        except InputMissing as neither:
            if not path.exists():
                raise
            refused.append((path, neither))
    if not entries:
        raise refused[0][1]
    for path, nothing in refused:
        if path.name not in STUDY_FILES:  # `compare runs/sweep/*` also matches them
            print_note(f"left out: {nothing}")
    return entries


def _entries_at(path: Path) -> list[LineSource]:
    """Return a job, a run folder, a checkpoint's run folder, which records time and bytes, or all of these below a folder."""
    from partrain.bench.compare import LineSource, sources_below
    from partrain.workflow.kinds import is_workflow

    files = RunFolder(path)
    if path.is_dir():
        whole = files.summary_file.exists() or files.events_file.exists()
        return [LineSource(path)] if whole else list(sources_below(path, print_note)) or [LineSource(run_of(path, print_note))]
    if path.suffix != ".h5":
        if path.is_file() and (path.suffix != ".toml" or is_workflow(path)):
            raise InputMissing(f"{path} is neither a job nor a run")
        return [LineSource(path)]
    if not path.exists():
        raise InputMissing(f"no such file: {path}")
    if (folder := run_folder_of(path)) is None:
        raise InputMissing(f"{path} is not in a run folder, which records time and bytes; give a run folder or a job")
    return [LineSource(folder)]


def _counts(text: str, option: str) -> list[int]:
    try:
        counts = sorted({int(part) for part in text.split(",")})
    except ValueError:
        counts = [0]
    if min(counts) < 1:
        raise typer.BadParameter(f"`{text}` is not a list of worker counts such as 1,2,4", param_hint=option)
    return counts
