"""`partrain init`: write a first job."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from partrain.cli.options import Debug, Force
from partrain.cli.shared import examples, print_note, print_warnings, print_wrapped
from partrain.number_format import clock, counted

if TYPE_CHECKING:
    from partrain.job.load import LoadedJob

MEASURED_S = 5
"""Seconds of training that measure the speed."""

app = typer.Typer()


@app.command(
    epilog=examples(
        "partrain init && partrain run job.toml",
        "partrain init --from houses.csv --target price houses.toml",
        "partrain init --from houses.csv --target price --minutes 2 houses.toml",
        "partrain init --list",
    )
)
def init(
    job: Annotated[Path, typer.Argument(metavar="[JOB.toml]", help="The job file to write; default: job.toml.")] = Path(
        "job.toml"
    ),
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="JOB.toml", help="The same as the argument.")] = None,
    template: Annotated[str | None, typer.Option("--template", metavar="NAME", help="The template: see --list.")] = None,
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="DATA", help="Write a job for this table, these arrays, this text or folder of images."),
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            "--target",
            metavar="COLUMN",
            help="With --from: the column or array to predict. Repeatable, or `A,B`: several columns.",
        ),
    ] = None,
    kind: Annotated[
        Literal["table", "series", "text", "images"] | None,
        typer.Option(
            "--kind",
            help="Take a table as items in any order, a series in time, or texts; a folder as texts or images. Default: recognised.",
        ),
    ] = None,
    separator: Annotated[
        str | None, typer.Option("--separator", metavar="CHAR", help="Separator of the cells of a CSV file; default: recognised.")
    ] = None,
    encoding: Annotated[
        str | None, typer.Option("--encoding", metavar="NAME", help="Encoding of a CSV file; default: recognised.")
    ] = None,
    decimal: Annotated[
        Literal[".", ","] | None, typer.Option("--decimal", help="Decimal mark of numbers in a CSV file; default: recognised.")
    ] = None,
    thousands: Annotated[
        str | None,
        typer.Option("--thousands", metavar="CHAR", help="Character between groups of three digits; default: recognised."),
    ] = None,
    number_marks: Annotated[
        str | None,
        typer.Option("--number-marks", metavar="CHARS", help="Signs next to numbers to leave out, as `%$`; default: recognised."),
    ] = None,
    date_format: Annotated[
        list[str] | None,
        typer.Option(
            "--date-format", metavar="FORM", help="Form of dates in a CSV file, as %d.%m.%Y; default: recognised. Repeatable."
        ),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            "--time",
            metavar="COLUMN",
            help="Column of time stamps, or year,month,day: newest rows are held out. `none`: use no column. Default: recognised.",
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            metavar="COLUMN",
            help="Column of persons, machines, ...: each is in one part, or with --kind series a series. Default: recognised.",
        ),
    ] = None,
    horizon: Annotated[
        int | None,
        typer.Option("--horizon", metavar="N", min=1, help="Rows of a series to forecast; default: at most a season."),
    ] = None,
    missing: Annotated[
        list[str] | None,
        typer.Option(
            "--missing", metavar="TEXT", help="Text of a missing value, instead of NA, N/A, nan, null and ?. Repeatable."
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            "--minutes", metavar="N", help="With --from: train at most about N minutes on this machine, whose speed is measured."
        ),
    ] = None,
    *,
    listed: Annotated[bool, typer.Option("--list", help="List the templates.")] = False,
    no_schema: Annotated[
        bool, typer.Option("--no-schema", help="Do not write the JSON Schema for editors next to the job.")
    ] = False,
    force: Force = False,
    debug: Debug = False,
) -> None:
    """Write a complete job, from a template or for a file of data."""
    from partrain import templates
    from partrain.config.problems import did_you_mean
    from partrain.display.text_table import aligned
    from partrain.errors import InputMissing
    from partrain.inference.output import check

    texts = templates.names()
    if listed:
        print("\n".join(aligned(list(texts.items()))))
        return
    if output is not None:
        if job != Path("job.toml"):
            raise typer.BadParameter(f"two files to write: {job} and {output}; give one", param_hint="--output")
        job = output
    if source is not None and template is not None:
        raise typer.BadParameter("give either --from or --template", param_hint="--from")
    keys: dict[str, Any] = {
        "separator": separator,
        "encoding": encoding,
        "decimal": decimal,
        "thousands": thousands,
        "number_marks": number_marks,
    }
    keys |= {"date_format": tuple(date_format)} if date_format else {}
    for option, value in {
        "target": target,
        "kind": kind,
        "time": time,
        "group": group,
        "horizon": horizon,
        **keys,
        "missing": missing,
        "minutes": minutes,
    }.items():
        if value not in (None, []) and source is None:
            raise typer.BadParameter("it belongs to --from", param_hint=_flag([option]))
    if template is not None and template not in texts:
        near = did_you_mean(template, texts)
        advice = f"did you mean {near}?" if near else f"there are {', '.join(texts)}"
        raise typer.BadParameter(f"no template is called `{template}`: {advice}", param_hint="--template")
    notes: Sequence[str] = ()
    if source is None:
        text = templates.text(template or templates.DEFAULT)
    else:
        from pydantic import ValidationError

        from partrain.data.tables.sections import HasDialect
        from partrain.templates.assemble import Asked
        from partrain.templates.from_data import job_for

        if not source.exists():
            raise InputMissing(f"no such file: {source}")
        dialect = {key: value for key, value in keys.items() if value is not None}
        try:
            HasDialect.model_validate(dialect | {"date_format": date_format or []})
        except ValidationError as error:
            wrong = error.errors()[0]
            raise typer.BadParameter(wrong["msg"].removeprefix("Value error, "), param_hint=_flag(wrong["loc"])) from None
        asked = Asked(tuple(target or ()), kind, time, dialect, tuple(missing) if missing else None, group, horizon)
        if horizon and kind not in (None, "series"):
            raise typer.BadParameter(f"it belongs to a series, and --kind {kind} is no series", param_hint="--horizon")
        timed = time not in (None, "none")
        if group not in (None, "none") and kind != "series" and (timed or horizon or kind not in (None, "table")):
            other = "--time" if timed else "--horizon" if horizon else f"--kind {kind}"
            raise typer.BadParameter(
                f"rows are split by units, and {other} splits them in another way: keep one", param_hint="--group"
            )
        text, notes = job_for(source, asked, job.absolute().parent)
    from partrain.job.load import parse

    if minutes is not None and minutes <= 0:
        raise typer.BadParameter("expected a number above 0", param_hint="--minutes")
    check(job, force=force)
    for note in notes:
        print_note(note)
    loaded = parse(text, job.absolute().parent, str(job), local=True)
    print_warnings(loaded)
    if minutes:
        text = _fitted(text, loaded, minutes)
    schema = job.with_name(templates.SCHEMA)
    if no_schema:
        job.write_text(text, encoding="utf-8")
    else:
        job.write_text(templates.SCHEMA_LINE + text, encoding="utf-8")
        schema.write_text(templates.schema(), encoding="utf-8")
        print_wrapped(
            f"{shlex.quote(str(schema))} is written; editors complete and check the job by it (Even Better TOML, taplo)"
        )
    name = shlex.quote(str(job))
    print_wrapped(f"{name} is written; train it with:", f"  partrain run {name}")


def _fitted(text: str, loaded: LoadedJob, minutes: float) -> str:
    """Return the text of a job with the rounds that this machine trains in some minutes, but no more than the job has."""
    from partrain.bench.planned import measured_end

    print_note(f"trains for {MEASURED_S} s to measure the speed of this machine")
    planned, seconds = measured_end(loaded, MEASURED_S)
    share = min(1.0, 60 * minutes / seconds)
    rounds = max(1, int(planned * share))
    print_note(
        f"{counted(rounds, 'round')}{f' of {planned:,}' * (share < 1)} take about {clock(seconds * rounds / planned)} (h:mm:ss) at most"
    )
    if share == 1:
        return text
    shorter = f"rounds = {rounds:<20} # about {minutes:g} minutes on the machine that wrote this; {planned:,} were usual"
    return re.sub(r"^rounds = .*$", shorter, text, count=1, flags=re.MULTILINE)


def _flag(keys: Sequence[int | str]) -> str | None:
    """Return the option of a key of `[dataset]`; None for a contradiction between several."""
    return f"--{keys[0]}".replace("_", "-") if keys else None
