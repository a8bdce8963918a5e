"""The columns that a table's job predicts: their kind, classes and task, for `partrain init --from`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Literal

from partrain.config.overrides import toml_value
from partrain.data.tables.files import TableFile
from partrain.errors import InputMissing
from partrain.number_format import counted
from partrain.preprocess.cells import are_classes, ordered_classes
from partrain.templates.assemble import listed
from partrain.templates.column_facts import ColumnFacts

FEW = 0.1
"""Share of the rows below which one of two classes is rare: the accuracy then says little."""
RARE = 3
"""Number of rows below which a class cannot be among the training, held-out and test items."""
FEWEST_ROWS = 10
LABELS_TASK = ['kind = "multi-label"          # each target is 0 or 1, in any combination', 'metrics = ["f1"]']
"""The lines of `[task]` for targets that are labels."""


@dataclass(frozen=True)
class Targets:
    """The columns to predict."""

    columns: Sequence[ColumnFacts]
    kind: Literal["class", "label", "number"]
    late: Collection[str] = ()
    """Classes that only the newest rows have: they could not be learned."""

    @property
    def first(self) -> ColumnFacts:
        return self.columns[0]

    @property
    def value(self) -> str | list[str]:
        """The key `target`."""
        names = [column.name for column in self.columns]
        return names[0] if len(names) == 1 else names

    @cached_property
    def learned(self) -> dict[str, int]:
        """Rows of each learned class; {} if targets are not classes."""
        rows = self.first.different if self.kind == "class" else {}
        return {text: count for text, count in rows.items() if count >= RARE and text not in self.late}

    @property
    def rare(self) -> list[str]:
        """Classes that are left out because they have too few rows."""
        return [text for text, count in self.first.different.items() if count < RARE] if self.kind == "class" else []

    @property
    def rows(self) -> int:
        """Number of rows with a learned value."""
        lost = sum(self.first.different[text] for text in (*self.rare, *self.late))
        return min(column.rows - column.missing for column in self.columns) - lost

    @property
    def nothing_to_learn(self) -> str:
        """The reason why fewer than two classes are learned."""
        name, different = self.first.name, len(self.first.different)
        if self.learned:
            others = "the newest rows only" if self.late and not self.rare else f"fewer than {RARE} rows"
            return f"column `{name}`: all classes but `{next(iter(self.learned))[:40]}` have {others}: nothing to predict"
        rows = self.first.rows - self.first.missing
        what = f"column `{name}` has {different:,} different words in {rows:,} rows: too many classes"
        unit = self.first.unit
        return f"{what}, and no numbers, because of the unit `{unit}`: write them without it" if unit else what

    def notes(self) -> list[str]:
        """Describe the prediction, and the classes that are left out."""
        notes = [_described(self.columns, self.kind)]
        for some, why in (
            (self.rare, f"of fewer than {RARE} rows"),
            (sorted(self.late), "that no row of the older part has"),
        ):
            if some:
                lost = counted(sum(self.first.different[text] for text in some), "row")
                what = f"{_classes(len(some))} {why}, {lost} in all, left out: {listed(f'`{text[:40]}`' for text in some)}"
                notes.append(f"{what} (`classes` names those that are learned)")
        return notes

    def dataset_lines(self) -> list[str]:
        """Return the lines of `[dataset]` on the targets."""
        lines = [f"target = {toml_value(self.value)}"]
        if len(self.columns) == 1:
            kind = "class" if self.kind == "class" else "number"
            lines.append(f'target_kind = "{kind}"   # {len(self.first.different):,} different values')
        if self.rare or self.late:
            names = toml_value(list(ordered_classes(self.learned)))
            lines.append(f"classes = {names}   # the others are too rare, or too new")
        return lines

    def task(self, *, skewed: bool) -> tuple[list[str], list[str]]:
        """Return the lines of `[task]`, and notes. `skewed`: a few of the numbers have much of the variance."""
        if self.kind == "label":
            return LABELS_TASK, []
        if self.kind == "number":
            what = "the share of the variance that is explained; the mean error in units of the target"
            loss = [
                'loss = "huber"               # linear for large errors: a squared one would learn the few far targets'
            ] * skewed
            return [*loss, f'metrics = ["r2", "mae"]      # {what}'], []
        if not self.rarest:
            return [], []
        metrics = ["auroc", "average_precision", "f1"] if find_spec("torchmetrics") else ["f1"]
        more = "" if find_spec("torchmetrics") else "; pip install 'partrain[metrics]' for the average precision"
        judged = f"judged by {', '.join(metrics)}; the best round has the best {self.decides}"
        lines = [
            f"metrics = {toml_value(metrics)}   # means over the classes: the accuracy tells little of rare ones",
            '# class_weights = "balanced"   # answers name the rare class more often; probabilities stay those of the data',
        ]
        return lines, [f"the rarest class has {self.rarest:.1%} of the rows: {judged} (`metrics`, `patience_by`){more}"]

    @property
    def rarest(self) -> float:
        """The rare class's share of the rows, of two classes; 0 if there are more classes, or none is rare."""
        share = min(self.learned.values()) / sum(self.learned.values()) if len(self.learned) == 2 else FEW
        return share if share < FEW else 0.0

    @property
    def decides(self) -> str:
        """The judged number that chooses the best round: if a class is rare, a measure of the answers' ranking."""
        return "average_precision" if self.rarest and find_spec("torchmetrics") else "loss"


