"""Write a job for a file of data: look at the data, choose settings that train well, and say in comments why."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from partrain.config.overrides import toml_value
from partrain.data.images import SUFFIXES
from partrain.data.tables.files import TABLES, TableFile, is_missing, open_by_name
from partrain.errors import InputMissing
from partrain.templates.assemble import assemble
from partrain.templates.from_arrays import ARRAYS, arrays_job

MOST_WORDS = 30
"""Different words of a column that still become one number each."""
MOST_CLASSES = 20
"""Different whole numbers of a target that still count as classes."""
LOOKED_AT = 200_000
"""Rows of a table that are looked at."""


@dataclass
class ColumnFacts:
    """The facts about a column of a table."""

    name: str
    rows: int = 0
    missing: int = 0
    numbers: bool = True
    whole: bool = True
    different: set[str] = field(default_factory=set)

    def add(self, cells: Sequence[Any]) -> None:
        """Count cells."""
        self.rows += len(cells)
        present = [str(cell).strip() for cell in cells if not is_missing(cell)]
        self.missing += len(cells) - len(present)
        self.different.update(present)
        self.numbers = self.numbers and all(map(_is_number, present))
        self.whole = self.whole and all(text.lstrip("+-").isdigit() for text in present)

    def reason_to_drop(self) -> str:
        """Say why a network should not see the column; "" if it should."""
        if len(self.different) <= 1:
            return "the same value in each row"
        numbered = self.numbers and self.whole and self.name.lower() in ("id", "index", "row", "nr", "no", "number")
        every = len(self.different) >= self.rows - self.missing and self.rows > MOST_WORDS
        if every and (numbered or not self.numbers or (self.whole and self._counts())):
            return "another value in each row, like a name or a number of the row"
        if not self.numbers and len(self.different) > MOST_WORDS:
            return f"{len(self.different):,} different words"
        return ""

    def _counts(self) -> bool:
        """Tell if whole numbers run without gaps, as numbers of rows do."""
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
    columns = _look(file)
    answer = columns.pop(target)
    rows = answer.rows - answer.missing
    if rows < 10:
        raise InputMissing(f"{path}: {rows} rows with a value of `{target}` are too few to train on")
    if len(answer.different) < 2:
        raise InputMissing(f"{file.header_location}: column `{target}` has the same value in each row: nothing to predict")
    classes = not answer.numbers or (answer.whole and len(answer.different) <= MOST_CLASSES)
    if classes and len(answer.different) > max(MOST_CLASSES, rows // 4):
        raise InputMissing(
            f"{file.header_location}: column `{target}` has {len(answer.different):,} different words in {rows:,} rows: too many classes"
        )
    dropped = {name: reason for name, column in columns.items() if (reason := column.reason_to_drop())}
    kept = {name: column for name, column in columns.items() if name not in dropped}
    if not kept:
        raise InputMissing(f"{file.header_location}: no column is left to learn from beside `{target}`")
    words = [name for name, column in kept.items() if not column.numbers]
    holes = {name for name, column in kept.items() if column.missing}
    lines = [
        f"kind = {toml_value('parquet' if path.name.lower().endswith(('.parquet', '.pq')) else 'csv')}",
        f"path = {toml_value(shown)}",
        f"target = {toml_value(target)}",
        f'target_kind = "{"class" if classes else "number"}"   # {len(answer.different):,} different values',
    ]
    if dropped:
        lines += [f"# {name}: {reason}" for name, reason in dropped.items()] + [f"drop = {toml_value(list(dropped))}"]
    if words:
        lines.append(f"one_hot = {toml_value(words)}   # columns of words: a number per word")
    if answer.missing or holes & set(words):
        lines.append('missing = "drop"           # rows without a value are left out')
    elif holes:
        lines.append('missing = "mean"           # the mean of the column stands for a missing number')
    if not classes:
        lines.append("standardise_target = true    # losses are in standard deviations of the target")
    items = int(rows * 0.7)
    lines += ["test_share = 0.15", f"validation = {max(rows * 15 // 100, 1)}"]
    fewest = min(_counts_of(file, target).values()) if classes else 0
    if classes and fewest >= 20:
        lines.append("stratify = true              # held-out items have the classes in proportion")
    hidden = [32] if items < 500 else [64, 32] if items < 5000 else [128, 64]
    model = ['name = "mlp"', f"hidden = {toml_value(hidden)}"]
    what = f"{'Predict the class' if classes else 'Predict the number'} `{target}` from {len(kept)} columns of {path.name}: {rows:,} rows."
    return assemble(path, what, model, lines, items, "loss")


def _look(file: TableFile) -> dict[str, ColumnFacts]:
    columns = {name: ColumnFacts(name) for name in file.names}
    for block in islice(file.blocks(file.names), LOOKED_AT >> 14):
        for name, cells in block.columns.items():
            columns[name].add(cells)
    return columns


def _counts_of(file: TableFile, name: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for block in file.blocks([name]):
        for cell in block.columns[name]:
            if not is_missing(cell):
                counts[str(cell).strip()] = counts.get(str(cell).strip(), 0) + 1
    return counts


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
    return assemble(
        path, f"Tell {len(classes)} classes of images apart: {count:,} images.", model, dataset, int(count * 0.85), "loss"
    )


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
    return assemble(path, f"Continue the text {path.name} character by character.", model, dataset, items * 8 // 10, "loss")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text
