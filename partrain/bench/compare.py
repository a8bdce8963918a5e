"""`partrain compare`: jobs or run folders side by side, one line each, and their differences."""

from __future__ import annotations

import json
import statistics
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from partrain.bench import Case, Interrupted, incomplete_rows, outcomes, refuse_seed, spread
from partrain.display.event_log import read_events
from partrain.display.events import RoundEvent, StartEvent
from partrain.display.text_table import table
from partrain.errors import OK, BadJob, InputMissing
from partrain.job.load import LoadedJob, load, parse
from partrain.records import finite
from partrain.runs.selection import differences

Facts = dict[str, float | str | None]
"""The results of a run; None if unknown."""


@dataclass
class ComparedJob:
    """One line of the table: a job to run with several seeds, or one existing run."""

    label: str
    settings: dict[str, Any]
    """The parsed job, without the seed if each run gets its own."""
    loaded: LoadedJob | None = None
    """The job to run."""
    runs: list[Facts] = field(default_factory=list)

    @property
    def cases(self) -> list[Case]:
        """The runs to do: none for an existing run."""
        return [Case(self.label, self.seeded)] if self.loaded else []

    def seeded(self, seed: int) -> LoadedJob:
        """Return the job with this seed, as it was when the comparison began."""
        assert self.loaded
        return parse(self.loaded.text, self.loaded.folder, self.label, here=True, overrides=[f"seed={seed}"])

    def values(self, key: str) -> list[float]:
        return [float(one[key]) for one in self.runs if one[key] is not None]  # type: ignore[arg-type]


class NeverBegan(InputMissing):
    """A run that ended before training started."""


def enter(paths: Sequence[Path], overrides: Sequence[str], note: Callable[[str], None]) -> list[ComparedJob]:
    """Load and check the jobs, and read the results in the run folders. Overrides apply to the jobs.

    A run that never began to train is left out with a note, unless all are such runs.
    """
    refuse_seed(overrides)
    if overrides and all(path.is_dir() for path in paths):
        raise BadJob(f"--set {overrides[0]}: overrides apply to jobs, but all of these are existing runs; leave it out")
    found = []
    for label, path in zip(labels(paths), paths, strict=True):
        if path.is_dir():
            try:
                found.append(ComparedJob(label, _kept_job(path), runs=[facts(path)]))
            except NeverBegan as empty:
                if len(paths) == 1:
                    raise
                note(f"left out: {empty}")
        else:
            loaded = load(path, overrides)
            found.append(ComparedJob(label, {key: v for key, v in tomllib.loads(loaded.text).items() if key != "seed"}, loaded))
    if not found:
        raise InputMissing("all of these runs ended before training started: nothing to compare")
    return found


def compare(contenders: Sequence[ComparedJob], seeds: int, note: Callable[[str], None]) -> dict[str, Any]:
    """Train the jobs, each with every seed and in turn, and return all results; after a signal, those of completed runs."""
    by_label, code = {one.label: one for one in contenders}, OK
    cases = [case for one in contenders for case in one.cases]
    planned = len(contenders) + len(cases) * (seeds - 1)
    try:
        with closing(outcomes(cases, range(seeds), note)) as runs:
            for case, outcome in runs:
                by_label[case.label].runs.append(facts(outcome.folder))
    except Interrupted as interrupted:
        code = interrupted.code
    present = [one for one in contenders if one.runs]
    return {
        "code": code,
        "planned": planned,
        "finished": sum(len(one.runs) for one in present),
        "rows": [_row(one) for one in present],
        "without": [one.label for one in contenders if not one.runs],
        "differ": differences({one.label: one.settings for one in present}),
    }


