"""The end of a sweep: its runs ranked, with median and spread over seeds, and the difference between the best ones in a sentence."""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from partrain.errors import BadJob, CannotCreate, Diverged
from partrain.job.sweep import SweepSection, Trial
from partrain.number_format import number, spread
from partrain.record.file_names import CHECKPOINT, PRUNED, RANKING, SUMMARY
from partrain.record.run_folder import RunFolder
from partrain.runs.comparing import ComparedRow, ComparedRuns
from partrain.runs.references import Reference
from partrain.system.atomic_file import atomic_file
from partrain.system.regular_file import read_object
from partrain.workflow.actions import Action, Prepared, Process, Resolve
from partrain.workflow.resources import Resources
from partrain.workflow.tuning import Tuner, recorded


@dataclass(frozen=True)
class Combination:
    """The runs of one combination of settings."""

    settings: dict[str, Any]
    values: list[float | None]
    """The ranked number of each run; None if it was not recorded, or is not finite."""
    runs: list[str]
    """Names of the runs, without the step's."""
    pruned: list[int] = field(default_factory=list)
    """Round at which a run was pruned, if one was."""

    @property
    def median(self) -> float:
        """The median of the recorded values; NaN if there is none."""
        values = [value for value in self.values if value is not None]
        return statistics.median(values) if values else math.nan

    def key(self, *, maximizes: bool) -> float:
        """Return a number to sort by: the best row first, rows without a value last."""
        return math.inf if math.isnan(self.median) else -self.median if maximizes else self.median


