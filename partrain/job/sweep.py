"""The `[sweep]` table: the trials of a search over settings of the job."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, Literal, NamedTuple

from pydantic import ConfigDict, Field, ValidationError, model_validator

from partrain.config.overrides import flatten
from partrain.config.section import Section
from partrain.data.folds import Fold
from partrain.seeds import generator
from partrain.tasks.metric_names import LOWER

MAX_TRIALS = 10_000
LONGEST_NAME = 100
"""Maximum number of characters of a run's name; a digest replaces the rest."""
FOLD = "dataset.fold"
HELD_OUT = (FOLD, "dataset.validation")
"""Keys of the job that hold items out: each fold sets them."""


NEEDS = "needs a list of values, or a range as {low = 0.01, high = 1.0, log = true}"


class Range(Section):
    """A range of numbers to draw from."""

    low: float
    high: float
    log: bool = False
    """Draw evenly on a logarithmic scale."""
    whole: bool = False
    """Draw whole numbers."""

    @model_validator(mode="after")
    def _ordered(self) -> Range:
        if not self.low < self.high or (self.log and self.low <= 0):
            raise ValueError("`low` must be below `high`" + (", and above 0 on a logarithmic scale" if self.log else ""))
        return self

    def draw(self, uniform: float) -> float | int:
        """Return the number at a fraction of the range, 0 to 1."""
        if self.log:
            value = math.exp(math.log(self.low) + uniform * (math.log(self.high) - math.log(self.low)))
        else:
            value = self.low + uniform * (self.high - self.low)
        return round(value) if self.whole else value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "-".join(map(_text, value)) if isinstance(value, list) else json.dumps(value)


def _plain(part: str) -> str:
    """Return a part of a name for a folder. A part with other characters gets a digest: "a/b" is not "a-b"."""
    plain = re.sub(r"[^A-Za-z0-9=._+-]+", "-", part)
    return plain if plain == part or part.startswith("fold=") else f"{plain}-{_digest(part, 4)}"


