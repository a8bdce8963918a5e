"""Write a job for a file of data: look at the data, choose settings that train well, and say in comments why."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from partrain.config.overrides import toml_value
from partrain.data.images import SUFFIXES
from partrain.data.tables.files import TABLES, open_by_name
from partrain.errors import InputMissing
from partrain.preprocess.cells import (
    FEW_ROWS,
    MOST_CLASSES,
    are_classes,
    is_missing,
    is_number,
    numbers_rows,
    parse_bool,
    parse_date,
)
from partrain.templates.assemble import Recipe, assemble
from partrain.templates.from_arrays import ARRAYS, arrays_job
from partrain.templates.from_series import series_job

NOTED_HOLES = 0.01
"""Share of missing numbers from which a column gets an indicator of them."""
LOOKED_AT = 200_000
"""Rows of a table that are looked at."""


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


class ColumnFacts:
    """The facts about a column of a table."""

    def __init__(self, name: str, cells: Sequence[Any]) -> None:
        self.name, self.rows = name, len(cells)
        self.different = Counter(str(cell).strip() for cell in cells if not is_missing(cell))
        """Rows of each value."""
        self.missing = self.rows - self.different.total()
        self.numbers = all(is_number(text) or parse_bool(text) is not None for text in self.different)
        self.whole = all(text.lstrip("+-").isdigit() for text in self.different)
        self.dates = not self.numbers and all(map(parse_date, self.different))

    @property
    def truths(self) -> bool:
        """True if all values are `true` or `false`."""
        return {text.lower() for text in self.different} <= {"true", "false"}

    @property
    def words(self) -> bool:
        return not self.numbers and not self.dates

    def reason_to_drop(self) -> str:
        """Say why a network should not see the column; "" if it should."""
        if len(self.different) <= 1:
            return "the same value in each row"
        present = self.rows - self.missing
        numbered = self.whole and numbers_rows(self.name)
        if len(self.different) >= present > FEW_ROWS and (numbered or self.words or (self.whole and self._counts())):
            return "another value in each row, like a name or a number of the row"
        if self.words and len(self.different) > max(present // 2, FEW_ROWS):
            return f"{len(self.different):,} different words, most of them in a single row"
        return ""

    def _counts(self) -> bool:
        """Return whether whole numbers run without gaps, as numbers of rows do."""
        numbers = [int(text) for text in self.different]
        return max(numbers) - min(numbers) == len(numbers) - 1


def job_for(path: Path, target: str | None, folder: Path) -> str:
    """Write a job that trains on a file or folder. Paths in the job start from `folder`.

    Raises InputMissing if the data are of no known kind, or if the target is missing or no column.
    """
    shown = os.path.relpath(path, folder)
    if path.is_dir():
        return _images(path, shown)
    name = path.name.lower()
    if name.endswith(TABLES):
        return _table(path, shown, target)
    if name.endswith(".txt"):
        return _text(path, shown)
    if name.endswith(ARRAYS):
        return arrays_job(path, shown, target)
    raise InputMissing(
        f"{path}: expected a table ({', '.join(TABLES)}), arrays ({', '.join(ARRAYS)}), a text (.txt) or a folder of images"
    )


def _table(path: Path, shown: str, target: str | None) -> str:
    file = open_by_name(path)
    if target is None:
        raise InputMissing(f"{file.header_location}: name the column to predict: --target takes one of {', '.join(file.names)}")
    file.require(target, "--target")
    cells = file.head(LOOKED_AT)
    if text := series_job(file, cells, shown, target):
        return text
    columns = {name: ColumnFacts(name, column) for name, column in cells.items()}
    answer = columns.pop(target)
    rows = answer.rows - answer.missing
    if rows < 10:
        raise InputMissing(f"{path}: {rows} rows with a value of `{target}` are too few to train on")
    if len(answer.different) < 2:
        raise InputMissing(f"{file.header_location}: column `{target}` has the same value in each row: nothing to predict")
    rarest = min(answer.different.values())
    classes = not answer.numbers or answer.truths or (answer.whole and are_classes(len(answer.different), rarest))
    if classes and len(answer.different) > max(MOST_CLASSES, rows // 4):
        raise InputMissing(
            f"{file.header_location}: column `{target}` has {len(answer.different):,} different words in {rows:,} rows: too many classes"
        )
    dropped = {name: reason for name, column in columns.items() if (reason := column.reason_to_drop())}
    kept = {name: column for name, column in columns.items() if name not in dropped}
    if not kept:
        raise InputMissing(f"{file.header_location}: no column is left to learn from beside `{target}`")
    words = [name for name, column in kept.items() if column.words]
    dates = [name for name, column in kept.items() if column.dates]
    holes = [name for name, column in kept.items() if column.missing]
    noted = [name for name in holes if kept[name].numbers and kept[name].missing >= NOTED_HOLES * answer.rows]
    lines = [
        f"kind = {toml_value('parquet' if path.name.lower().endswith(('.parquet', '.pq')) else 'csv')}",
        f"path = {toml_value(shown)}",
        f"target = {toml_value(target)}",
        f'target_kind = "{"class" if classes else "number"}"   # {len(answer.different):,} different values',
    ]
    if dropped:
        lines += [f"# {name}: {reason}" for name, reason in dropped.items()] + [f"drop = {toml_value(list(dropped))}"]
    if words:
        lines.append(f"categories = {toml_value(words)}   # columns of words: the network learns an embedding of each word")
    if dates:
        lines.append(f"dates = {toml_value(dates)}   # each becomes the day, and its place in year, week and day")
    if answer.missing:
        rest = ', "*" = "median"' if holes else ""
        lines.append(f'missing = {{{toml_value(target)} = "drop"{rest}}}   # rows without a target are left out')
    elif holes:
        lines.append(
            'missing = "median"         # the median stands for a missing number, a missing word is a category of its own'
        )
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
    return assemble(path, what, model, lines, items, size.recipe)


def _images(path: Path, shown: str) -> str:
    root = path / "train" if (path / "train").is_dir() else path
    classes = {entry.name: _pictures(entry) for entry in sorted(root.iterdir()) if entry.is_dir() and _pictures(entry)}
    if len(classes) < 2:
        raise InputMissing(f"{root}: expected a folder of images for each of at least two classes, found {len(classes)}")
    count = sum(map(len, classes.values()))
    height, width, channels = _form(next(iter(classes.values()))[0])
    dataset = [
        'kind = "images"',
        f"path = {toml_value(shown)}",
        f"size = [{height}, {width}]              # height and width to which all images are resized",
        f"channels = {channels}",
        f"validation = {max(count * 15 // 100, 1)}",
    ]
    stages = [16, 32, 64] if min(height, width) >= 24 else [16, 32]
    model = ['name = "cnn"', f"channels = {toml_value(stages)}", "batch_norm = true"]
    return assemble(path, f"Tell {len(classes)} classes of images apart: {count:,} images.", model, dataset, int(count * 0.85))


def _pictures(folder: Path) -> list[Path]:
    return [file for file in sorted(folder.iterdir()) if file.suffix.lower() in SUFFIXES]


def _form(file: Path) -> tuple[int, int, int]:
    """Return height, width, channels of the first image, at most 64 pixels."""
    try:
        from PIL import Image
    except ImportError:
        raise InputMissing("images need Pillow, which is not installed: pip install 'partrain[images]'") from None
    try:
        with Image.open(file) as image:
            width, height, grey = *image.size, image.mode in ("L", "1", "I;16")
    except OSError as error:
        raise InputMissing(f"{file}: cannot be read as an image: {error}") from None
    scale = min(1.0, 64 / max(width, height))
    return max(int(height * scale), 8), max(int(width * scale), 8), 1 if grey else 3


def _text(path: Path, shown: str) -> str:
    size = path.stat().st_size
    length = 64 if size >= 20_000 else 16
    items = size // length
    if items < 20:
        raise InputMissing(f"{path}: {size:,} bytes are too few to train on")
    dataset = [
        'kind = "text"',
        f"path = {toml_value(shown)}",
        f"length = {length}                  # characters that the network sees at most",
        f"test_items = {items // 10}",
        f"validation = {items // 10}               # windows from the end of the text",
    ]
    model = ['name = "gru"', "hidden = 128"]
    return assemble(path, f"Continue the text {path.name} character by character.", model, dataset, items * 8 // 10)
