"""A list of runs as text, Markdown, CSV and JSON."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from partrain.display.text_table import aligned
from partrain.number_format import number, scores, size
from partrain.record.run_folder import RunFolder, is_simulated
from partrain.runs.listing import COLUMNS, ListedRun
from partrain.runs.removal import owner
from partrain.runs.selection import differences

KEPT = ("name", "when", "status")
"""Columns that stay if only changes are shown."""
TRAINING_SECONDS = ("seconds", "seconds.train")
"""Columns whose seconds may be those of a simulated clock."""


def changed_settings(runs: Sequence[ListedRun]) -> dict[str, dict[str, Any]]:
    """Return the keys of the jobs in which runs differ, with the value of each run by its name."""
    return differences({run.name: run.settings for run in runs})


def columns_of(runs: Sequence[ListedRun], sort: Sequence[str], *, only_changed: bool) -> list[str]:
    """Return the columns to show: those that any run has, or only those that differ; with the key in `sort`, if any."""
    keys = _own_columns(runs, {*KEPT, *sort}, only_changed=only_changed)
    return [*keys, *(key for key in sort if key not in keys)]


def _own_columns(runs: Sequence[ListedRun], kept: Collection[str], *, only_changed: bool) -> list[str]:
    keys = [key for key in COLUMNS if key in kept or any(run.columns[key] not in (None, []) for run in runs)]
    if not only_changed or len(runs) < 2:
        return keys
    return [key for key in keys if key in kept or any(run.columns[key] != runs[0].columns[key] for run in runs)]


def cells(runs: Sequence[ListedRun], columns: Sequence[str], settings: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """Return the cells of a table for people; `settings` adds a column for each key."""
    return [
        [
            *(_shown(run, key) for key in columns),
            *(setting_text(values[run.name]) if run.name in values else "-" for values in settings.values()),
        ]
        for run in runs
    ]


def _shown(run: ListedRun, key: str) -> str:
    value = run.value(key)
    text = text_of(key, value) if key in run.numbers or value is None else setting_text(value)
    return f"{text} simulated" if key in TRAINING_SECONDS and value is not None and is_simulated(run.settings) else text


def raw_cells(runs: Sequence[ListedRun], columns: Sequence[str], settings: Mapping[str, Mapping[str, Any]]) -> list[list[Any]]:
    """Return the cells of a table for programs: numbers in full, times in ISO form."""
    return [
        [
            *(_plain(key, run.value(key)) for key in columns),
            *(setting_text(values[run.name]) if run.name in values else None for values in settings.values()),
        ]
        for run in runs
    ]


def as_json(run: ListedRun, settings: Mapping[str, Mapping[str, Any]], columns: Sequence[str] = COLUMNS) -> dict[str, Any]:
    """Return a run as a JSON object of columns; `changed` holds its values of the keys in which the runs differ."""
    row = {key: run.value(key) for key in columns} | {"when": iso(run.columns["when"])}
    return row | (
        {"changed": {key: values[run.name] for key, values in settings.items() if run.name in values}} if settings else {}
    )


def text_of(key: str, value: Any) -> str:
    """Format the value of a column for people."""
    match key, value:
        case _, None:
            return "-"
        case "when", _:
            return when_text(value)
        case "size", _:
            return size(value)
        case "tags", _:
            return " ".join(value) or "-"
        case "seconds", int() | float():
            return f"{value:,.1f}"
        case (("loss" | "accuracy"), int() | float()) | (_, float()):
            return number(value)
        case _, int() if not isinstance(value, bool):
            return f"{value:,}"
    return setting_text(value)


def setting_text(value: Any) -> str:
    """Format a value of a job: a word without quotes, everything else as in JSON."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def when_text(moment: float) -> str:
    """Format a time: the hour if it is today, else the day, with the year if it is another year."""
    then, now = datetime.fromtimestamp(moment), datetime.fromtimestamp(time.time())
    if then.date() == now.date():
        return f"{then:%H:%M:%S}"
    return f"{then:%b %d %H:%M}" if then.year == now.year else f"{then:%Y-%m-%d}"


def iso(moment: float) -> str:
    """Format a time for programs, with its time zone."""
    return datetime.fromtimestamp(moment).astimezone().isoformat(timespec="seconds")


def _replays(summary: Mapping[str, Any]) -> str:
    """Count the replays of a run, and the repeated training; "" if there were none."""
    count, twice = summary.get("replays", 0), summary.get("discarded_item_iterations", 0)
    return f"{count:,}, {twice:,} item-iterations trained again" if count else ""


def describe(run: ListedRun) -> list[str]:
    """Describe one run in lines for people."""
    summary, start, columns = run.summary, run.start, run.columns
    judged = {"loss": columns["loss"]} | ({"accuracy": columns["accuracy"]} if columns["accuracy"] is not None else {})
    seconds, best, checkpoints = summary.get("seconds", {}), summary.get("best"), checkpoint_names(run)
    reason, clock = summary.get("reason"), " simulated" if is_simulated(run.settings) else ""
    facts = [
        ("job", start.get("name") or run.settings.get("name")),
        ("status", columns["status"] + (f" ({reason})" if reason not in (None, columns["status"]) else "")),
        ("started", iso(columns["when"])),
        ("partrain", start.get("version")),
        ("rule", columns["rule"]),
        ("workers", ", ".join(f"{count} on {device}" for device, count in Counter(run.devices).items())),
        ("parameters", f"{start['parameters']:,}" if start.get("parameters") else None),
        ("rounds", text_of("rounds", columns["rounds"]) if columns["rounds"] is not None else None),
        ("item-iterations", f"{summary['item_iterations']:,}" if "item_iterations" in summary else None),
        ("replays", _replays(summary)),
        ("judged", scores(judged)),
        ("best", f"round {best['round']:,}: " + scores({"loss": best["loss"], **best["metrics"]}) if best else None),
        ("test", scores(summary.get("test", {}))),
        ("seconds", ", ".join(f"{key} {value:,.1f}" + clock * (key == "train") for key, value in seconds.items())),
        ("checkpoints", f"{len(checkpoints)}, the newest {checkpoints[-1]}" if checkpoints else "none"),
        ("size", size(columns["size"])),
        ("tags", " ".join(columns["tags"])),
        ("workflow", str(owner(run.folder) or "")),
    ]
    return [run.name, *(f"  {line}" for line in aligned([(name, str(value)) for name, value in facts if value]))]


def checkpoint_names(run: ListedRun) -> list[str]:
    """Return the names of a run's checkpoints, the newest last."""
    folder = RunFolder(run.folder).checkpoints
    return sorted(file.name for file in folder.glob("*.h5")) if folder.is_dir() else []


def _plain(key: str, value: Any) -> Any:
    return iso(value) if key == "when" else " ".join(value) if key == "tags" else value
