"""Jobs for tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from partrain.config.overrides import toml_value
from partrain.data.python.frames import NAME
from partrain.data.tables.dialect import Dialect
from partrain.data.tables.files import TableFile, cells_of
from partrain.data.tables.formats import TableFormat, format_of, open_file
from partrain.data.tables.parts import part_paths
from partrain.data.tables.typed_files import FrameTable
from partrain.errors import InputMissing
from partrain.number_format import counted
from partrain.preprocess.cells import is_number
from partrain.templates.assemble import Asked, Draft, listed, names_in
from partrain.templates.column_facts import ColumnFacts
from partrain.templates.from_documents import documents_job
from partrain.templates.from_rows import rows_job
from partrain.templates.from_series import FEWEST, Refusal, series_job
from partrain.templates.order_in_time import NAMES, PARTS, with_stamps, with_targets
from partrain.templates.recognise import date_forms, lines_of, number_dialect, odd_texts, text_dialect
from partrain.templates.targets import Targets
from partrain.templates.units import NONE, require_units

USUAL_NULLS = ("NA", "N/A", "nan", "null", "?")
"""Texts of missing values unless a job names others."""
SHARED = 0.75
"""Number of different time stamps, as a share of the rows, up to which groups share moments."""


def frame_job(frame: Any, asked: Asked) -> Draft:
    """Write a job for a DataFrame of polars; see `propose`."""
    return _job(lambda dialect: FrameTable(frame, NAME, null_values=dialect.null_values), Dialect(), [], NAME, asked)


def propose(path: Path, shown: str, asked: Asked, folder: Path) -> Draft | None:
    """Write a job for a table; see `DataForm.proposal`. Raises InputMissing if no job can be trained on it."""
    if not (form := format_of(path)):
        return None
    if asked.dialect and form.typed:
        raise InputMissing(f"{path}: a {form.name} file has its own types: --separator and the like concern CSV files")
    if asked.kind == "images":
        raise InputMissing(f"{path}: a table, not a folder of images: --kind takes table, series or text")
    dialect, notes = (
        (Dialect(), [])
        if form.typed
        else text_dialect(next(iter(part_paths(path)), path) if path.is_dir() else path, asked.dialect)
    )
    return _job(lambda dialect: open_file(path, dialect), dialect, notes, shown, asked, form)


def _job(
    opened: Callable[[Dialect], TableFile],
    dialect: Dialect,
    notes: list[str],
    shown: str,
    asked: Asked,
    form: TableFormat | None = None,
) -> Draft:
    """Write a job for a table that is `opened` with a dialect; `form`: the format of its file."""
    dialect = replace(dialect, null_values=asked.null_values)
    file = opened(dialect)
    notes += [f"{file.path}: {file.remark}"] if file.remark else []
    if not asked.targets:
        raise InputMissing(f"{file.header_location}: name the column to predict: --target takes one of {', '.join(file.names)}")
    targets = list(dict.fromkeys(name for words in asked.targets for name in names_in(words, file)))
    for name in targets:
        file.require(name, "--target")
    for option, chosen in (("--time", asked.time), ("--group", asked.group)):
        for name in [] if chosen in (None, NONE) else names_in(chosen, file) if option == "--time" else [chosen]:
            file.require(name, option)
            if name in targets:
                raise InputMissing(f"{file.header_location}: {option}: column `{name}` is the target")
    columns = {name: ColumnFacts(name) for name in file.names}
    for block in file.blocks(file.names):
        used = with_targets(file, targets, block)
        for name, column in columns.items():
            answer = name in targets
            column.add((block if answer else used).columns[name], file, every=answer)
    if form and not form.typed:
        values = {name: column.different for name, column in columns.items() if column.unread or dialect.rewrite}
        numbers = {name: column.different for name, column in columns.items() if name not in values}
        dialect, sentences = number_dialect(dialect, values, asked.dialect, numbers)
        dialect, more = date_forms(dialect, values)
        notes += [*sentences, *more]
    if rewrite := dialect.rewrite:
        for column in columns.values():
            column.rewrite(rewrite)
    odd = {name: texts for name, column in columns.items() if column.unread and (texts := _odd_texts(column))}
    if odd:
        notes += _odd_notes(file, columns, odd)
        more = sorted({text for texts in odd.values() for text in texts})
        dialect = replace(dialect, null_values=(*(USUAL_NULLS if asked.null_values is None else asked.null_values), *more))
        for column in columns.values():
            column.discard({text.lower() for text in more})
    file = opened(dialect)
    grouped = asked.group not in (None, NONE)
    written = [f"path = {toml_value(shown)}", *(f"{key} = {toml_value(value)}" for key, value in lines_of(dialect))]
    if asked.kind in (None, "text") and not grouped and (draft := _documents(file, columns, written, targets, asked)):
        return Draft(draft.text, [*notes, *draft.notes])
    whole = asked.kind == "table" or (grouped and asked.kind != "series")
    series = None if whole else _series(file, columns, written, targets, asked)
    if isinstance(series, Draft):
        return Draft(series.text, [*notes, *series.notes])
    if asked.kind == "series" or asked.horizon:
        what = f"`{targets[0]}` is no column of numbers, or no other column has time stamps in order and in equal steps"
        what += " (for rows as they are: --kind series --time none)"
        raise InputMissing(series.reason if series else f"{file.header_location}: no series: {what}")
    notes += [series.reason] if series and series.near else []
    source = [f'kind = "{form.kind if form else "parquet"}"', *written]
    draft = rows_job(file, columns, source, targets, asked.time, asked.group)
    return Draft(draft.text, [*notes, *draft.notes])


def _odd_texts(column: ColumnFacts) -> Counter[str]:
    """Return the texts that stand for missing values among a column's numbers; of padded numbers, such as `136`, `136A` is a name."""
    texts = odd_texts(column.different) or Counter[str]()
    named = {text for text in texts if column.padded and any(map(str.isdigit, text))}
    return Counter({text: rows for text, rows in texts.items() if text not in named})


