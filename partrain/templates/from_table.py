"""Jobs for tables, CSV and Parquet."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

from partrain.config.overrides import toml_value
from partrain.data.python.frames import NAME
from partrain.data.tables.dialect import Dialect
from partrain.data.tables.files import PARQUET, FrameTable, TableFile, cells_of, open_by_name
from partrain.data.tables.time_stamps import parse_stamp
from partrain.errors import InputMissing
from partrain.number_format import counted
from partrain.preprocess.cells import are_classes, ordered_classes
from partrain.templates.assemble import SHOWN, Draft, Recipe, assemble, listed
from partrain.templates.column_facts import ColumnFacts
from partrain.templates.from_series import NAMES, series_job
from partrain.templates.from_texts import documents_job
from partrain.templates.recognise import date_forms, lines_of, number_dialect, odd_texts, text_dialect

NOTED_HOLES = 0.01
"""Share of missing numbers from which a column gets an indicator of them."""
USUAL_NULLS = ("NA", "N/A", "nan", "null", "?")
"""Texts of missing values where a job names none."""
FEWEST_MOMENTS = 10
"""Different time stamps from which a table is split by time."""
FEW = 0.1
"""Share of the rows below which one of two classes is rare: the accuracy then tells little."""
OLDER = 0.7
"""Share of the rows that are trained on."""
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
    Size(1000, 64, 0.3, Recipe(32, 0.1, 100, 30)),
    Size(5000, 64, 0.2, Recipe(64, 0.1, 60, 25)),
    Size(math.inf, 128, 0.1, Recipe(128, 0.1, 50, 20)),
)
"""Settings by size: more passes, a smaller network and more dropout where there are few items."""


class Asked(NamedTuple):
    """Settings that the user asks for."""

    targets: tuple[str, ...] = ()
    kind: Literal["table", "series", "text"] | None = None
    time: str | None = None
    """Column of time stamps."""
    dialect: Mapping[str, Any] = {}
    """Keys of `Dialect`, but `null_values`."""
    null_values: tuple[str, ...] | None = None


def frame_job(frame: Any, asked: Asked) -> Draft:
    """Write a job for a DataFrame of polars; see `table_job`."""
    return _job(lambda dialect: FrameTable(frame, NAME, null_values=dialect.null_values), Dialect(), [], NAME, asked, typed=True)


def table_job(path: Path, shown: str, asked: Asked) -> Draft:
    """Write a job for a table; `shown` is its path in the job. Raises InputMissing if none can be trained on it."""
    typed = path.name.lower().endswith(PARQUET)
    dialect, notes = (Dialect(), []) if typed else text_dialect(path, asked.dialect)
    return _job(lambda dialect: open_by_name(path, dialect), dialect, notes, shown, asked, typed=typed)


def _job(
    opened: Callable[[Dialect], TableFile], dialect: Dialect, notes: list[str], shown: str, asked: Asked, *, typed: bool
) -> Draft:
    """Write a job for a table that is `opened` by a dialect; `typed`: its cells have types."""
    dialect = replace(dialect, null_values=asked.null_values)
    file = opened(dialect)
    if not asked.targets:
        raise InputMissing(f"{file.header_location}: name the column to predict: --target takes one of {', '.join(file.names)}")
    targets = list(dict.fromkeys(name for words in asked.targets for name in _names_in(words, file)))
    for name in targets:
        file.require(name, "--target")
    if asked.time is not None:
        file.require(asked.time, "--time")
        if asked.time in targets:
            raise InputMissing(f"{file.header_location}: --time: column `{asked.time}` is the target")
    columns = {name: ColumnFacts(name) for name in file.names}
    for block in file.blocks(file.names):
        answered = [not any(map(file.is_missing, cells)) for cells in zip(*map(block.columns.__getitem__, targets), strict=True)]
        used = block.kept(answered)  # a row without a target is left out
        for name, column in columns.items():
            column.add((block if name in targets else used).columns[name], file.is_missing)
    if not typed:
        dialect, sentences = number_dialect(dialect, {name: column.different for name, column in columns.items()}, asked.dialect)
        dialect, more = date_forms(dialect, {name: column.different for name, column in columns.items()})
        notes += [*sentences, *more]
    if rewrite := dialect.rewrite:
        for column in columns.values():
            column.rewrite(rewrite)
    odd = {name: texts for name, column in columns.items() if (texts := odd_texts(column.different))}
    if odd:
        notes += _odd_notes(file, columns, odd)
        more = sorted({text for texts in odd.values() for text in texts})
        dialect = replace(dialect, null_values=(*(USUAL_NULLS if asked.null_values is None else asked.null_values), *more))
        for column in columns.values():
            column.discard({text.lower() for text in more})
    file = opened(dialect)
    written = [f"path = {toml_value(shown)}", *(f"{key} = {toml_value(value)}" for key, value in lines_of(dialect))]
    if asked.kind in (None, "text") and (draft := _documents(file, columns, written, targets, asked)):
        return Draft(draft.text, [*notes, *draft.notes])
    if asked.kind != "table" and (draft := _series(file, columns, written, targets, asked)):
        return Draft(draft.text, [*notes, *draft.notes])
    if asked.kind == "series":
        what = f"`{targets[0]}` is no column of numbers, or no other column has time stamps in order and in equal steps"
        raise InputMissing(f"{file.header_location}: no series: {what}")
    source = ['kind = "parquet"' if typed else 'kind = "csv"', *written]
    text, sentences = _tabular(file, columns, source, targets, asked.time)
    return Draft(text, [*notes, *sentences])


def _names_in(words: str, file: TableFile) -> list[str]:
    """Return the columns that a value of `--target` names: one, or several with commas between them."""
    return [words] if words in file.places else [name.strip() for name in words.split(",")]


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


def _documents(
    file: TableFile, columns: Mapping[str, ColumnFacts], written: Sequence[str], targets: Sequence[str], asked: Asked
) -> Draft | None:
    """Write a job that classifies texts, if the user wants it, or if a column of texts is all that there is to learn from."""
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
    frequent = {name: count for name, count in answer.different.items() if count >= RARE}
    unused = [name for name in others if name != text]
    notes = [
        _answer_note(answers=[answer], classes=True, labels=False),
        f"`{text}` holds texts: their words are the input (--kind table for other columns)",
    ]
    if unused:
        notes.append(f"{counted(len(unused), 'column')} not used: {listed(f'`{name}`' for name in unused)} (--kind table)")
    if lost := [name for name in answer.different if name not in frequent]:
        notes.append(
            f"{_classes(len(lost))} of fewer than {RARE} rows left out: {listed(f'`{name[:40]}`' for name in lost)} (`classes`)"
        )
    lines = [*written, f"text = {toml_value(text)}", f"target = {toml_value(answer.name)}"]
    return Draft(documents_job(file.path, lines, frequent, whole=not lost), notes)


def _series(
    file: TableFile, columns: Mapping[str, ColumnFacts], written: Sequence[str], targets: Sequence[str], asked: Asked
) -> Draft | None:
    """Write a job that forecasts the targets; None if the table is no series."""
    stamped = [name for name, facts in columns.items() if _has_stamps(facts, asked.time) and name not in targets]
    if not stamped or not all(columns[name].numbers for name in targets):
        return None
    names = [*targets, *stamped]
    return series_job(file, cells_of(file.blocks(names), names), written, targets, asked.time)


def _time_of(
    file: TableFile, columns: Mapping[str, ColumnFacts], targets: Sequence[str], asked: str | None
) -> tuple[str, str] | None:
    """Return the column that the rows are in the order of, in words, too; None if they are in none.

    The rows of each unit of a panel, as another column names them, may be in order, too.
    """
    stamped = [name for name, facts in columns.items() if _has_stamps(facts, asked) and name not in targets and not facts.missing]
    units = [name for name, facts in columns.items() if name not in targets and 1 < len(facts.different) <= facts.rows // 3]
    names = list(dict.fromkeys([*stamped, *units])) if stamped else []
    cells = cells_of(file.blocks(names), names)
    for name in stamped:
        if name == asked:
            return name, f"`{name}` is the time of a row (--time)"
        moments = [moment if isinstance(moment, float) else moment.isoformat() for moment in map(parse_stamp, cells[name])]
        if len(columns[name].different) < FEWEST_MOMENTS or len(set(map(type, moments))) > 1:
            continue
        for ordered, order in (moments, ""), (moments[::-1], ", the newest first"):
            falls = [row for row in range(1, len(ordered)) if ordered[row] < ordered[row - 1]]  # type: ignore[operator]
            if not falls:
                return name, f"the rows are in the order of `{name}`{order}"
            for unit in units:
                kinds = cells[unit] if not order else cells[unit][::-1]
                if (
                    unit != name
                    and len(falls) < len(columns[unit].different)
                    and all(kinds[row] != kinds[row - 1] for row in falls)
                ):
                    return name, f"the rows of each `{unit}` are in the order of `{name}`{order}"
    if asked is not None:
        raise InputMissing(f"{file.header_location}: --time: column `{asked}` has cells that are no time stamps")
    return None


def _later_classes(file: TableFile, target: str, time: str, frequent: Collection[str]) -> set[str]:
    """Return the classes that only newer rows have, of those that are learned: nothing could be learned of them."""
    cells = cells_of(file.blocks([time, target]), [time, target])
    pairs = [
        (parse_stamp(stamp), str(cell).strip())
        for stamp, cell in zip(cells[time], cells[target], strict=True)
        if not file.is_missing(cell)
    ]
    texts = [text for _, text in sorted(pairs, key=lambda pair: pair[0])]
    learned = set(frequent)
    while True:  # fewer rows are left, of which others are the older ones
        texts = [text for text in texts if text in learned]
        if (older := set(texts[: int(len(texts) * OLDER)])) == learned:
            return set(frequent) - learned
        learned = older


def _has_stamps(column: ColumnFacts, asked: str | None) -> bool:
    """Return whether a column may hold time stamps; numbers are such by the name of the column only, or where the user asks for them."""
    if asked is not None and column.name != asked:
        return False
    if column.numbers:
        return column.name == asked or column.name.strip().lower() in NAMES
    try:
        return bool(list(map(parse_stamp, column.different)))
    except (TypeError, ValueError):
        return False


def _tabular(
    file: TableFile, columns: Mapping[str, ColumnFacts], source: Sequence[str], targets: Sequence[str], asked: str | None
) -> tuple[str, list[str]]:
    """Write a job for a table whose rows are items; also return notes. `asked`: the column of time stamps, if the user names it."""
    path, answers = file.path, [columns[name] for name in targets]
    answer, target = answers[0], targets[0]
    rows = min(column.rows - column.missing for column in answers)
    if rows < 10:
        raise InputMissing(f"{path}: {counted(rows, 'row')} with a value of `{target}`: too few to train on")
    for column in answers:
        if len(column.different) < 2:
            unused = f"; {_texts(column.holes)} count as no value (--missing TEXT names other texts)" if column.missing else ""
            raise InputMissing(
                f"{file.header_location}: column `{column.name}` has the same value in each row: nothing to predict{unused}"
            )
    rarest = min(answer.different.values())
    classes = len(targets) == 1 and (
        not answer.numbers
        or answer.truths
        or (answer.whole and are_classes(len(answer.different), rarest))
        or (len(answer.different) == 2 and all(float(text).is_integer() for text in answer.different))
    )
    labels = len(targets) > 1 and all(column.labels for column in answers)
    if len(targets) > 1 and (words := [column.name for column in answers if not column.numbers]):
        what = f"several targets are numbers, or labels 0 and 1, and `{words[0]}` has words: write a job for each column of words"
        raise InputMissing(f"{file.header_location}: {what}")
    frequent = {text: count for text, count in answer.different.items() if count >= RARE} if classes else {}
    time = _time_of(file, columns, targets, asked)
    late = _later_classes(file, target, time[0], frequent) if classes and time else set()
    frequent = {text: count for text, count in frequent.items() if text not in late}
    if classes and len(frequent) < 2:
        raise InputMissing(
            f"{file.header_location}: column `{target}` has {len(answer.different):,} different words in {rows:,} rows: too many classes"
        )
    inputs = {name: column for name, column in columns.items() if name not in targets}
    dropped = {name: reason for name, column in inputs.items() if (reason := column.reason_to_drop())}
    kept = {name: column for name, column in inputs.items() if name not in dropped}
    if not kept:
        raise InputMissing(f"{file.header_location}: no column is left to learn from beside `{target}`")
    words = [name for name, column in kept.items() if column.words]
    dates = [name for name, column in kept.items() if column.dates]
    holes = [name for name, column in kept.items() if column.missing]
    noted = [name for name in holes if kept[name].numbers and kept[name].missing >= NOTED_HOLES * answer.rows]
    lines = [*source, f"target = {toml_value(target if len(targets) == 1 else list(targets))}"]
    if len(targets) == 1:
        lines.append(f'target_kind = "{"class" if classes else "number"}"   # {len(answer.different):,} different values')
    notes = [_answer_note(answers, classes=classes, labels=labels)]
    rare = [text for text, count in answer.different.items() if count < RARE] if classes else []
    for some, why in (rare, f"of fewer than {RARE} rows"), (sorted(late), "that no row of the older part has"):
        if some:
            lost = sum(answer.different[text] for text in some)
            what = f"{_classes(len(some))} {why}, {counted(lost, 'row')} in all, left out: {listed(f'`{text[:40]}`' for text in some)}"
            notes.append(f"{what} (`classes` names those that are learned)")
            rows -= lost
    if rare or late:
        lines.append(f"classes = {toml_value(list(ordered_classes(frequent)))}   # the others are too rare, or too new")
        rarest = min(frequent.values())
    if dropped:
        lines += [f"# {name}: {reason}" for name, reason in dropped.items()] + [f"drop = {toml_value(list(dropped))}"]
        notes += _some(f"column `{name}` is left out: {reason} (`drop`)" for name, reason in dropped.items())
    if words:
        lines.append(f"categories = {toml_value(words)}   # columns of words: the network learns an embedding of each word")
    if dates:
        lines.append(f"dates = {toml_value(dates)}   # each becomes the day, and its place in year, week and day")
    if lacking := [column.name for column in answers if column.missing]:
        drops = ", ".join(f'{toml_value(name)} = "drop"' for name in lacking)
        lines.append(f'missing = {{{drops}, "*" = "median"}}   # rows without a target are left out')
        notes += (
            f"{counted(columns[name].missing, 'row')} without a value of `{name}` left out: {_texts(columns[name].holes)} (`missing`)"
            for name in lacking
        )
    else:
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
        standardised = "false" if labels else "true    # losses are in standard deviations of the target, answers in its units"
        lines.append(f"standardise_target = {standardised}")
    items = int(rows * OLDER)
    lines += ["test_share = 0.15", f"validation = {max(rows * 15 // 100, 1)}"]
    if time:
        lines.append(f"time = {toml_value(time[0])}   # the newest rows are tested on, those before them held out")
        notes.append(f"{time[1]}: the newest 15 % are the test rows, the 15 % before them are held out (`time`)")
    elif classes and rarest >= 20:
        lines.append("stratify = true              # held-out items have the classes in proportion")
    size = next(size for size in SIZES if items < size.items)
    beyond = [
        "periodic = 0",
        "linear = true                # newer rows may lie beyond the older ones: a linear path follows trends",
    ]
    model = [
        'name = "tabular"             # embeddings of words and of numbers, residual blocks',
        f"width = {size.width}",
        f"hidden = {2 * size.width}",
        f"dropout = {size.dropout}",
        *(beyond if time else []),
    ]
    kind = "class" if classes else "label" if labels else "number"
    names = listed(f"`{name}`" for name in targets)
    what = f"Predict the {kind}{'s' * (len(targets) > 1)} {names} from {len(kept)} columns of {path.name}: {rows:,} rows."
    task, more = _task(answer, frequent, labels=labels)
    return assemble(path, what, model, lines, items, size.recipe, task), notes + more


def _task(answer: ColumnFacts, frequent: Mapping[str, int], *, labels: bool) -> tuple[list[str], list[str]]:
    """Return the lines of `[task]`, and notes. `frequent`: rows of each class, empty where targets are no classes."""
    if labels:
        return ['kind = "multi-label"          # each target is 0 or 1, in any combination', 'metrics = ["f1"]'], []
    if not frequent:
        return [
            'metrics = ["r2", "mae"]      # the share of the variance that is explained; the mean error in units of the target'
        ], []
    shares = sorted(count / sum(frequent.values()) for count in frequent.values())
    if len(shares) > 2 or shares[0] >= FEW:
        return [], []
    metrics = ["auroc", "average_precision", "f1"] if find_spec("torchmetrics") else ["f1"]
    more = "" if find_spec("torchmetrics") else "; pip install 'partrain[metrics]' for AUROC"
    note = f"the rarest class has {shares[0]:.1%} of the rows: classes are weighted, and judged by {', '.join(metrics)} (`class_weights`){more}"
    lines = [
        'class_weights = "balanced"   # rare classes count as much as frequent ones',
        f"metrics = {toml_value(metrics)}   # means over the classes: the accuracy tells little of rare ones",
    ]
    return lines, [note]


def _answer_note(answers: Sequence[ColumnFacts], *, classes: bool, labels: bool) -> str:
    answer = answers[0]
    if not classes:
        names = listed(f"`{column.name}`" for column in answers)
        if len(answers) == 1:
            return f"target {names}: a number (`target_kind`)"
        return f"targets {names}: {'labels, each 0 or 1' if labels else 'numbers'} (`target`)"
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