def facts(folder: Path) -> Facts:
    """Return the results in a run folder."""
    told = list(read_events(folder / "events.jsonl")) if (folder / "events.jsonl").exists() else []
    if told and not (folder / "summary.json").exists():
        raise InputMissing(f"{folder}: the run is still training, or was killed: partrain resume {folder}")
    try:
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputMissing(f"{folder}: no readable summary.json: {error}; is it a run folder?") from None
    starts = [event for event in told if isinstance(event, StartEvent)]
    if not starts:
        raise NeverBegan(f"{folder}: the run ended before training started: nothing to compare")
    rounds = [event.record for event in told if isinstance(event, RoundEvent)]
    reached = summary["status"] == "reached"
    busy = {key: sum(getattr(record, key) for record in rounds) for key in ("compute", "wait", "mix")}
    distances = [record.distance for record in rounds if finite(record.distance) is not None]
    return {
        "rule": starts[-1].rule,
        "workers": len(summary["workers"]),
        "judge": summary.get("judge", "mixed"),
        "status": summary["status"],
        "rounds": summary["rounds"],
        "seconds": summary["seconds"]["train"],
        "items": summary["item_iterations"],
        "seconds_to_target": summary["seconds"]["train"] if reached else None,
        "items_to_target": summary["item_iterations"] if reached else None,
        "loss": summary["loss"],
        "accuracy": summary["metrics"].get("accuracy"),
        "test_accuracy": summary["test"].get("accuracy"),
        "bytes": _mean([record.bytes for record in rounds]),
        "waiting": busy["wait"] / sum(busy.values()) if any(busy.values()) else None,
        "staleness": _mean([record.staleness for record in rounds]),
        "distance": _mean(distances[-len(summary["workers"]) :]),
    }


def render(result: dict[str, Any]) -> list[str]:
    """Render the table, and the settings that differ."""
    head = ("job", "rule", "workers", "reached", "seconds to target", "items to target", "judged acc.", "test acc.",
            "bytes/round", "waiting", "staleness", "distance")  # fmt: skip
    lines = [*table(head, [_cells(row) for row in result["rows"]]), *incomplete_rows(result)]
    if lone := [row["label"] for row in result["rows"] if row["judge"] == "any-worker"]:
        lines += ["", f"judged by any-worker, a worker's own training loss, not the mixed network: {'; '.join(lone)}"]
    if result["differ"]:
        lines += ["", "settings that differ:"]
    for key, values in result["differ"].items():
        lines.append(f"  {key}: " + describe_values(values, [row["label"] for row in result["rows"]]))
    return lines


def describe_values(values: Mapping[str, Any], jobs: Sequence[str]) -> str:
    """Describe the jobs' values of one key: the majority value first, then the exceptions."""
    words = {job: json.dumps(values[job]) if job in values else "-" for job in jobs}
    usual, count = Counter(words.values()).most_common(1)[0]
    plain = usual == "-" or 2 * count <= len(words)
    others = ", ".join(f"{job} {word}" for job, word in words.items() if word != ("-" if plain else usual))
    return others if plain else f"{usual}, but {others}"


def labels(paths: Sequence[Path]) -> list[str]:
    """Label each path by the end that tells it from the others, without `.toml`; number duplicates."""
    whole = [path.resolve() if path.is_dir() else path.parent.resolve() / path.name for path in paths]
    bare = [one.with_suffix("") if one.suffix == ".toml" and one.with_suffix("") not in whole else one for one in whole]
    ends = [_end(one, [other for other in bare if other != one]) for one in bare]
    found: list[str] = []
    for end in ends:
        spare = (f"{end} ({number})" for number in count(2))
        found.append(end if end not in found else next(label for label in spare if label not in ends + found))
    return found


def _end(path: Path, others: Sequence[Path]) -> str:
    """Return the shortest end of a path that no other path has."""
    ends = (path.parts[start:] for start in range(len(path.parts) - 1, -1, -1))
    return str(Path(*next(end for end in ends if all(other.parts[-len(end) :] != end for other in others))))


def _kept_job(folder: Path) -> dict[str, Any]:
    """Parse a run folder's copy of its job."""
    try:
        return tomllib.loads((folder / "job.toml").read_text(encoding="utf-8"))
    except OSError as error:
        raise InputMissing(f"{folder / 'job.toml'}: {error.strerror}; is it a run folder?") from None


def _row(contender: ComparedJob) -> dict[str, Any]:
    runs = contender.runs
    numbers = [key for key, value in runs[0].items() if not isinstance(value, str)]
    reached = sum(one["status"] == "reached" for one in runs)
    same = {"label": contender.label, "rule": runs[0]["rule"], "judge": runs[0]["judge"], "runs": len(runs), "reached": reached}
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


def _mean(values: Sequence[float]) -> float | None:
    known = [value for value in values if finite(value) is not None]
    return sum(known) / len(known) if known else None
