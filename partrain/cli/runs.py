"""The `partrain runs` commands: list, show, tag and remove existing runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from partrain.cli.options import Csv, Debug, Json, Markdown, OnlyChanged, Sort
from partrain.cli.shared import check_one_format, examples, print_note

if TYPE_CHECKING:
    from typer._click import Context
    from typer._click.shell_completion import CompletionItem

    from partrain.runs.listing import ListedRun

RUNS = Path("runs")
SHOWN = 3
"""Number of runs that a question names without a terminal."""
_DEFAULT = "list"


class RunsGroup(TyperGroup):
    """The commands of `partrain runs`. Without a command, the runs are listed: `partrain runs FOLDER --sort loss`."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        args = ["remove", *args[1:]] if args[:1] == ["rm"] else args
        commands = args and (args[0] in self.commands or args[0] in ("--help", "-h") or _misspelt(args[0], self.commands))
        completed = ctx.resilient_parsing and not args  # by a shell: the argument may become a command
        return super().parse_args(ctx, args if commands or completed else [_DEFAULT, *args])

    def shell_complete(self, ctx: Context, incomplete: str) -> list[CompletionItem]:
        items = super().shell_complete(ctx, incomplete)
        if incomplete.startswith("-"):
            default = self.commands[_DEFAULT]
            items += default.shell_complete(default.make_context(_DEFAULT, [], parent=ctx, resilient_parsing=True), incomplete)
        return items


app = typer.Typer(
    name="runs",
    cls=RunsGroup,
    help="List runs, show one, tag and remove them. `partrain runs` alone lists them.",
    rich_markup_mode=None,
    epilog=examples("partrain runs", "partrain runs --sort -accuracy --limit 10", "partrain runs gc --dry-run"),
)

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or a folder of runs for its newest.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Folder = Annotated[Path | None, typer.Argument(metavar="FOLDER", help="The folder to look in; default: runs.")]


