"""Sweeps whose trials learn from earlier ones: the tree-structured Parzen estimator, by Optuna.

Trial k is drawn once the results of all earlier trials but the last `max_concurrent - 1` are known. So its settings depend only
on the job's seed and on recorded results, however many trials run at once, and a repeated sweep draws the same.
Source: Bergstra et al. 2011 (https://papers.nips.cc/paper/4443); Akiba et al. 2019 (https://arxiv.org/abs/1907.10902).
"""

from __future__ import annotations

import json
import math
import os
import statistics
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from partrain.errors import CannotCreate
from partrain.job.sweep import Range, SweepSection
from partrain.job.sweep import Trial as SweepTrial
from partrain.record.events import JudgementEvent
from partrain.record.file_names import PRUNED
from partrain.record.result import RunResult
from partrain.record.run_folder import RunFolder
from partrain.runs.conditions import UnknownNumber, lookup
from partrain.seeds import derive
from partrain.system.atomic_file import atomic_file
from partrain.system.regular_file import read_object

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.pruners import BasePruner
    from optuna.trial import Trial


def recorded(folder: Path, by: str) -> float | None:
    """Return the number by which a run is ranked; None if it was not recorded, is not finite, or the run was pruned.

    A name without a dot is first looked up among the numbers of the run's network, then in the summary.
    """
    try:
        summary = RunFolder(folder).summary
        if summary.get("status") == "pruned":
            return None
        value = lookup({**summary, **RunResult.of(summary).numbers}, by)
    except UnknownNumber:
        return None
    return value if isinstance(value, int | float) and math.isfinite(value) else None


def judged(events: Sequence[JudgementEvent], by: str) -> Iterator[tuple[int, float]]:
    """Iterate over the rounds of regular judgements, with the number by which runs are ranked."""
    for event in events:
        value = event.loss if by == "loss" else event.metrics.get(by.rpartition(".")[2])
        if event.regular and value is not None:
            yield event.round, value


class Tuner:
    """The settings of the trials of one sweep."""

    def __init__(self, sweep: SweepSection, seed: int, runs: Mapping[str, SweepTrial]) -> None:
        """Make a tuner.

        Args:
            sweep: The `[sweep]` table.
            seed: The job's seed.
            runs: The runs by name, which is also the name of their folder in the sweep's folder.
        """
        self.sweep = sweep
        self._runs: dict[int, list[str]] = {}
        """Names of the runs of each trial."""
        for name, run in runs.items():
            self._runs.setdefault(run.number, []).append(name)
        self._seed = derive(seed, "sweep") % 2**32
        self._study: Study | None = None
        self._trials: list[Trial] = []
        self._drawn: list[dict[str, Any]] = []

    def before(self, trial: int) -> list[str]:
        """Return the names of the runs that a trial learns from."""
        return [name for number, names in self._runs.items() if number <= trial - self.sweep.max_concurrent for name in names]

    def settings(self, trial: int, folder: Path) -> dict[str, Any]:
        """Return a trial's settings. The trials that it learns from have ended in the sweep's folder."""
        if self._study is None:
            self._study = self._new_study()
        while len(self._drawn) <= trial:
            self._tell(self._study, len(self._drawn) - self.sweep.max_concurrent, folder)
            self._trials.append(self._study.ask(self._distributions()))
            drawn = self._trials[-1].params
            self._drawn.append({key: self._value(key, drawn[key]) for key in self.sweep.values})
        return self._drawn[trial]

    def poor(self, trial: int, folder: Path, run: Path, events: Sequence[JudgementEvent]) -> bool:
        """Return whether a run is poor, by Optuna's rule. Write the first poor judgement to the run's folder.

        A run that ends by itself before this check is poor as well, but not pruned: it has a rank. To later trials it counts
        as pruned, so that their settings do not depend on the clock.
        """
        if (run / PRUNED).exists():
            return True
        if not self.sweep.prune:
            return False
        self.settings(trial, folder)
        assert self._study
        study = self._new_study()  # with the trials that had ended when this one was drawn: the clock does not matter
        study.add_trials(self._study.get_trials()[: max(0, trial - self.sweep.max_concurrent + 1)])
        mine = study.ask(self._distributions())
        for round_number, value in judged(events, self.sweep.by):
            mine.report(value, round_number)
            if mine.should_prune():
                _write(run / PRUNED, {"round": round_number, "value": value})
                return True
        return False

    def _tell(self, study: Study, trial: int, folder: Path) -> None:
        """Report to the study how a trial ended."""
        if trial < 0:
            return
        from optuna.trial import TrialState

        folders = [folder / name for name in self._runs[trial]]
        if self.sweep.prune:
            end: float = read_object(folders[0] / PRUNED).get("round", math.inf)
            for round_number, number in judged(_judgements(folders[0]), self.sweep.by):
                if round_number <= end:
                    self._trials[trial].report(number, round_number)
            if end < math.inf:
                study.tell(trial, state=TrialState.PRUNED)
                return
        values = [value for folder in folders if (value := recorded(folder, self.sweep.by)) is not None]
        if values:
            study.tell(trial, statistics.median(values))
        else:
            study.tell(trial, state=TrialState.FAIL)

    def _new_study(self) -> Study:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(seed=self._seed)
        return optuna.create_study(
            sampler=sampler, pruner=self._pruner(), direction="maximize" if self.sweep.maximizes else "minimize"
        )

    def _pruner(self) -> BasePruner:
        from optuna.pruners import MedianPruner, NopPruner, SuccessiveHalvingPruner

        match self.sweep.prune:
            case "median":
                return MedianPruner(self.sweep.startup_trials, self.sweep.warmup_rounds)
            case "halving":
                return SuccessiveHalvingPruner()
        return NopPruner()

    def _distributions(self) -> dict[str, BaseDistribution]:
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        distributions: dict[str, BaseDistribution] = {}
        for key, value in self.sweep.values.items():
            if isinstance(value, list):
                distributions[key] = CategoricalDistribution(range(len(value)))
            elif value.whole:
                distributions[key] = IntDistribution(math.ceil(value.low), math.floor(value.high), log=value.log)
            else:
                distributions[key] = FloatDistribution(value.low, value.high, log=value.log)
        return distributions

    def _value(self, key: str, drawn: Any) -> Any:
        values = self.sweep.values[key]
        return drawn if isinstance(values, Range) else values[drawn]


@dataclass(frozen=True)
class TunedTrial:
    """A trial of a sweep whose settings a tuner chooses. The folders of its runs are in the sweep's folder."""

    tuner: Tuner
    number: int

    def settings(self, run: Path) -> dict[str, Any]:
        """Return the settings of the trial whose run is in the folder."""
        return self.tuner.settings(self.number, run.parent)

    def ends_early(self, run: Path, judgements: Sequence[JudgementEvent]) -> str:
        """Return the reason if the run is poor compared with earlier trials, else ""."""
        if not self.tuner.poor(self.number, run.parent, run, judgements):
            return ""
        pruned = read_object(run / PRUNED)
        return f"{self.tuner.sweep.by} {pruned['value']:.4g} at round {pruned['round']} is poor"


def _judgements(folder: Path) -> list[JudgementEvent]:
    return [event for event in RunFolder(folder).events() if isinstance(event, JudgementEvent)]


def _write(path: Path, content: Mapping[str, Any]) -> None:
    try:
        with atomic_file(path) as descriptor:
            os.write(descriptor, json.dumps(content).encode())
    except OSError as error:
        raise CannotCreate(f"{path}: {error.strerror}") from error
