"""The end of a sweep: the ranking of its runs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from partrain.errors import BadJob, CannotCreate, Diverged, InputMissing
from partrain.job.sweep import SweepSection, Trial
from partrain.record.file_names import CHECKPOINT, RANKING, SUMMARY
from partrain.record.run_folder import MOST_NAMED, RunFolder
from partrain.runs.ranking import Combination, Ranking
from partrain.runs.references import Reference
from partrain.system.atomic_file import atomic_file
from partrain.system.regular_file import read_object
from partrain.workflow.actions import Action, Prepared, Process, Resolve
from partrain.workflow.resources import Resources
from partrain.workflow.tuning import Tuner, recorded


@dataclass(frozen=True)
class SweepAction(Action):
    """Rank the runs of a sweep. Its results are those of the best run."""

    sweep: SweepSection
    trials: dict[str, Trial]
    """The runs by name, without the step's name."""
    job: Action
    """The action of one of the runs; all runs have the same results."""

    tuner: Tuner | None = None
    """Chooses the settings of the trials, unless the file lists them."""

    @property
    def shareable(self) -> bool:
        """False: a ranking takes only a moment."""
        return False

    @property
    def process(self) -> Process:
        """`none`: the runner ranks."""
        return "none"

    @property
    def resources(self) -> Resources:
        """No resources worth counting."""
        return Resources(0)

    def references(self) -> Iterator[Reference]:
        """Iterate over nothing: the runs have the references."""
        return iter(())

    def prepare(self, folder: Path, results: Resolve) -> Prepared:
        """Return the settings of each run. The step reads their summaries and writes the ranking."""
        return Prepared(
            settings={"by": self.sweep.by, "largest": self.sweep.maximizes}
            | {name: self.overrides(name, folder) for name in self.trials},
            inputs=[folder / name / SUMMARY for name in self.trials],
            outputs=[[folder / RANKING]],
        )

    def change(self, before: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
        """Return the runs that the sweep no longer has."""
        gone = [name for name in before if name not in settings]
        more = f" and {len(gone) - MOST_NAMED:,} more" if len(gone) > MOST_NAMED else ""
        verb = "is" if len(gone) == 1 else "are"
        return f"{', '.join(gone[:MOST_NAMED])}{more} {verb} no longer in the sweep: kept, without a rank" if gone else ""

    def perform(self, folder: Path) -> None:
        """Rank the runs and write `sweep.json`. Runs of an earlier, larger sweep stay, without a rank.

        Raises:
            CannotCreate: The ranking cannot be written.
            Diverged: All trials diverged.
            BadJob: No trial has the number to rank by.
        """
        ranking = self.ranked(folder)
        try:
            with atomic_file(folder / RANKING) as descriptor:
                os.write(descriptor, json.dumps(ranking.content, indent=1).encode())
        except OSError as error:
            raise CannotCreate(f"{folder / RANKING}: {error.strerror}") from error
        if not ranking.measured and not any(row.pruned for row in ranking.rows):
            ends = {RunFolder(folder / name).summary.get("status") for name in self.trials}
            if ends == {"diverged"}:
                raise Diverged("no trial has a result: all diverged")
            raise BadJob(f"no trial has a result: none recorded a finite `{self.sweep.by}`")

    def summary(self, folder: Path) -> dict[str, Any]:
        """Return the best run's numbers and settings, and the ranking."""
        ranking = read_object(folder / RANKING)
        best = RunFolder(folder / str(ranking["best"])).summary if ranking.get("best") else {}
        return best | {"settings": next((row["settings"] for row in ranking.get("rows", ())), {}), "sweep": ranking}

    def overrides(self, name: str, folder: Path) -> dict[str, Any]:
        """Return the changes to the job in a run."""
        trial = self.trials[name]
        return (self.tuner.settings(trial.number, folder) if self.tuner else {}) | trial.overrides

    def ranked(self, folder: Path) -> Ranking:
        """Rank the combinations; those with a pruned run come last."""
        rows: dict[int, Combination] = {}
        for name, trial in self.trials.items():
            settings = self.tuner.settings(trial.number, folder) if self.tuner else trial.settings
            row = rows.setdefault(trial.number, Combination(settings, [], []))
            row.values.append(recorded(folder / name, self.sweep.by))
            row.runs.append(name)
            row.pruned.extend(filter(None, [RunFolder(folder / name).pruned.get("round")]))
        return Ranking.of(folder, self.sweep.by, list(rows.values()), largest=self.sweep.maximizes)

    def result(self, folder: Path, name: str, written: Sequence[Path]) -> Path:
        """Return the path of the best run's result."""
        best = self.ranked(folder).best
        if best is None:
            raise InputMissing(f"{folder}: no trial has a result: all were pruned")
        return self.job.result(best, name, [best / CHECKPOINT])
