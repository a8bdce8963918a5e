"""The ranking of a sweep, as stored in `sweep.json` in its folder, and shown by workflows, reports and `compare`."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any

from partrain.display.text_table import table, wrapped
from partrain.errors import InputMissing
from partrain.record.file_names import RANKING
from partrain.record.round_record import number_of
from partrain.record.run_folder import RunFolder
from partrain.runs.comparing import ComparedRow, ComparedRuns
from partrain.system.regular_file import read_json

SHOWN_COMBINATIONS = 20
"""Maximum number of combinations in a table."""


@dataclass(frozen=True)
class Combination:
    """The runs of one combination of settings."""

    settings: dict[str, Any]
    values: list[float | None]
    """The ranked number of each run; None if it was not recorded, or is not finite."""
    runs: list[str]
    """Names of the runs, without the step's name."""
    pruned: list[int] = field(default_factory=list)
    """Round at which each pruned run was pruned."""

    @property
    def median(self) -> float:
        """The median of the recorded values; NaN without any."""
        values = [value for value in self.values if value is not None]
        return statistics.median(values) if values else math.nan

    @property
    def label(self) -> str:
        """The settings as one text."""
        return ", ".join(f"{key} = {shown(value)}" for key, value in self.settings.items())


@dataclass(frozen=True)
class Ranking:
    """The combinations of a sweep, the best first; those without a value last."""

    folder: Path
    """The folder of the runs."""
    by: str
    """Name of the ranked number."""
    largest: bool
    """True if the largest number is the best."""
    rows: Sequence[Combination]

    @classmethod
    def of(cls, folder: Path, by: str, rows: Sequence[Combination], *, largest: bool) -> Ranking:
        """Rank the combinations."""
        return cls(folder, by, largest, sorted(rows, key=lambda row: sort_key(row.median, largest=largest)))

    @classmethod
    def read(cls, folder: Path) -> Ranking:
        """Read the ranking in a folder. Raises `InputMissing`."""
        try:
            content = read_json(folder / RANKING)
            json.dumps(content, ensure_ascii=False).encode()  # a lone surrogate could not be printed
            rows = [
                Combination(
                    dict(row["settings"]),
                    [number_of(value) for _, value in zip(row["runs"], row["values"], strict=True)],
                    [_name(run) for run in row["runs"]],
                    [int(round_number) for round_number in row.get("pruned", ())],
                )
                for row in content["rows"]
                if row["runs"]
            ]
            if not rows:
                raise ValueError("it has no runs")
            return cls(folder, str(content["by"]), bool(content["largest"]), rows)
        except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
            raise InputMissing(f"{folder / RANKING}: not the ranking of a sweep: {error}") from None

    @cached_property
    def measured(self) -> list[Combination]:
        """The combinations with a value."""
        return [row for row in self.rows if not math.isnan(row.median)]

    @property
    def level(self) -> int:
        """Number of combinations with the best value."""
        return len(list(takewhile(lambda row: row.median == self.measured[0].median, self.measured)))

    def best_run(self, row: Combination) -> Path:
        """Return the folder of the best run of a combination."""
        keys = [sort_key(math.nan if value is None else value, largest=self.largest) for value in row.values]
        return self.folder / row.runs[keys.index(min(keys))]

    @property
    def best(self) -> Path | None:
        """The folder of the best run of the best combination; None if no run has the number."""
        return self.best_run(self.measured[0]) if self.measured else None

    @property
    def content(self) -> dict[str, Any]:
        """The content of `sweep.json`."""
        return {
            "by": self.by,
            "largest": self.largest,
            "best": self.best and self.best.name,
            "difference": self.difference,
            "rows": [
                {
                    "settings": row.settings,
                    "median": None if math.isnan(row.median) else row.median,
                    "values": row.values,
                    "runs": row.runs,
                    **({"pruned": row.pruned} if row.pruned else {}),
                }
                for row in self.rows
            ],
        }

    @property
    def difference(self) -> str:
        """A sentence on what the best combinations share, and how they differ; "" if the ranking of one setting says it all."""
        measured = self.measured
        keys = list(dict.fromkeys(key for row in measured for key in row.settings))
        if len(measured) < 2 or len(keys) < 2:
            return ""
        top = measured[: max(2, min(5, len(measured) // 3))]
        shared, varied = [], []
        for key in keys:
            values = list(dict.fromkeys(shown(row.settings.get(key)) for row in top))
            everywhere = {shown(row.settings.get(key)) for row in measured}
            if len(values) == 1 and len(everywhere) > 1:
                shared.append(f"{key} = {values[0]}")
            elif len(values) > 1:
                varied.append(f"{key} ({', '.join(values)})")
        facts = [f"share {' and '.join(shared)}"] if shared else []
        facts += [f"differ in {' and '.join(varied)}"] if varied else []
        span = f"{self.by} {top[0].median:.4g} to {top[-1].median:.4g}"
        return f"The {len(top)} best of {len(measured)} ({span}) {' and '.join(facts)}." if facts else ""

    @cached_property
    def compared(self) -> ComparedRuns:
        """The best combinations side by side: a row for all runs of each, with its rank as label."""
        rows = self.rows[:SHOWN_COMBINATIONS]
        runs = [[RunFolder(self.folder / name) for name in row.runs] for row in rows]
        compared = [
            ComparedRow(f"{rank}", some[0].job, [*filter(None, (run.summary for run in some))])
            for rank, some in enumerate(runs, 1)
        ]
        return ComparedRuns(compared, self.by, [row.values for row in rows])

    @property
    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Heading and rows of the best combinations: rank, settings, and the columns of all comparisons."""
        (_, *head), lines = self.compared.cells()
        keys = list(dict.fromkeys(key for row in self.rows for key in row.settings))
        settings = [[shown(row.settings.get(key)) for key in keys] for row in self.rows]
        return ["rank", *keys, *head], [[rank, *own, *cells] for (rank, *cells), own in zip(lines, settings, strict=False)]

    @property
    def notes(self) -> list[str]:
        """Sentences below the table: the order, combinations that are level or not shown, the best ones' common settings."""
        more = len(self.rows) - SHOWN_COMBINATIONS
        level = f"the first {self.level:,} are level, in the order of the sweep" * (self.level > 1)
        return [*filter(None, [self.compared.note, level, f"{more:,} more are not shown" * (more > 0), self.difference])]

    def lines(self, width: int | None) -> list[str]:
        """Return the table and the sentences as lines for a terminal of this width; None: any width."""
        return [*table(*self.cells, width), *wrapped(self.notes, width)]


def sort_key(value: float, *, largest: bool) -> float:
    """Return a number to sort by: the best value first, NaN last."""
    return math.inf if math.isnan(value) else -value if largest else value


def _name(run: Any) -> str:
    """Return the name of a run from a file that may be hostile. Raises ValueError if it is not a name."""
    name = str(run)
    if name in ("", ".", "..") or Path(name).name != name:
        raise ValueError(f"{name!r} is no name of a run")
    return name


def shown(value: Any) -> str:
    """Return a setting as a text."""
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)