@app.command(
    _DEFAULT,
    epilog=examples(
        "partrain runs list", "partrain runs list runs/mnist --sort seconds.train --only-changed",
        "partrain runs list --filter 'accuracy > 0.9' --status reached --csv",
    ),
)  # fmt: skip
def list_runs(
    folder: Folder = None,
    sort: Sort = None,
    *,
    only_changed: OnlyChanged = False,
    filters: Annotated[
        list[str] | None, typer.Option("--filter", metavar="CONDITION", help="Only runs for which this holds: 'accuracy > 0.9'.")
    ] = None,
    status: Annotated[
        list[str] | None,
        typer.Option("--status", metavar="STATUS", help="Only runs of this status, such as training or reached."),
    ] = None,
    tag: Annotated[list[str] | None, typer.Option("--tag", metavar="WORD", help="Only runs with this tag.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, metavar="N", help="At most N runs.")] = None,
    markdown: Markdown = False,
    csv: Csv = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List the runs below a folder, the newest first."""
    from partrain.display import text_table
    from partrain.runs import table
    from partrain.runs.listing import COLUMNS

    check_one_format(markdown=markdown, csv=csv, as_json=as_json)
    runs = _selected(_runs_in(folder), filters or (), status or (), tag or (), sort)[:limit]
    settings = table.changed_settings(runs) if only_changed else {}
    by = [sort.removeprefix("-")] if sort else []
    every = list(dict.fromkeys((*COLUMNS, *by)))
    if as_json:
        listed = [table.as_json(run, settings, every) for run in runs]
        print(json.dumps({"folder": str(folder or RUNS), "runs": listed}, default=str))
        return
    settings = {key: values for key, values in settings.items() if key not in every}
    if csv:
        print("\n".join(text_table.comma_separated([*every, *settings], table.raw_cells(runs, every, settings))))
        return
    if not runs:
        print(f"no runs in {folder or RUNS}" if not (filters or status or tag) else f"no such runs in {folder or RUNS}")
        return
    columns = table.columns_of(runs, by, only_changed=only_changed)
    head, rows = [*columns, *settings], table.cells(runs, columns, settings)
    lines = text_table.markdown(head, rows) if markdown else text_table.table(head, rows, text_table.terminal_width())
    print("\n".join(lines))


@app.command(epilog=examples("partrain runs show runs/mnist", "partrain runs show runs/mnist/2026-11-21T10-00-00 --json"))
def show(run: Run, *, as_json: Json = False, debug: Debug = False) -> None:
    """Show all facts of one run."""
    from partrain.record.run_folder import KILLED, RunFolder
    from partrain.runs import removal, table

    row = _run_at(run)
    if as_json:
        workflow = removal.owner(row.folder)
        more = {"workflow": str(workflow) if workflow else None, "checkpoints": table.checkpoint_names(row)}
        print(json.dumps(table.as_json(row, {}) | more | {"summary": row.summary, "start": row.start}))
        return
    print("\n".join(table.describe(row)))
    if row.columns["status"] in (KILLED, "stopped") and RunFolder(row.folder).checkpoint.exists():
        print(f"to continue: partrain resume {row.folder}")


@app.command(epilog=examples("partrain runs tag runs/mnist baseline", "partrain runs tag runs/mnist baseline --remove"))
def tag(
    run: Run,
    words: Annotated[list[str], typer.Argument(metavar="WORD...", help="Tags: one word each.")],
    *,
    remove: Annotated[bool, typer.Option("--remove", help="Remove these tags.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Tag a run. `remove`, `gc` and workflows never remove or replace a run with a tag."""
    from partrain.runs.tags import change_tags

    row = _run_at(run)
    if absent := [word for word in words if remove and word not in row.columns["tags"]]:
        print_note(f"{row.name} has no tag {', '.join(absent)}")
    try:
        tags = change_tags(row.folder, words, remove=remove)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="WORD") from None
    if as_json:
        print(json.dumps({"name": row.name, "tags": tags}))
    else:
        print(f"{row.name}: " + (f"tags {', '.join(tags)}" if tags else "no tags"))


@app.command(epilog=examples("partrain runs remove runs/mnist/2026-11-21T10-00-00", "partrain runs remove runs/mnist/* --yes"))
def remove(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders.")],
    *,
    yes: Yes = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Remove runs: their checkpoints and records. Other files in their folders stay, and so do runs with a tag."""
    from partrain.runs import removal
    from partrain.runs.listing import size_of

    folders = list({folder.absolute(): folder for folder in runs}.values())
    for folder in folders:
        try:
            removal.check_removable(folder)
        except removal.OwnedByWorkflow as owned:
            raise typer.BadParameter(str(owned), param_hint="RUN") from None
    _confirm([(str(folder), "") for folder in folders], sum(map(size_of, folders)), yes=yes, as_json=as_json)
    _remove(folders, as_json=as_json)


@app.command(
    epilog=examples("partrain runs gc --dry-run", "partrain runs gc --keep 5 --yes", "partrain runs gc --older-than 30 --keep 3")
)
def gc(
    folder: Folder = None,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Only print what would be removed.")] = False,
    keep: Annotated[
        int | None, typer.Option("--keep", min=0, metavar="N", help="Also remove all but the newest N runs of each job.")
    ] = None,
    older_than: Annotated[
        float | None,
        typer.Option(
            "--older-than",
            min=0,
            metavar="DAYS",
            help="Also remove runs older than this. With --keep: remove only runs that both options name.",
        ),
    ] = None,
    yes: Yes = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Remove runs that never committed a checkpoint, and on request old ones.

    Runs with tags, the best run of each job, running ones and those of workflows stay.
    """
    from partrain.runs.removal import garbage

    removable = list(garbage(_runs_in(folder), keep, older_than))
    total = sum(run.columns["size"] for run, _ in removable)
    if dry_run or not removable:
        if as_json:
            listed = [{"name": run.name, "reason": reason, "size": run.columns["size"]} for run, reason in removable]
            print(json.dumps({"dry_run": dry_run, "removed": [] if not dry_run else listed, "bytes": total if dry_run else 0}))
        else:
            print("\n".join([*(f"{run.name}: {reason}" for run, reason in removable), _total(removable, total, "would free")]))
        return
    _confirm([(run.name, reason) for run, reason in removable], total, "; --dry-run lists them all", yes=yes, as_json=as_json)
    _remove([run.folder for run, _ in removable], as_json=as_json)


def _runs_in(folder: Path | None) -> list[ListedRun]:
    """Return the runs below a folder; by default below `runs`, which may not exist yet."""
    from partrain.runs.listing import runs_below

    return [] if folder is None and not RUNS.exists() else runs_below(folder or RUNS)


def _run_at(path: Path) -> ListedRun:
    """Return the run of an argument; print which one it is if the argument matches several."""
    from partrain.runs.listing import run_at

    row = run_at(path)
    if row.folder not in (path, path.parent, path.parent.parent):
        print_note(f"{path} stands for {row.folder}")
    return row


def _selected(
    runs: Sequence[ListedRun], filters: Sequence[str], status: Sequence[str], tags: Sequence[str], sort: str | None
) -> list[ListedRun]:
    """Filter and sort runs. A wrong condition or key is a usage error."""
    from partrain.runs import selection

    hint = "--status"
    try:
        wanted = selection.statuses(status)
        hint = "--filter"
        chosen = selection.fulfilling(runs, filters)
        chosen = [
            run
            for run in chosen
            if (not wanted or run.columns["status"] in wanted) and all(word in run.columns["tags"] for word in tags)
        ]
        hint = "--sort"
        return selection.sorted_runs(chosen, sort) if sort else chosen
    except selection.BadSelection as error:
        raise typer.BadParameter(str(error), param_hint=hint) from None


def _confirm(listed: Sequence[tuple[str, str]], size: int, look: str = "", *, yes: bool, as_json: bool) -> None:
    """On a terminal, print the runs and ask before removing them; elsewhere require `--yes`.

    `look` names the option that lists all.
    """
    if yes:
        return
    if as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        names = ", ".join(name for name, _ in listed[:SHOWN]) + ", ..." * (len(listed) > SHOWN)
        raise typer.BadParameter(
            f"{_count(len(listed))} would be removed: {names}; without a terminal to ask, add --yes{look}", param_hint="--yes"
        )
    from partrain.number_format import size as size_text

    for name, reason in listed:
        print(f"{name}{f': {reason}' if reason else ''}")
    if not typer.confirm(f"Remove {_count(len(listed))}, {size_text(size)}?"):
        print("nothing was removed")
        raise typer.Exit(1)


def _remove(folders: Sequence[Path], *, as_json: bool) -> None:
    from partrain.runs.removal import remove as remove_run

    removed, total = [], 0
    for folder in folders:
        freed, left = remove_run(folder)
        total += freed
        removed.append({"name": str(folder), "size": freed, "left": left})
        if not as_json:
            print(f"removed {folder}")
            if left:
                print(f"  left there, being no files of a run: {', '.join(left)}")
    print(json.dumps({"removed": removed, "bytes": total}) if as_json else _total(removed, total, "freed"))


def _total(removed: Sequence[Any], size: int, verb: str) -> str:
    from partrain.number_format import size as size_text

    return f"{_count(len(removed))}, {size_text(size)} {verb}" if removed else "nothing to remove"


def _count(number: int) -> str:
    from partrain.number_format import counted

    return counted(number, "run")


def _misspelt(word: str, words: Any) -> bool:
    """Return whether a word is a misspelt command rather than a folder."""
    from partrain.config.problems import did_you_mean

    return "/" not in word and not word.startswith("-") and not Path(word).exists() and bool(did_you_mean(word, words))
