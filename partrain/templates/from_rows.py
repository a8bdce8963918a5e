"""Jobs for tables whose rows are items."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from partrain.config.overrides import toml_value
from partrain.data.forms import PICTURES
from partrain.data.tables.files import TableFile
from partrain.errors import InputMissing
from partrain.number_format import counted
from partrain.templates.assemble import SHOWN, Draft, Recipe, assemble, listed
from partrain.templates.codes import count_rows, find_codes
from partrain.templates.column_facts import ColumnFacts
from partrain.templates.first_rows import FirstRows
from partrain.templates.order_in_time import OLDER, later_classes, time_of
from partrain.templates.targets import Targets, holes_in, targets_of
from partrain.templates.units import NONE, unit_of

NOTED_HOLES = 0.01
"""Share of missing numbers from which a column gets an indicator for them."""


IMAGE_NAMES = "names of image files, which are not read: images come in a folder for each class (docs/images.md)"
"""The reason to drop a column of paths of images."""
TRIED_NAMES = 20
"""Number of paths of images that must exist."""
LONGEST_NAME = 255
"""Maximum number of characters of such a path: systems refuse longer names."""
TAIL, HEAVY = 0.01, 0.4
"""Share of the targets that are farthest from their mean, and share of the variance in them from which a target is skewed."""
MEMBERS = ("8 may answer better, and train several times as long", "better answers; 1 trains up to four times as fast")


@dataclass(frozen=True)
class Size:
    """Settings for tables of fewer training items than `items`, chosen on tables that no benchmark reports (`benchmarks/NOTES.md`)."""

    items: float
    width: int
    dropout: float
    members: int
    recipe: Recipe


SIZES = (
    Size(1_000, 64, 0.3, 8, Recipe(32, 0.1, 100, 30)),
    Size(5_000, 64, 0.2, 8, Recipe(64, 0.1, 60, 25)),
    Size(20_000, 128, 0.1, 8, Recipe(128, 0.1, 50, 20)),
    Size(100_000, 128, 0.1, 1, Recipe(256, 0.1, 25, 10, iterations=25)),
    Size(500_000, 128, 0.1, 1, Recipe(512, 0.1, 20, 8, iterations=25)),
    Size(math.inf, 128, 0.1, 1, Recipe(1024, 0.1, 10, 5, iterations=25)),
)
"""Settings by size: with few items, more passes, a smaller network and more dropout; with many items, one member, larger batches
and fewer passes, so that a run takes minutes (`benchmarks/NOTES.md`)."""


def rows_job(
    file: TableFile,
    columns: Mapping[str, ColumnFacts],
    source: Sequence[str],
    names: Sequence[str],
    asked: str | None,
    group: str | None,
) -> Draft:
    """Write a job for a table whose rows are items. `names`: the targets; `asked`: the column of time stamps, if the user names
    it; `group`: likewise the column of units.
    """
    targets = targets_of(file, [columns[name] for name in names])
    time, timed = (list[str](), list[str]()) if group not in (None, NONE) else time_of(file, columns, names, asked)
    if time and targets.learned:
        targets = replace(targets, late=later_classes(file, names[0], time, targets.learned))
    if targets.kind == "class" and len(targets.learned) < 2:
        raise InputMissing(f"{file.header_location}: {targets.nothing_to_learn}")
    first = FirstRows(file, columns, names)
    unit, more = (None, []) if time else unit_of(file, columns, first, group)
    lines, notes = [*source, *targets.dataset_lines()], [*targets.notes(), *more]
    notes += find_codes(columns, first, [unit, *time], by_target=unit is None)
    shown_columns = {name: facts for name, facts in columns.items() if name != unit}
    inputs, more = _inputs(file, shown_columns, targets, lines, {} if time else count_rows(columns, first))
    notes += more
    if inputs > (trained := int(targets.rows * OLDER)):
        few = f"{inputs:,} columns to learn from and {trained:,} training rows"
        notes.append(f"{few}: a network rarely learns from so few; name the columns that matter (`inputs`)")
    if targets.kind != "class":
        standardised = "true    # losses are in standard deviations of the target, answers in its units"
        lines.append(f"standardise_target = {'false' if targets.kind == 'label' else standardised}")
    share = tail_share(first.values(names[0])) if targets.kind == "number" and len(names) == 1 else 0.0
    if share >= HEAVY:
        far = f"the {TAIL:.0%} of the targets that are farthest from the mean have {share:.0%} of the variance"
        lines.append(f'# target_transform = "log"   # {far}')
        notes.append(
            f'{far}: loss = "huber", which they do not decide (`loss`); target_transform = "log" often lowers the mean error, too'
        )
    lines += ["test_share = 0.15", f"validation = {max(targets.rows * 15 // 100, 1)}"]
    if time:
        lines.append(
            f"time = {toml_value(time if len(time) > 1 else time[0])}   # the newest rows are tested on, those before them held out"
        )
    notes += timed if not unit else []
    if unit:
        lines.append(
            f"group = {toml_value(unit)}   # rows of one are in one part: the test tells of others than those trained on"
        )
    if not time and targets.kind == "class":
        lines.append("stratify = true              # held-out items have the classes in proportion")
    items = int(targets.rows * OLDER)
    size = next(size for size in SIZES if items < size.items)
    model = [
        'name = "tabular"             # embeddings of words and of numbers, residual blocks',
        f"width = {size.width}",
        f"hidden = {2 * size.width}",
        f"dropout = {size.dropout}",
        f"members = {size.members}                  # of an ensemble that shares most layers: {MEMBERS[size.members > 1]}",
    ]
    if time:
        beyond = "newer rows may lie beyond the older ones: a linear path follows trends"
        model += ["periodic = 0", f"linear = true                # {beyond}"]
    shown = listed(f"`{name}`" for name in names)
    what = f"Predict the {targets.kind}{'s' * (len(names) > 1)} {shown} from {inputs} columns of {file.path.name}: {targets.rows:,} rows."
    task, more = targets.task(skewed=share >= HEAVY)
    return Draft(assemble(file.path, what, model, lines, items, size.recipe, task, targets.decides), [*notes, *more])


def tail_share(targets: Sequence[float]) -> float:
    """Return the share of the variance in the targets that are farthest from the mean."""
    mean = sum(targets) / len(targets)
    squares = sorted(((target - mean) ** 2 for target in targets), reverse=True)
    return sum(squares[: max(int(len(squares) * TAIL), 1)]) / (sum(squares) or 1.0)


def _inputs(
    file: TableFile, columns: Mapping[str, ColumnFacts], targets: Targets, lines: list[str], counting: Mapping[str, str]
) -> tuple[int, list[str]]:
    """Add the lines of `[dataset]` on inputs and missing values. Return the number of columns to learn from, and notes.

    `counting`: reasons to drop columns, unless they are the only ones.
    """
    others = {name: column for name, column in columns.items() if column not in targets.columns}
    reasons = {name: column.reason_to_drop() or file.reason_to_drop(name) for name, column in others.items()}
    reasons |= {name: IMAGE_NAMES for name, reason in reasons.items() if reason and _names_images(file, others[name])}
    if any(not reason and name not in counting for name, reason in reasons.items()):
        reasons = {name: reason or counting.get(name, "") for name, reason in reasons.items()}
    dropped = {name: reason for name, reason in reasons.items() if reason}
    kept = {name: column for name, column in others.items() if name not in dropped}
    if not kept:
        why = "".join(f"; `{name}`: {reason}" for name, reason in islice(dropped.items(), SHOWN))
        raise InputMissing(f"{file.header_location}: no column is left to learn from except `{targets.first.name}`{why}")
    notes = _some(f"column `{name}` is left out: {reason} (`drop`)" for name, reason in dropped.items())
    if dropped:
        lines += [f"# {name}: {reason}" for name, reason in dropped.items()] + [f"drop = {toml_value(list(dropped))}"]
    if texts := [name for name, column in kept.items() if column.vocabulary]:
        lines.append(f"texts = {toml_value(texts)}   # columns of sentences: which of the most frequent words each has")
        notes += (
            f"column `{name}` holds texts: an input for each of {kept[name].vocabulary} frequent words (`texts`); --kind text learns from texts alone"
            for name in texts
        )
    if words := [name for name, column in kept.items() if column.words and name not in texts]:
        lines.append(f"categories = {toml_value(words)}   # columns of words: the network learns an embedding of each word")
    if logs := [name for name, column in kept.items() if column.far_reaching and not column.dates]:
        lines.append(f"logs = {toml_value(logs)}   # skewed numbers: their logarithm is another input")
    if dates := [name for name, column in kept.items() if column.dates]:
        lines.append(f"dates = {toml_value(dates)}   # each becomes the day, and its place in year, week and day")
    if lacking := [column for column in targets.columns if column.missing]:
        drops = ", ".join(f'{toml_value(column.name)} = "drop"' for column in lacking)
        lines.append(f'missing = {{{drops}, "*" = "median"}}   # rows without a target are left out')
        notes += (
            f"{counted(column.missing, 'row')} without a value of `{column.name}` left out: {holes_in(column)} (`missing`)"
            for column in lacking
        )
    else:
        what = "the median stands for a missing number, a missing word is a category of its own"
        lines.append(f'missing = "median"         # {what}')
    holes = [column for column in kept.values() if column.missing]
    blank = [column for column in holes if column.holes.keys() - column.odd]
    if len(blank) > SHOWN:
        lines.append(f"# cells without a value: {', '.join(f'{column.name} ({column.missing:,})' for column in blank)}")
    notes += _some(
        f"column `{column.name}`: {column.missing:,} of {column.rows:,} cells without a value: {holes_in(column)}; "
        f"{'a category of its own' if column.words else 'the median'} stands for it (`missing`)"
        for column in blank
    )
    if noted := [column.name for column in holes if column.numbers and column.missing >= NOTED_HOLES * column.rows]:
        lines.append(f"missing_indicator = {toml_value(noted)}   # another number says where a value was missing")
    return len(kept), notes


def _names_images(file: TableFile, column: ColumnFacts) -> bool:
    """Return whether the cells are paths of images, from the table's folder."""
    texts = list(column.different)
    if not texts or not all(text.lower().endswith(PICTURES) and len(text) <= LONGEST_NAME for text in texts):
        return False
    return all((file.path.parent / text).is_file() for text in texts[:TRIED_NAMES])


def _some(notes: Iterable[str]) -> list[str]:
    """Shorten notes of one kind: the first ones, and the number of the others."""
    every = list(notes)
    rest = len(every) - SHOWN
    return [*every[:SHOWN], f"and {counted(rest, 'column')} more like this; the job file names all"] if rest > 0 else every