def _odd_notes(file: TableFile, columns: Mapping[str, ColumnFacts], odd: Mapping[str, Counter[str]]) -> Iterator[str]:
    """Report cells among numbers that are not numbers.

    InputMissing if one is a word in another column, where it would be lost.
    """
    places = {name: {text: file.first(name, partial(_is_text, text))[0] for text in texts} for name, texts in odd.items()}
    single = {name: next(iter(places[name].values())) for name, texts in odd.items() if texts.total() == 1}
    rows = {place: names for place in single.values() if len(names := [name for name in single if single[name] == place]) > 1}
    for place, names in rows.items():  # of units, say
        shown = listed(f"`{text}`" for name in names for text in odd[name])
        yield f"{place}: words among numbers in {counted(len(names), 'column')} count as missing: {shown} (--missing; `null_values`)"
    for name, texts in odd.items():
        for text, place in places[name].items():
            others = [name for name, facts in columns.items() if name not in odd and facts.words and text in facts.different]
            if others and any(map(str.isalnum, text)):
                what = (
                    f"`{text}` stands among numbers, and is a word of column `{others[0]}`: correct it, or leave the cell empty"
                )
                raise InputMissing(f"{place}: column `{name}`: {what}")
        if single.get(name) in rows:
            continue
        shown = listed(f"`{text}` ({places[name][text]})" for text in texts)
        count = texts.total()
        cells = (
            f"{count:,} of {columns[name].rows:,} cells {'is no number and counts' if count == 1 else 'are no numbers and count'}"
        )
        yield f"column `{name}`: {cells} as missing: {shown} (--missing; `null_values`)"


def _is_text(text: str, cell: Any) -> bool:
    return str(cell).strip() == text


def _documents(
    file: TableFile, columns: Mapping[str, ColumnFacts], written: Sequence[str], targets: Sequence[str], asked: Asked
) -> Draft | None:
    """Write a job that classifies texts, if the user wants it, or if a column of texts is the only input."""
    others = {name: facts for name, facts in columns.items() if name not in targets}
    texts = [name for name, facts in others.items() if facts.texts]
    only = not any(not facts.texts and not facts.reason_to_drop() for facts in others.values())
    answer = columns[targets[0]]
    if asked.kind != "text" and not (len(texts) == 1 and only and answer.words and not answer.missing):
        return None
    if not texts or len(targets) > 1 or answer.missing:
        what = (
            "no column has texts"
            if not texts
            else "several targets"
            if len(targets) > 1
            else f"`{answer.name}` has cells without a class"
        )
        raise InputMissing(f"{file.header_location}: no texts to classify: {what}")
    text = max(texts, key=lambda name: sum(map(len, columns[name].different)) / len(columns[name].different))
    classes = Targets([answer], "class")
    unused = [name for name in others if name != text]
    notes = [*classes.notes(), f"`{text}` holds texts: their words are the input (--kind table for other columns)"]
    if unused:
        notes.append(f"{counted(len(unused), 'column')} not used: {listed(f'`{name}`' for name in unused)} (--kind table)")
    lines = [*written, f"text = {toml_value(text)}", f"target = {toml_value(answer.name)}"]
    return Draft(documents_job(file.path, lines, classes.learned, whole=not classes.rare), notes)


def _series(
    file: TableFile, columns: Mapping[str, ColumnFacts], written: Sequence[str], targets: Sequence[str], asked: Asked
) -> Draft | Refusal | None:
    """Write a job that forecasts the targets; a refusal or None if neither the table nor each of some groups is a series."""
    stamped = with_stamps({name: facts for name, facts in columns.items() if name not in targets}, asked.time)
    equal_rows = asked.kind == "series" and asked.time == NONE and asked.group in (None, NONE)
    if not (stamped or equal_rows) or not all(columns[name].numbers for name in targets):
        return None
    numbers = [name for name, facts in columns.items() if all(map(is_number, facts.different)) and not facts.missing]
    numbers = [name for name in numbers if len(columns[name].different) > 1]
    names = list(dict.fromkeys([*targets, *stamped, *numbers]))
    if asked.group is not None and asked.group != NONE:
        require_units(file, columns[asked.group])
        cells = cells_of(file.blocks([*names, asked.group]), list(dict.fromkeys([*names, asked.group])))
        return series_job(file, cells, written, targets, stamped, asked.horizon, asked.group)
    cells = cells_of(file.blocks(names), names)
    single = series_job(file, cells, written, targets, stamped, asked.horizon, equal_rows=equal_rows)
    if isinstance(single, Draft) or asked.group == NONE or equal_rows:
        return single
    for name in [name for name, facts in columns.items() if name not in (*targets, *stamped) and _may_name_series(facts)]:
        cells = cells_of(file.blocks([*targets, *stamped, name]), [*targets, *stamped, name])
        shared = [time for time in stamped if len(set(cells[time])) <= SHARED * len(cells[time])]
        draft = series_job(file, cells, written, targets, shared, asked.horizon, name)
        if isinstance(draft, Draft):
            return draft
    return single


def _may_name_series(facts: ColumnFacts) -> bool:
    """Return whether a column of words or whole numbers names groups of many rows; a column of a part of a date does not."""
    named = facts.words or (facts.whole and facts.name.strip().lower() not in {*NAMES, *PARTS})
    return named and not facts.missing and 1 < len(facts.different) <= facts.rows // FEWEST
