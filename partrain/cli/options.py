"""Arguments and options shared by several commands."""

from pathlib import Path
from typing import Annotated

import typer

from partrain.cli.completion import complete_override

Job = Annotated[Path, typer.Argument(metavar="JOB.toml", help="The job file.")]
Checkpoint = Annotated[Path, typer.Argument(metavar="CKPT.h5", help="A checkpoint, or a run folder for its best one.")]
NewestOf = Annotated[Path, typer.Argument(metavar="CKPT.h5", help="A checkpoint, or a run folder for its newest one.")]
Newest = Annotated[
    bool, typer.Option("--newest", help="Of a run folder, take its newest checkpoint (checkpoint.h5), not the best.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a key, as in optimizer.lr=0.2; ~KEY removes one.",
        autocompletion=complete_override,
    ),
]
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="The run folder; default: runs/<name>/<time>.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")]
Params = Annotated[
    list[str] | None, typer.Option("--param", metavar="NAME=VALUE", help="Workflow: another value of [params], as in lr=0.1.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no live table and no lines for rounds.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Without a terminal: print a line for each round.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of a failure.")]
TrustCode = Annotated[
    bool, typer.Option("--trust-code", help="Run the code and read the data files that the checkpoint's job names.")
]
AcceptChanges = Annotated[
    bool, typer.Option("--accept-changes", help="Continue, although the run's code computes other numbers than before.")
]
JobOverride = Annotated[
    Path | None,
    typer.Option("--job", metavar="JOB.toml", help="Use this job and its code instead of the checkpoint's."),
]
Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="G", help="The file to write; default: stdout.")]
RequiredOutput = Annotated[Path, typer.Option("--output", "-o", metavar="G", help="The file to write.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing output.")]
Sort = Annotated[
    str | None,
    typer.Option(
        "--sort",
        metavar="KEY",
        help="Sort by a column or a number of summary.json, as in -test.accuracy: `-` puts the largest first.",
    ),
]
OnlyChanged = Annotated[
    bool,
    typer.Option("--only-changed", help="Leave out columns that are the same in all rows, and add the job's keys that differ."),
]
Markdown = Annotated[bool, typer.Option("--md", help="Print a Markdown table.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print CSV.")]
