"""The tables of a report: numbers of runs as rows of text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from partrain.number_format import count, counted, number, size
from partrain.record.round_record import ACTIVITIES, time_shares
from partrain.record.run_folder import RunFolder
from partrain.report.history import RunHistory, compared_runs
from partrain.report.sources import Sources
from partrain.report.verdict import baseline, compare
from partrain.runs.comparing import lower_is_better
from partrain.runs.ranking import Ranking

SHOWN_COMMITS = 10
SHOWN_FAULTS = 40
SHOWN_WORKERS = 64
LARGEST_CHECKPOINT = 256_000_000
"""Size in bytes up to which a checkpoint is read for its versions: reading verifies all of it, which takes time."""


@dataclass(frozen=True)
class Table:
    """A table of texts."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: frozenset[int] = frozenset()
    """Columns to align on the right."""


@dataclass(frozen=True)
class Tile:
    """One key number."""

    name: str
    value: str
    note: str = ""


def _seconds(value: float) -> str:
    return f"{value:#.3g} s" if 0 < value < 100 else f"{value:,.0f} s"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}" if 0 < value < 0.1 else f"{value:.0%}"


def tiles(run: RunHistory) -> list[Tile]:
    """Return the key numbers of one run."""
    summary, rows = run.summary, []
    best = summary.get("best") or {"round": summary["rounds"]}
    before = {} if best["round"] == summary["rounds"] else {"loss": best["loss"], **best["metrics"]}
    for name, value in {"loss": summary.get("loss"), **summary["metrics"]}.items():
        if value is not None:
            earlier = before.get(name)
            better = earlier is not None and (earlier < value if lower_is_better(name, run.job) else earlier > value)
            note = f"best round {best['round']:,}: {number(earlier)}" if better else ""
            rows.append(Tile(f"judged {name}", number(value), note))
    rows += [Tile(f"test {name}", number(value)) for name, value in summary["test"].items() if value is not None]
    clock = "simulated" if run.simulated else ""
    rows.append(
        Tile(
            "training time",
            _seconds(summary["seconds"]["train"]),
            clock or f"{_seconds(summary['seconds']['total'])} with start and end",
        )
    )
    rows.append(Tile("rounds", f"{summary['rounds']:,}", _reason(run)))
    rows.append(Tile("item-iterations", count(summary["item_iterations"]), f"{count(run.rate)} per second" if run.rate else ""))
    rows.append(Tile("workers", f"{run.size}", _devices(run)))
    if run.shares and run.size > 1:
        rows.append(Tile("waiting", _share(run.shares["wait"]), f"mixing {_share(run.shares['mix'])}"))
    if run.rounds and (sent := run.state.merged("bytes")):
        rows.append(Tile("messages", size(sent), f"{size(run.state.bytes_per_round() or 0.0)} per round of a worker"))
    if (staleness := run.state.merged("staleness")) is not None:
        rows.append(Tile("staleness", f"{staleness:.2f}", "center versions, mean"))
    parameters = run.starts[-1].parameters
    if parameters:
        rows.append(Tile("parameters", count(parameters), f"rule {run.state.start.rule}"))
    return rows  # fmt: skip


def _reason(run: RunHistory) -> str:
    """Return why the run ended, if that is short: the verdict or the list of faults shows a failure."""
    reason = str(run.summary.get("reason") or "")
    return (
        run.status
        if reason == run.status or len(reason) > 40 or run.status in ("training", "killed")
        else f"{run.status} ({reason})"
    )


def _devices(run: RunHistory) -> str:
    devices: dict[str, int] = {}
    for worker in run.state.workers.values():
        devices[worker.device] = devices.get(worker.device, 0) + 1
    return ", ".join(f"{number_} x {device}" if number_ > 1 else device for device, number_ in devices.items())


def comparison(runs: Sequence[RunHistory]) -> tuple[Table, str]:
    """Return several runs side by side, the best first, and a sentence on the order."""
    table = compared_runs(runs)
    head, rows = table.cells()
    return Table(head, rows, frozenset(range(2, len(head)))), f"{table.note[0].upper()}{table.note[1:]}."


def numbers(runs: Sequence[RunHistory]) -> Table:
    """Return further numbers of several runs: a column per run, a row per number that any run has."""
    alone = baseline(runs)
    compared = {run.label: comparison for run in runs if alone and run.size > 1 and (comparison := compare(run, alone))}
    rows: list[tuple[str, list[str]]] = [
        ("rule", [run.state.start.rule for run in runs]),
        ("speed-up", [f"{compared[run.label].speedup:.2f}" if run.label in compared else "-" for run in runs]),
        ("rounds", [f"{run.summary['rounds']:,}" for run in runs]),
        ("items per second", [count(run.rate) for run in runs]),
        ("computing", [_share(run.shares.get("compute")) for run in runs]),
        ("mixing", [_share(run.shares.get("mix")) for run in runs]),
        (
            "bytes per round",
            [size(sent) if (sent := run.state.bytes_per_round()) else "-" for run in runs],
        ),
        ("staleness", [number(run.state.merged("staleness")) for run in runs]),
    ]
    shown = [[name, *cells] for name, cells in rows if any(cell != "-" for cell in cells)]
    return Table(["", *(run.label for run in runs)], shown, frozenset(range(1, len(runs) + 1)))


