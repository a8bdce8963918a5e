"""`partrain compare`: jobs or run folders side by side, one line each, and what they differ in."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from partrain.bench import spread, table
from partrain.console import Display
from partrain.errors import InputMissing
from partrain.job import load
from partrain.launch.run import Stage, new_folder, run
from partrain.record import read_events
from partrain.view import View

UNSAID = object()
"""What a job has for a key it does not mention."""


@dataclass
class Contender:
    """One line of the table: a job run with several seeds, or one run that is there already."""

    label: str
    job: dict[str, Any]
    runs: list[dict[str, float | str | None]] = field(default_factory=list)

    def values(self, key: str) -> list[float]:
        return [float(one[key]) for one in self.runs if one[key] is not None]  # type: ignore[arg-type]


def compare(paths: Sequence[Path], overrides: Sequence[str], seeds: int, note: Callable[[str], None]) -> dict[str, Any]:
    """Train the jobs, each with every seed and in turn, read the run folders, and say what came of it."""
    contenders = [Contender(label, _job(path, overrides)) for label, path in zip(_labels(paths), paths, strict=True)]
    for contender, path in zip(contenders, paths, strict=True):
        if path.is_dir():
            contender.runs.append(facts(path))
    with tempfile.TemporaryDirectory(prefix="partrain-compare-") as scratch:
        for seed in range(seeds if any(not path.is_dir() for path in paths) else 0):
            for number, (contender, path) in enumerate(zip(contenders, paths, strict=True)):
                if path.is_dir():
                    continue
                folder = new_folder(Path(scratch) / f"{seed}-{number}", "compare")
                outcome = run(load(path, [*overrides, f"seed={seed}"]), Stage(folder, Display(View()), started=time.time()))
                if outcome.failure and outcome.failure.code != 76:  # diverged: that is a result
                    raise outcome.failure
                if outcome.summary["status"] == "stopped":
                    raise KeyboardInterrupt
                contender.runs.append(facts(folder))
                note(f"{contender.label}, seed {seed}: {outcome.summary['status']}")
    jobs = {contender.label: contender.job for contender in contenders}
    return {"rows": [_row(contender) for contender in contenders], "differ": differences(jobs)}


def facts(folder: Path) -> dict[str, float | str | None]:
    """What a run folder says about its run; None where it says nothing."""
    told = list(read_events(folder / "events.jsonl")) if (folder / "events.jsonl").exists() else []
    if told and not (folder / "summary.json").exists():
        raise InputMissing(f"{folder}: the run is under way, or was killed: partrain resume {folder}")
    try:
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputMissing(f"{folder}: no readable summary.json: {error}; is it a run folder?") from None
    starts = [event for event in told if event["event"] == "start"]
    if not starts:
        raise InputMissing(f"{folder}: the run ended before it began to train: there is nothing to compare")
    rounds = [event for event in told if event["event"] == "round"]
    reached = summary["status"] == "reached"
    busy = {key: sum(event[key] for event in rounds) for key in ("compute", "wait", "mix")}
    distances = [event["distance"] for event in rounds if event["distance"] is not None]
    return {
        "rule": starts[-1]["rule"],
        "workers": len(summary["workers"]),
        "status": summary["status"],
        "rounds": summary["rounds"],
        "seconds": summary["seconds"]["train"],
        "items": summary["item_iterations"],
        "seconds_to_target": summary["seconds"]["train"] if reached else None,
        "items_to_target": summary["item_iterations"] if reached else None,
        "loss": summary["loss"],
        "accuracy": summary["metrics"].get("accuracy"),
        "test_accuracy": summary["test"].get("accuracy"),
        "bytes": _mean([event.get("bytes") for event in rounds]),
        "waiting": busy["wait"] / sum(busy.values()) if any(busy.values()) else None,
        "staleness": _mean([event.get("staleness") for event in rounds]),
        "distance": _mean(distances[-len(summary["workers"]) :]),
    }


def differences(jobs: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The keys in which jobs differ, and what each has there; those that do not mention a key are left out."""
    flat = {label: dict(_flat(job)) for label, job in jobs.items()}
    keys = {key: None for one in flat.values() for key in one}
    found = {}
    for key in keys:
        values = {label: one.get(key, UNSAID) for label, one in flat.items()}
        if key != "name" and any(value != next(iter(values.values())) for value in values.values()):
            found[key] = {label: value for label, value in values.items() if value is not UNSAID}
    return found


def render(result: dict[str, Any]) -> list[str]:
    """The table, and the settings that differ."""
    head = ("job", "rule", "workers", "reached", "seconds to target", "items to target", "judged acc.", "test acc.",
            "bytes/round", "waiting", "staleness", "distance")  # fmt: skip
    lines = table(head, [_cells(row) for row in result["rows"]])
    if result["differ"]:
        lines += ["", "settings that differ:"]
    for key, values in result["differ"].items():
        lines.append(f"  {key}: " + ", ".join(f"{label} {json.dumps(value)}" for label, value in values.items()))
    return lines


def _labels(paths: Sequence[Path]) -> list[str]:
    """The names of the files or folders; those that come twice are numbered."""
    labels: list[str] = []
    for path in paths:
        name = path.stem if path.suffix == ".toml" else path.resolve().name
        labels.append(name if name not in labels else f"{name}-{sum(one.startswith(name) for one in labels) + 1}")
    return labels


def _job(path: Path, overrides: Sequence[str]) -> dict[str, Any]:
    """A job's text, parsed; of a run folder its own copy."""
    try:
        text = (path / "job.toml").read_text(encoding="utf-8") if path.is_dir() else load(path, overrides).text
    except OSError as error:
        raise InputMissing(f"{path / 'job.toml'}: {error.strerror}; is it a run folder?") from None
    return tomllib.loads(text)


def _row(contender: Contender) -> dict[str, Any]:
    runs = contender.runs
    numbers = [key for key, value in runs[0].items() if not isinstance(value, str)]
    reached = sum(one["status"] == "reached" for one in runs)
    same = {"label": contender.label, "rule": runs[0]["rule"], "runs": len(runs), "reached": reached}
    return same | {key: contender.values(key) for key in numbers} | {"statuses": [one["status"] for one in runs]}


def _cells(row: dict[str, Any]) -> list[str]:
    whole = row["reached"] == row["runs"]
    aimless = set(row["statuses"]) == {"finished"}
    missed = "-" if aimless else "not reached"
    return [
        row["label"],
        row["rule"],
        f"{row['workers'][0]:.0f}",
        "no target" if aimless else f"{row['reached']}/{row['runs']}" + " diverged" * ("diverged" in row["statuses"]),
        spread(row["seconds_to_target"]) if whole else missed,
        spread(row["items_to_target"], ",.0f") if whole else "-",
        spread(row["accuracy"], ".4f"),
        spread(row["test_accuracy"], ".4f"),
        f"{statistics.median(row['bytes']):,.0f}" if row["bytes"] else "-",
        f"{statistics.median(row['waiting']):.0%}" if row["waiting"] else "-",
        f"{statistics.median(row['staleness']):.2f}" if row["staleness"] else "-",
        f"{statistics.median(row['distance']):.1e}" if row["distance"] else "-",
    ]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Keys with dots and their values; lists of tables by index."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
            yield from _flat({str(index): one for index, one in enumerate(value)}, f"{prefix}{key}.")
        else:
            yield prefix + key, value