@dataclass(frozen=True)
class SweepAction(Action):
    """Rank the runs of a sweep. Its results are those of the best run."""

    sweep: SweepSection
    trials: dict[str, Trial]
    """The runs by name, without the step's."""
    job: Action
    """The action of one of the runs, whose results it shares."""

    tuner: Tuner | None = None
    """Chooses the settings of the trials, if they are not listed in the file."""

    @property
    def shareable(self) -> bool:
        """A ranking takes a moment."""
        return False

    @property
    def process(self) -> Process:
        """None: the runner ranks."""
        return "none"

    @property
    def resources(self) -> Resources:
        """Nothing worth counting."""
        return Resources(0)

    def references(self) -> Iterator[Reference]:
        """Iterate over nothing: the runs have the references."""
        return iter(())

    def prepare(self, folder: Path, results: Resolve) -> Prepared:
        """Return the settings of each run; their summaries are read, and the ranking is written."""
        return Prepared(
            settings={"by": self.sweep.by, "largest": self.sweep.maximizes}
            | {name: self.overrides(name, folder) for name in self.trials},
            inputs=[folder / name / SUMMARY for name in self.trials],
            outputs=[[folder / RANKING]],
        )

    def perform(self, folder: Path) -> None:
        """Rank the runs and write `sweep.json`. Runs of a former, larger sweep stay, and have no rank.

        Raises:
            CannotCreate: The ranking cannot be written.
            Diverged: All trials diverged.
            BadJob: No trial has the number to rank by.
        """
        rows = self.ranked(folder)
        content = {
            "by": self.sweep.by,
            "largest": self.sweep.maximizes,
            "best": None if math.isnan(rows[0].median) else self.best(folder, rows).name,
            "difference": difference(rows, self.sweep.by),
            "rows": [
                {
                    "settings": row.settings,
                    "median": None if math.isnan(row.median) else row.median,
                    "values": row.values,
                    "runs": row.runs,
                    **({"pruned": row.pruned} if row.pruned else {}),
                }
                for row in rows
            ],
        }
        try:
            with atomic_file(folder / RANKING) as descriptor:
                os.write(descriptor, json.dumps(content, indent=1).encode())
        except OSError as error:
            raise CannotCreate(f"{folder / RANKING}: {error.strerror}") from error
        if all(math.isnan(row.median) and not row.pruned for row in rows):
            ends = {RunFolder(folder / name).summary.get("status") for name in self.trials}
            if ends == {"diverged"}:
                raise Diverged("no trial has a result: all diverged")
            raise BadJob(f"no trial has a result: none recorded a finite `{self.sweep.by}`")

    def summary(self, folder: Path) -> dict[str, Any]:
        """Return the best run's numbers and settings, and the ranking."""
        ranking = read_object(folder / RANKING)
        best = RunFolder(folder / str(ranking["best"])).summary if ranking.get("best") else {}
        return best | {"settings": next((row["settings"] for row in ranking.get("rows", ())), {}), "sweep": ranking}

    def best(self, folder: Path, rows: Sequence[Combination] = ()) -> Path:
        """Return the folder of the best run: the best of the best combination."""
        row = (rows or self.ranked(folder))[0]
        sign = -1 if self.sweep.maximizes else 1
        values = [math.inf if value is None else sign * value for value in row.values]
        return folder / row.runs[values.index(min(values))]

    def overrides(self, name: str, folder: Path) -> dict[str, Any]:
        """Return the changes to the job in a run."""
        trial = self.trials[name]
        return (self.tuner.settings(trial.number, folder) if self.tuner else {}) | trial.overrides

    def ranked(self, folder: Path) -> list[Combination]:
        """Return the combinations, the best first; those whose run was pruned last."""
        rows: dict[int, Combination] = {}
        for name, trial in self.trials.items():
            settings = self.tuner.settings(trial.number, folder) if self.tuner else trial.settings
            row = rows.setdefault(trial.number, Combination(settings, [], []))
            row.values.append(recorded(folder / name, self.sweep.by))
            row.runs.append(name)
            row.pruned.extend(filter(None, [read_object(folder / name / PRUNED).get("round")]))
        return sorted(rows.values(), key=lambda row: row.key(maximizes=self.sweep.maximizes))

    def cells(self, folder: Path, rows: Sequence[Combination]) -> tuple[list[str], list[list[str]]]:
        """Return heading and rows of the ranking: the settings, then the columns of all comparisons, and the ranked number if it is not theirs."""
        by, runs = self.sweep.by, [[RunFolder(folder / name) for name in row.runs] for row in rows]
        compared = [
            ComparedRow(str(rank), some[0].job, [*filter(None, (run.summary for run in some))])
            for rank, some in enumerate(runs, 1)
        ]
        head, lines = ComparedRuns(compared).cells()
        keys = list(dict.fromkeys(key for row in rows for key in row.settings))
        settings = [[_shown(row.settings.get(key)) for key in keys] for row in rows]
        if not {f"judged {by.removeprefix('metrics.')}", by.replace(".", " ")} & {*head}:
            keys.append(by)
            for cells, row in zip(settings, rows, strict=True):
                cells.append(spread([value for value in row.values if value is not None], number))
        return ["rank", *keys, *head[1:]], [[first, *more, *rest] for (first, *rest), more in zip(lines, settings, strict=True)]

    def result(self, folder: Path, name: str, written: Sequence[Path]) -> Path:
        """Return the path of the best run's result."""
        best = self.best(folder)
        return self.job.result(best, name, [best / CHECKPOINT])


def difference(rows: Sequence[Combination], by: str) -> str:
    """Return a sentence: what the best combinations share, and in what they differ; "" where the ranking of one setting tells all."""
    measured = [row for row in rows if not math.isnan(row.median)]
    keys = list(dict.fromkeys(key for row in measured for key in row.settings))
    if len(measured) < 2 or len(keys) < 2:
        return ""
    top = measured[: max(2, min(5, len(measured) // 3))]
    shared, varied = [], []
    for key in keys:
        values = list(dict.fromkeys(_shown(row.settings.get(key)) for row in top))
        everywhere = {_shown(row.settings.get(key)) for row in measured}
        if len(values) == 1 and len(everywhere) > 1:
            shared.append(f"{key} = {values[0]}")
        elif len(values) > 1:
            varied.append(f"{key} ({', '.join(values)})")
    facts = [f"share {' and '.join(shared)}"] if shared else []
    facts += [f"differ in {' and '.join(varied)}"] if varied else []
    spread = f"{by} {top[0].median:.4g} to {top[-1].median:.4g}"
    return f"The {len(top)} best of {len(measured)} ({spread}) {' and '.join(facts)}." if facts else ""


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)
