"""Jobs for tables, CSV and Parquet."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from partrain.config.overrides import toml_value
from partrain.data.tables.dialect import Dialect
from partrain.data.tables.files import PARQUET, TableFile, cells_of, open_by_name
from partrain.data.tables.time_stamps import parse_stamp
from partrain.errors import InputMissing
from partrain.number_format import counted
from partrain.preprocess.cells import MOST_CLASSES, are_classes, ordered_classes
from partrain.templates.assemble import SHOWN, Draft, Recipe, assemble, listed
from partrain.templates.column_facts import ColumnFacts
from partrain.templates.from_series import NAMES, series_job
from partrain.templates.recognise import lines_of, number_dialect, odd_texts, text_dialect

NOTED_HOLES = 0.01
"""Share of missing numbers from which a column gets an indicator of them."""
USUAL_NULLS = ("NA", "N/A", "nan", "null", "?")
"""Texts of missing values where a job names none."""
RARE = 3
"""Rows below which a class cannot be in the items to train on, to judge by and to test on."""


@dataclass(frozen=True)
class Size:
    """Settings for tables of fewer training items than `items`, chosen on draws and splits that `benchmarks/tables.py` does not report."""

    items: float
    width: int
    dropout: float
    recipe: Recipe


SIZES = (
    Size(1000, 64, 0.3, Recipe(32, 0.1, 20, 15)),
    Size(5000, 64, 0.2, Recipe(64, 0.1, 30, 25)),
    Size(math.inf, 128, 0.1, Recipe(128, 0.1, 50, 20)),
)
"""Settings by size: fewer passes, a smaller network and more dropout where there are few items."""


class Asked(NamedTuple):
    """Settings that the user asks for."""

    target: str | None = None
    kind: Literal["table", "series"] | None = None
    dialect: Mapping[str, str] = {}
    """Keys of `Dialect`, but `null_values`."""
    null_values: tuple[str, ...] | None = None


def table_job(path: Path, shown: str, asked: Asked) -> Draft:
    """Write a job for a table; `shown` is its path in the job. Raises InputMissing if none can be trained on it."""
    typed = path.name.lower().endswith(PARQUET)
    dialect, notes = (Dialect(), []) if typed else text_dialect(path, asked.dialect)
    dialect = replace(dialect, null_values=asked.null_values)
    file = open_by_name(path, dialect)
    if (target := asked.target) is None:
        raise InputMissing(f"{file.header_location}: name the column to predict: --target takes one of {', '.join(file.names)}")
    file.require(target, "--target")
    columns = {name: ColumnFacts(name) for name in file.names}
    for block in file.blocks(file.names):
        for name, column in columns.items():
            column.add(block.columns[name], file.is_missing)
    if not typed:
        dialect, sentences = number_dialect(dialect, {name: column.different for name, column in columns.items()}, asked.dialect)
        notes += sentences
    if rewrite := dialect.rewrite:
        for column in columns.values():
            column.rewrite(rewrite)
    odd = {name: texts for name, column in columns.items() if (texts := odd_texts(column.different))}
    notes += _odd_notes(file, columns, odd)
    if odd:
        more = sorted({text for texts in odd.values() for text in texts})
        dialect = replace(dialect, null_values=(*(USUAL_NULLS if asked.null_values is None else asked.null_values), *more))
        for column in columns.values():
            column.discard({text.lower() for text in more})
    file = open_by_name(path, dialect)
    written = [f"path = {toml_value(shown)}", *(f"{key} = {toml_value(value)}" for key, value in lines_of(dialect))]
    if asked.kind != "table" and (draft := _series(file, columns, written, target)):
        return Draft(draft.text, [*notes, *draft.notes])
    if asked.kind == "series":
        what = f"`{target}` is no column of numbers, or no other column has time stamps in order and in equal steps"
        raise InputMissing(f"{file.header_location}: no series: {what}")
    text, sentences = _tabular(file, columns, ['kind = "parquet"' if typed else 'kind = "csv"', *written], target)
    return Draft(text, [*notes, *sentences])


def _odd_notes(file: TableFile, columns: Mapping[str, ColumnFacts], odd: Mapping[str, Counter[str]]) -> Iterator[str]:
    """Tell of cells among numbers that are none. InputMissing if one is a word of another column, where it would be lost."""
    for name, texts in odd.items():
        places = {text: file.first(name, partial(_is_text, text))[0] for text in texts}
        for text, place in places.items():
            others = [name for name, facts in columns.items() if name not in odd and facts.words and text in facts.different]
            if others and any(map(str.isalnum, text)):
                what = (
                    f"`{text}` stands among numbers, and is a word of column `{others[0]}`: correct it, or leave the cell empty"
                )
                raise InputMissing(f"{place}: column `{name}`: {what}")
        shown = listed(f"`{text}` ({places[text]})" for text in texts)
        count = texts.total()
        rows = (
            f"{count:,} of {columns[name].rows:,} cells {'is no number and counts' if count == 1 else 'are no numbers and count'}"
        )
        yield f"column `{name}`: {rows} as missing: {shown} (--missing; `null_values`)"


def _is_text(text: str, cell: Any) -> bool:
    return str(cell).strip() == text


def _series(file: TableFile, columns: Mapping[str, ColumnFacts], written: Sequence[str], target: str) -> Draft | None:
    """Write a job that forecasts the target; None if the table is no series."""
    stamped = [name for name, facts in columns.items() if _has_stamps(facts)]
    names = [target, *(name for name in stamped if name != target)]
    if len(names) == 1 or not columns[target].numbers:
        return None
    return series_job(file, cells_of(file.blocks(names), names), written, target)


def _has_stamps(column: ColumnFacts) -> bool:
    """Return whether a column may hold time stamps; numbers are such by the name of the column only."""
    if column.numbers:
        return column.name.strip().lower() in NAMES
    try:
        return bool(list(map(parse_stamp, column.different)))
    except (TypeError, ValueError):
        return False


def _tabular(file: TableFile, columns: Mapping[str, ColumnFacts], source: Sequence[str], target: str) -> tuple[str, list[str]]:
    """Write a job for a table whose rows are items; also return notes."""
    path, answer = file.path, columns[target]
    rows = answer.rows - answer.missing
    if rows < 10:
        raise InputMissing(f"{path}: {counted(rows, 'row')} with a value of `{target}`: too few to train on")
    if len(answer.different) < 2:
        unused = f"; {_texts(answer.holes)} count as no value (--missing TEXT names other texts)" if answer.missing else ""
        raise InputMissing(
            f"{file.header_location}: column `{target}` has the same value in each row: nothing to predict{unused}"
        )
    rarest = min(answer.different.values())
    classes = not answer.numbers or answer.truths or (answer.whole and are_classes(len(answer.different), rarest))
    if classes and len(answer.different) > max(MOST_CLASSES, rows // 2):
        raise InputMissing(
            f"{file.header_location}: column `{target}` has {len(answer.different):,} different words in {rows:,} rows: too many classes"
        )
    inputs = {name: column for name, column in columns.items() if name != target}
    dropped = {name: reason for name, column in inputs.items() if (reason := column.reason_to_drop())}
    kept = {name: column for name, column in inputs.items() if name not in dropped}
    if not kept:
        raise InputMissing(f"{file.header_location}: no column is left to learn from beside `{target}`")
    words = [name for name, column in kept.items() if column.words]
    dates = [name for name, column in kept.items() if column.dates]
    holes = [name for name, column in kept.items() if column.missing]
    noted = [name for name in holes if kept[name].numbers and kept[name].missing >= NOTED_HOLES * answer.rows]
    lines = [
        *source,
        f"target = {toml_value(target)}",
        f'target_kind = "{"class" if classes else "number"}"   # {len(answer.different):,} different values',
    ]
    notes = [_answer_note(answer, classes=classes)]
    rare = [text for text, count in answer.different.items() if count < RARE] if classes else []
    if rare and len(answer.different) - len(rare) > 1:
        lost, some = sum(answer.different[text] for text in rare), listed(f"`{text[:40]}`" for text in rare)
        what = f"{_classes(len(rare))} of fewer than {RARE} rows, {counted(lost, 'row')} in all, left out: {some}"
        notes.append(f"{what} (`classes` names those that are learned)")
        frequent = {text: count for text, count in answer.different.items() if text not in rare}
        lines.append(f"classes = {toml_value(list(ordered_classes(frequent)))}   # those of {RARE} rows and more")
        rows, rarest = rows - lost, min(frequent.values())
    if dropped:
        lines += [f"# {name}: {reason}" for name, reason in dropped.items()] + [f"drop = {toml_value(list(dropped))}"]
        notes += _some(f"column `{name}` is left out: {reason} (`drop`)" for name, reason in dropped.items())
    if words:
        lines.append(f"categories = {toml_value(words)}   # columns of words: the network learns an embedding of each word")
    if dates:
        lines.append(f"dates = {toml_value(dates)}   # each becomes the day, and its place in year, week and day")
    if answer.missing:
        rest = ', "*" = "median"' if holes else ""
        lines.append(f'missing = {{{toml_value(target)} = "drop"{rest}}}   # rows without a target are left out')
        notes.append(
            f"{counted(answer.missing, 'row')} without a value of `{target}` left out: {_texts(answer.holes)} (`missing`)"
        )
    elif holes:
        lines.append(
            'missing = "median"         # the median stands for a missing number, a missing word is a category of its own'
        )
    filled = (
        f"column `{name}`: {kept[name].missing:,} of {kept[name].rows:,} cells without a value: {_texts(kept[name].holes)}; "
        f"{'a category of its own' if kept[name].words else 'the median'} stands for it (`missing`)"
        for name in holes
    )
    notes += _some(filled)
    if noted:
        lines.append(f"missing_indicator = {toml_value(noted)}   # another number says where a value was missing")
    if not classes:
        lines.append("standardise_target = true    # losses are in standard deviations of the target, answers in its units")
    items = int(rows * 0.7)
    lines += ["test_share = 0.15", f"validation = {max(rows * 15 // 100, 1)}"]
    if classes and rarest >= 20:
        lines.append("stratify = true              # held-out items have the classes in proportion")
    size = next(size for size in SIZES if items < size.items)
    model = [
        'name = "tabular"             # embeddings of words and of numbers, residual blocks',
        f"width = {size.width}",
        f"hidden = {2 * size.width}",
        f"dropout = {size.dropout}",
    ]
    what = f"{'Predict the class' if classes else 'Predict the number'} `{target}` from {len(kept)} columns of {path.name}: {rows:,} rows."
    return assemble(path, what, model, lines, items, size.recipe), notes


def _answer_note(answer: ColumnFacts, *, classes: bool) -> str:
    if not classes:
        return f"target `{answer.name}`: a number (`target_kind`)"
    commonest, count = answer.different.most_common(1)[0]
    share = count / answer.different.total()
    return f"target `{answer.name}`: {_classes(len(answer.different))}; always answering `{commonest}` would be right in {share:.1%} of the rows (`target_kind`)"


def _classes(count: int) -> str:
    return "1 class" if count == 1 else f"{count:,} classes"


def _texts(holes: Counter[str]) -> str:
    """Name the texts of missing values, with their rows."""
    return listed(f"`{text[:40]}` ({count:,})" if text else f"empty ({count:,})" for text, count in holes.most_common())


def _some(notes: Iterable[str]) -> list[str]:
    """Shorten notes of one kind: the first ones, and the number of the others."""
    every = list(notes)
    rest = len(every) - SHOWN
    return [*every[:SHOWN], f"and {counted(rest, 'column')} more like this; the job file names all"] if rest > 0 else every