def workers(runs: Sequence[RunHistory]) -> Table:
    """Return a row per worker."""
    several = len(runs) > 1
    head = [*(["run"] * several), "worker", "device", "items", "item-iterations", "per second", "computing", "waiting", "mixing"]
    rows = []
    for run in runs:
        items = {worker["rank"]: worker.get("partition") for worker in run.starts[-1].workers}
        rates = {worker["rank"]: worker.get("items_per_second") for worker in run.summary["workers"]}
        for rank, worker in sorted(run.state.workers.items())[:SHOWN_WORKERS]:
            shares = time_shares([worker.spent])
            parts = [
                f"{_seconds(part)} ({_share(shares.get(name))})" for name, part in zip(ACTIVITIES, worker.spent, strict=True)
            ]
            rows.append(
                [
                    *([run.label] * several),
                    f"{rank}" + " (lost)" * worker.lost,
                    worker.device,
                    "stream" if (held := items.get(rank, 0)) is None else f"{held:,}",
                    f"{worker.items:,}",
                    count(rates.get(rank)),
                    *parts,
                ]
            )
    return Table(head, rows, frozenset(range(several + 2, len(head))))  # fmt: skip


def faults(runs: Sequence[RunHistory]) -> Table | None:
    """Return faults, signals and resumes in order; None without any."""
    several = len(runs) > 1
    head = [*(["run"] * several), "after", "round", "worker", "event"]
    rows = [
        [
            *([run.label] * several),
            f"{fault.seconds:,.1f} s",
            f"{fault.round:,}",
            "" if fault.rank is None else f"{fault.rank}",
            fault.what,
        ]
        for run in runs
        for fault in run.faults[-SHOWN_FAULTS:]
    ]
    return Table(head, rows, frozenset({several, several + 1})) if rows else None


def checkpoints(runs: Sequence[RunHistory]) -> tuple[Table | None, str]:
    """Return the newest commits, and a sentence on all of them."""
    several = len(runs) > 1
    head = [*(["run"] * several), "round", "file", "size", "written in", "SHA-256"]
    rows, all_ = [], 0
    per_run = max(3, SHOWN_COMMITS // len(runs))
    for run in runs:
        all_ += len(run.commits)
        for kept in run.commits[-per_run:][::-1]:
            rows.append([*([run.label] * several), f"{kept.round:,}", kept.file, size(kept.bytes), f"{kept.seconds * 1000:,.0f} ms", kept.digest[:16]])  # fmt: skip
    written, lasted = (
        sum(commit.bytes for run in runs for commit in run.commits),
        sum(commit.seconds for run in runs for commit in run.commits),
    )
    note = f"{counted(all_, 'commit')}, {size(written)} in {lasted:.2f} s, beside the training" + (f"; the newest {len(rows)} are shown." if all_ > len(rows) else ".")  # fmt: skip
    return (Table(head, rows, frozenset({several, several + 2, several + 3})) if rows else None), note


def environment(runs: Sequence[RunHistory]) -> tuple[Table, str]:
    """Return versions and machine of each run, and a sentence if versions could not be read."""
    by_name: dict[str, list[str]] = {}
    notes = []
    for index, run in enumerate(runs):
        start = run.starts[-1]
        versions, note = _versions(run)
        notes += [note] if note else []
        threads = sorted({worker["threads"] for worker in start.workers if "threads" in worker})
        facts = {
            "partrain": start.version, **{name: text for name, text in versions.items() if name != "partrain"},
            "cores": f"{start.cores}", "devices": _devices(run), "threads per worker": ", ".join(map(str, threads)),
            "run id": start.run_id[:16], "sessions": f"{len(run.starts)}", "folder": str(run.folder),
        }  # fmt: skip
        for name, text in facts.items():
            by_name.setdefault(name, ["-"] * len(runs))[index] = text or "-"
    return Table(["", *([run.label for run in runs] if len(runs) > 1 else [""])], [[name, *cells] for name, cells in by_name.items()]), " ".join(notes)  # fmt: skip


def _versions(run: RunHistory) -> tuple[dict[str, str], str]:
    """Read the versions from the newest checkpoint."""
    from partrain.checkpoint import read
    from partrain.errors import Failure

    path = RunFolder(run.folder).checkpoint
    try:
        if path.stat().st_size > LARGEST_CHECKPOINT:
            return {}, f"Versions of {run.label} are in its large checkpoint: partrain inspect shows them."
        stored = read(path).manifest
        versions: Any = stored.get("versions") if isinstance(stored, dict) else None
        return {str(name): str(text) for name, text in versions.items()} if isinstance(versions, dict) else {}, ""
    except OSError:
        return {}, f"{run.label} has no checkpoint, which would tell versions."
    except Failure as failure:
        return {}, f"Versions of {run.label} are unknown: {failure.message}."


def combinations(sweep: Ranking) -> tuple[Table, str]:
    """Return the ranking of a sweep, and sentences on it."""
    head, rows = sweep.cells
    notes = [f"{note[0].upper()}{note[1:].removesuffix('.')}." for note in sweep.notes]
    return Table(head, rows, frozenset(range(len(head)))), " ".join(notes)


def steps(sources: Sources) -> Table | None:
    """Return the steps of a workflow."""
    rows = []
    for name, record in sources.steps.items():
        loss = record.summary.get("loss")
        shown = number(loss) if isinstance(loss, int | float) else ""
        rows.append([name, record.status, f"{record.seconds:,.1f} s", shown, record.message])
    return Table(["step", "status", "time", "judged loss", "message"], rows, frozenset({2, 3})) if len(rows) > 1 else None