def _digest(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


def _is_outer(value: Any) -> bool:
    """Return whether a value is a table of tables. A table with a key of a range is a range."""
    return isinstance(value, dict) and bool(value) and not value.keys() & Range.model_fields.keys()


class Trial(NamedTuple):
    """One run of a sweep."""

    settings: dict[str, Any]
    """Values by dotted key. Trials that differ only in the seed have equal settings."""
    seed: int | None
    """The seed; None: the job's."""
    number: int = 0
    """Number of the combination of settings, from 0."""
    fold: str | None = None
    """The held-out fold, as "2/5"; None: the job's held-out items."""

    @property
    def overrides(self) -> dict[str, Any]:
        """The changes to the job. A fold replaces `validation`."""
        fold = {} if self.fold is None else {"dataset.validation": 0, FOLD: self.fold}
        return self.settings | ({} if self.seed is None else {"seed": self.seed}) | fold


class SweepSection(Section):
    """A `[sweep]` table. Further keys are dotted keys of the job in quotes, such as `"optimizer.lr"`: a list of values, or a range
    `{low = 0.001, high = 1.0, log = true, whole = false}`.
    """

    model_config = ConfigDict(extra="allow")

    zip: dict[str, list[Any]] = Field(default_factory=dict)
    """Keys whose lists go together: the first values of all lists, then the second values, and so on."""
    seeds: int = Field(1, ge=1, le=1000)
    """Number of runs of each combination: with the seed of the job, the seed after it, and so on."""
    k_folds: int | None = Field(None, ge=2, le=1000)
    """Cross-validation: k runs of each combination and seed; each run holds out another one of k folds. Replaces
    `validation`."""
    trials: int | None = Field(None, ge=1, le=MAX_TRIALS)
    """Number of combinations to draw at random from the ranges and lists. Without it, all combinations of the lists run."""
    sampler: Literal["random", "tpe"] = "random"
    """`random`: draw trials at random. `tpe`: draw each trial near earlier trials that were good, by Optuna
    (`pip install 'partrain[tune]'`)."""
    max_concurrent: int = Field(1, ge=1, le=1000)
    """`tpe`: number of trials at once. A trial is drawn when all but the last `max_concurrent - 1` trials before it
    have ended."""
    prune: Literal["median", "halving"] | None = None
    """`tpe`: end poor trials early: trials worse than the median of earlier ones, or by successive halving."""
    startup_trials: int = Field(5, ge=0)
    """`prune = "median"`: number of complete trials before the first one can be pruned."""
    warmup_rounds: int = Field(0, ge=0)
    """`prune = "median"`: number of rounds in which a trial is not pruned."""
    by: str = "loss"
    """Number that ranks the trials: `loss`, `accuracy` or another metric of the run's network (`best.h5`), or a number of
    `summary.json`, such as `test.loss`, `metrics.accuracy` (of the last judgement) or `seconds.train`."""
    largest: bool | None = None
    """true: the largest number is the best. Default: as the metric defines it; for other numbers false if `by` contains `loss`,
    `error`, `seconds`, `rounds`, `iterations` or `bytes`, else true."""

    @model_validator(mode="before")
    @classmethod
    def _flat(cls, data: Any) -> Any:
        """Join tables to dotted keys: without quotes, TOML reads `optimizer.lr = [...]` as a table `optimizer`."""
        if not isinstance(data, dict):
            return data
        own = {key: value for key, value in data.items() if key in cls.model_fields}
        if isinstance(zipped := own.get("zip"), dict):
            own["zip"] = dict(flatten(zipped, _is_outer))
        return own | dict(flatten({key: value for key, value in data.items() if key not in own}, _is_outer))

    @property
    def values(self) -> dict[str, list[Any] | Range]:
        """The lists and ranges by dotted key."""
        extra = (self.model_extra or {}).items()
        return {key: Range.model_validate(value) if isinstance(value, dict) else value for key, value in extra}

    @property
    def maximizes(self) -> bool:
        """True if the largest number is the best."""
        if self.largest is not None:
            return self.largest
        if (metric := self.by.rpartition(".")[2]) in LOWER:
            return not LOWER[metric]
        return not any(word in self.by for word in ("loss", "error", "seconds", "rounds", "iterations", "bytes"))

    @property
    def tuned(self) -> bool:
        """True if the settings of a trial depend on earlier trials."""
        return self.sampler == "tpe"

    @property
    def is_empty(self) -> bool:
        """True if nothing is varied: the job is trained once."""
        return not self.values and not self.zip and self.seeds == 1 and self.k_folds is None

    @model_validator(mode="after")
    def _consistent(self) -> SweepSection:
        for key, value in (self.model_extra or {}).items():
            if not isinstance(value, list | dict) or not value:
                raise ValueError(f"`{key}` {NEEDS}")
            if isinstance(value, dict):
                try:
                    Range.model_validate(value)
                except ValidationError as error:
                    problem = error.errors()[0]
                    reason = problem["ctx"]["error"] if problem["type"] == "value_error" else NEEDS
                    raise ValueError(f"`{key}` {reason}" if reason is NEEDS else f"`{key}`: {reason}") from None
        ranges = [key for key, value in self.values.items() if isinstance(value, Range)]
        if ranges and self.trials is None:
            raise ValueError(f"`{ranges[0]}` is a range: `trials` says how many combinations are drawn")
        if self.trials is not None and not self.values:
            raise ValueError("`trials` draws from lists and ranges, and the sweep has none")
        lengths = {len(values) for values in self.zip.values()}
        if len(lengths) > 1 or 0 in lengths:
            raise ValueError("the lists of `zip` must be of equal length")
        if self.k_folds and (chosen := [key for key in HELD_OUT if key in self.values or key in self.zip]):
            raise ValueError(
                f"`k_folds` holds out each fold in turn, which leaves no choice to `{chosen[0]}`: remove one of them"
            )
        if self.sampler == "tpe":
            if self.trials is None:
                raise ValueError('`sampler` = "tpe" needs `trials`, the number of combinations to draw')
            if self.zip:
                raise ValueError('`zip` lists combinations, and `sampler` = "tpe" draws them: remove one of them')
        elif self.prune or self.max_concurrent > 1:
            raise ValueError(f'`{"prune" if self.prune else "max_concurrent"}` belongs to `sampler` = "tpe"')
        if self.prune != "median" and (own := {"startup_trials", "warmup_rounds"} & self.model_fields_set):
            raise ValueError(f'`{min(own)}` belongs to `prune` = "median"')
        if self.prune and self.seeds > 1:
            raise ValueError("`prune` compares single runs: it goes with `seeds = 1` only")
        if self.prune and self.k_folds:
            raise ValueError("`prune` compares single runs, and `k_folds` has several of each combination: remove one of them")
        if self.prune and not (self.by == "loss" or self.by.startswith("metrics.")):
            raise ValueError('`prune` needs a `by` that is judged while a run trains: "loss" or "metrics.NAME"')
        if (count := self._count()) > MAX_TRIALS:
            raise ValueError(f"{count:,} runs, more than {MAX_TRIALS:,}: draw some of them with `trials`")
        return self

    def _count(self) -> int:
        grid = self.trials or math.prod(len(value) for value in self.values.values() if isinstance(value, list))
        return grid * max(1, len(next(iter(self.zip.values()), [0]))) * self.seeds * (self.k_folds or 1)

    def named_runs(self, seed: int) -> dict[str, Trial]:
        """Return the runs by name: "lr=0.1,rule=average,seed=3", as Hydra names them; "3f9a1c-0001" for drawn combinations.

        A run with the job's own seed has none in its name. So a run keeps its name when others are added before or after it, and no
        other run ever has its name.
        """
        runs, study = self.runs(seed), self._study(seed)
        keys = {key for run in runs for key in run.settings}
        last = Counter(key.rpartition(".")[2] for key in keys)
        named: dict[str, Trial] = {}
        for run in runs:
            settings = {
                key if last[key.rpartition(".")[2]] > 1 else key.rpartition(".")[2]: run.settings[key] for key in run.settings
            }
            parts = [f"{study}-{run.number + 1:04}"] if study else [f"{key}={_text(value)}" for key, value in settings.items()]
            parts += [f"seed={run.seed}"] * (run.seed is not None) + [f"fold={run.fold}"] * (run.fold is not None)
            name = ",".join(_plain(part) for part in parts)
            if len(name) > LONGEST_NAME:
                name = f"{name[:LONGEST_NAME]}-{_digest(','.join(parts), 8)}"
            while name in named:  # a value that is listed twice
                name += "+"
            named[name] = run
        return named

    def _study(self, seed: int) -> str:
        """Return a name for everything that determines drawn combinations, except their number; "" if none are drawn."""
        if self.trials is None:
            return ""
        table = self.model_dump(exclude_defaults=True, exclude={"trials"})
        drawn = table if self.tuned else {key: table[key] for key in table if key == "zip" or key in self.values}
        return _digest(json.dumps([seed, drawn]), 6)

    def runs(self, seed: int) -> list[Trial]:
        """List the runs: for each combination all seeds, for each seed all folds. `seed` is the job's.

        The first run has the job's seed, so it is the same run with and without `seeds`.
        """
        together = [dict(zip(self.zip, row, strict=True)) for row in zip(*self.zip.values(), strict=True)] or [{}]
        combinations = [settings | row for settings in self._combinations(seed) for row in together]
        seeds = [None, *range(seed + 1, seed + self.seeds)]
        return [
            Trial(settings, seed, number, fold)
            for number, settings in enumerate(combinations)
            for seed in seeds
            for fold in self._folds
        ]

    def extremes(self) -> list[Trial]:
        """Return trials at both ends of all ranges, and with each list value: if they fit, so does all that a tuner can draw."""
        lows = {key: value.draw(0) if isinstance(value, Range) else value[0] for key, value in self.values.items()}
        highs = {key: value.draw(1) if isinstance(value, Range) else value[-1] for key, value in self.values.items()}
        others = [lows | {key: choice} for key, value in self.values.items() if isinstance(value, list) for choice in value[1:]]
        return [Trial(settings, None, 0, self._folds[0]) for settings in (lows, highs, *others)]

    @property
    def _folds(self) -> list[str | None]:
        """The folds of each combination and seed."""
        if self.k_folds is None:
            return [None]
        return [str(Fold(number, self.k_folds)) for number in range(1, self.k_folds + 1)]

    def _combinations(self, seed: int) -> Iterator[dict[str, Any]]:
        values: Mapping[str, list[Any] | Range] = self.values
        if self.trials is None:
            lists = [value for value in values.values() if isinstance(value, list)]
            yield from (dict(zip(values, row, strict=True)) for row in product(*lists))
            return
        if self.tuned:  # chosen later, one after another
            yield from ({} for _ in range(self.trials))
            return
        drawing = generator(seed, "sweep")
        for _ in range(self.trials):
            shares = {key: float(drawing.random()) for key in values}
            yield {
                key: value.draw(shares[key]) if isinstance(value, Range) else value[int(shares[key] * len(value))]
                for key, value in values.items()
            }
