"""`partrain report` and `partrain plot`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from partrain.checkpoint.runs import run_folder_of
from partrain.cli.options import Debug, Force, Json, TrustCode
from partrain.cli.shared import examples, print_note, print_wrapped
from partrain.errors import InputMissing
from partrain.system.regular_file import open_regular

if TYPE_CHECKING:
    from partrain.report.history import RunHistory

app = typer.Typer()

By = Literal["seconds", "items", "rounds"]
Runs = Annotated[
    list[Path], typer.Argument(metavar="RUN...", help="Run folders, checkpoints in them, folders of workflows or sweeps.")
]


@app.command(epilog=examples("partrain report runs/mnist", "partrain report runs/two runs/one -o report.html"))
def report(
    runs: Runs,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="F.html", help="The file to write.")] = Path("report.html"),
    *,
    items: Annotated[
        bool, typer.Option("--items/--no-items", help="Evaluate the networks: result, errors, worst items, data.")
    ] = True,
    force: Force = False,
    trust_code: TrustCode = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write a report of runs: one HTML file with verdict, curves, workers, faults and the job. A former report is replaced."""
    from partrain.display.text_table import terminal_width
    from partrain.inference.output import check, create
    from partrain.report import page as pages
    from partrain.report.history import compared_runs
    from partrain.report.sources import find
    from partrain.report.verdict import verdict

    force = force or _is_report(output)
    check(output, force=force)
    sources = find([_folder(path) for path in runs], print_note)
    histories = _histories(sources.runs)
    answers = []
    if items:
        from partrain.report.items import answers_of

        answers = [answers_of(run, trusted=trust_code, several=len(histories) > 1) for run in histories]
    data = pages.page(histories, sources, answers).encode("utf-8", "replace")
    create(output, data, force=force)
    sentence = verdict(histories, sources.sweeps)
    if as_json:
        print(
            json.dumps(
                {"output": str(output), "bytes": len(data), "verdict": sentence, "runs": [str(run.folder) for run in histories]}
            )
        )
    else:
        print_wrapped(sentence, f"{output}: {len(data):,} bytes; open it in a browser")
        width, own = terminal_width(), [run for run in histories if not sources.ranked(run.folder)]
        for sweep in sources.sweeps:
            print("\n".join(["", *sweep.lines(width)]))
        if len(own) > 1:
            print("\n".join(["", *compared_runs(own).lines(width)]))


@app.command(
    epilog=examples("partrain plot runs/mnist", "partrain plot runs/one runs/two --what accuracy --by items -o both.png")
)
def plot(
    runs: Runs,
    what: Annotated[
        str, typer.Option("--what", help="Figure: loss, accuracy, a metric, timeline, distance, bytes, staleness, lr or speed.")
    ] = "loss",
    by: Annotated[By | None, typer.Option("--by", help="The horizontal axis: seconds, items or rounds.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="F.svg|F.png", help="The file to write; default: WHAT.svg.")
    ] = None,
    *,
    force: Force = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Draw one figure of runs as SVG or PNG."""
    from partrain.config.problems import did_you_mean
    from partrain.inference.output import check, create
    from partrain.report.figures import FIGURES, FORMATS, draw
    from partrain.report.sources import find

    if by not in (None, "seconds") and what == "timeline":
        raise typer.BadParameter("a timeline is over seconds: omit --by", param_hint="--by")
    output = output or Path(f"{what}.svg")
    if output.suffix.lower() not in FORMATS:
        raise typer.BadParameter(f"{output}: the suffix says the format: {', '.join(FORMATS)}", param_hint="--output")
    check(output, force=force)
    histories = _histories(find([_folder(path) for path in runs], print_note).runs)
    judged = dict.fromkeys(name for run in histories for judgement in run.judgements for name in judgement.metrics)
    if what not in FIGURES and what not in judged:
        near = did_you_mean(what, [*FIGURES, *judged])
        hint = f"did you mean `{near}`?" if near else f"it is one of {', '.join(dict.fromkeys([*FIGURES, *judged]))}"
        raise typer.BadParameter(f"no run judged `{what}`: {hint}", param_hint="--what")
    data = draw(what, histories, by, output.suffix.lower())
    create(output, data, force=force)
    if as_json:
        print(
            json.dumps({"output": str(output), "bytes": len(data), "what": what, "runs": [str(run.folder) for run in histories]})
        )
    else:
        print(f"{output}: {len(data):,} bytes")


def _is_report(path: Path) -> bool:
    """Return whether a file is an earlier report, which may be replaced."""
    from partrain.report.page import MARK

    try:
        with open_regular(path) as file:
            return file.read(len(MARK)) == MARK.encode()
    except OSError:
        return False


def _folder(path: Path) -> Path:
    """Return the run folder of a checkpoint; other paths unchanged."""
    if path.suffix != ".h5" or path.is_dir() or not path.exists():
        return path
    if (folder := run_folder_of(path)) is None:
        raise InputMissing(f"{path} is not in a run folder, which records time and judgements; give a run folder")
    return folder


def _histories(folders: Sequence[Path]) -> list[RunHistory]:
    """Read run folders, labeled by their differences."""
    from partrain.report.history import read_history

    if len(folders) == 1:
        return [read_history(folders[0], folders[0].resolve().name)]
    from partrain.bench.compare import labels

    return [read_history(folder, label) for folder, label in zip(folders, labels(folders), strict=True)]