def targets_of(file: TableFile, columns: Sequence[ColumnFacts]) -> Targets:
    """Determine the targets. Raises InputMissing if there is nothing to learn."""
    first = columns[0]
    rows = min(column.rows - column.missing for column in columns)
    if rows < FEWEST_ROWS:
        raise InputMissing(f"{file.path}: {counted(rows, 'row')} with a value of `{first.name}`: too few to train on")
    for column in columns:
        if len(column.different) < 2:
            unused = f"; {holes_in(column)} count as no value (--missing TEXT names other texts)" if column.missing else ""
            what = f"column `{column.name}` has the same value in each row: nothing to predict{unused}"
            raise InputMissing(f"{file.header_location}: {what}")
    if len(columns) == 1:
        return Targets(columns, "class" if _are_classes(first) else "number")
    if words := [column.name for column in columns if not column.numbers]:
        what = f"several targets are numbers, or labels 0 and 1, and `{words[0]}` has words: write a job for each column of words"
        raise InputMissing(f"{file.header_location}: {what}")
    return Targets(columns, "label" if all(column.labels for column in columns) else "number")


def _are_classes(column: ColumnFacts) -> bool:
    return (
        not column.numbers
        or column.truths
        or (column.whole and are_classes(len(column.different), min(column.different.values())))
        or (len(column.different) == 2 and all(float(text).is_integer() for text in column.different))
    )


def _described(columns: Sequence[ColumnFacts], kind: Literal["class", "label", "number"]) -> str:
    """Describe the prediction, and how often the most frequent class is right."""
    first = columns[0]
    if kind == "class":
        commonest, count = first.different.most_common(1)[0]
        share = f"always answering `{commonest}` would be right in {count / first.different.total():.1%} of the rows"
        return f"target `{first.name}`: {_classes(len(first.different))}; {share} (`target_kind`)"
    if len(columns) == 1:
        return f"target `{first.name}`: a number (`target_kind`)"
    names = listed(f"`{column.name}`" for column in columns)
    return f"targets {names}: {'labels, each 0 or 1' if kind == 'label' else 'numbers'} (`target`)"


def _classes(count: int) -> str:
    """Count classes in words."""
    return "1 class" if count == 1 else f"{count:,} classes"


def holes_in(column: ColumnFacts) -> str:
    """Name the texts of a column's missing values, with their rows."""
    holes: Counter[str] = column.holes
    return listed(f"`{text[:40]}` ({count:,})" if text else f"empty ({count:,})" for text, count in holes.most_common())
