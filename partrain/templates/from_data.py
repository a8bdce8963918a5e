"""Write a job for a file of data: look at the data, choose settings that train well, and say in comments why."""

from __future__ import annotations

import os
from pathlib import Path

from partrain.config.overrides import toml_value
from partrain.data.arrays.files import ARRAYS
from partrain.data.folders import folders_in, split_in
from partrain.data.images import images_below
from partrain.data.tables.formats import SUFFIXES as TABLES
from partrain.data.tables.formats import format_of
from partrain.errors import InputMissing
from partrain.templates.assemble import Draft, assemble
from partrain.templates.from_arrays import arrays_job
from partrain.templates.from_table import Asked, table_job
from partrain.templates.from_texts import folder_job

FEWEST = 7
"""Images of a class of which a share of 15 % is one: held out at random, a class of so few may have none there."""


def job_for(path: Path, asked: Asked, folder: Path) -> Draft:
    """Write a job that trains on a file or folder. Paths in the job start from `folder`.

    Raises InputMissing if the data are of no known kind, or if the target is missing or no column.
    """
    shown, name = os.path.relpath(path, folder), path.name.lower()
    if form := format_of(path):
        if asked.dialect and form.typed:
            raise InputMissing(f"{path}: a {form.name} file has its own types: --separator and the like concern CSV files")
        return table_job(path, shown, asked)
    kinds = ("text", "images") if path.is_dir() else ()
    if (
        asked.kind not in (None, *kinds)
        or asked.time
        or asked.group
        or asked.horizon
        or asked.dialect
        or asked.null_values is not None
    ):
        raise InputMissing(f"{path}: is no table ({', '.join(TABLES)}), and --kind, --separator and the like concern tables")
    if path.is_dir():
        texts = None if asked.kind == "images" else folder_job(path, shown)
        if asked.kind == "text" and not texts:
            raise InputMissing(f"{path}: expected a folder of .txt files for each of at least two classes")
        return texts or Draft(_images(path, shown))
    if name.endswith(".txt"):
        return Draft(_text(path, shown))
    if path.suffix.lower() in ARRAYS:
        return arrays_job(path, shown, asked.targets[0] if asked.targets else None, folder)
    raise InputMissing(
        f"{path}: expected a table ({', '.join(TABLES)}), arrays ({', '.join(ARRAYS)}), a text (.txt) or a folder of images"
    )


def _images(path: Path, shown: str) -> str:
    root = split_in(path, "train") or path
    held = split_in(path, "validation") if root != path else None
    classes = {entry.name: images for entry in folders_in(root) if (images := images_below(entry))}
    if len(classes) < 2 and (tables := [file.name for file in sorted(path.iterdir()) if format_of(file)]):
        listed = ", ".join(tables[:3])
        raise InputMissing(
            f"{path}: holds several tables ({listed}): name one, or give parts of one table names that differ in numbers alone"
        )
    if len(classes) < 2:
        raise InputMissing(f"{root}: expected a folder of images for each of at least two classes, found {len(classes)}")
    count = sum(map(len, classes.values()))
    height, width, channels = _form(next(iter(classes.values()))[0])
    dataset = [
        'kind = "images"',
        f"path = {toml_value(shown)}",
        f"size = [{height}, {width}]              # height and width to which all images are resized",
        f"channels = {channels}",
        f"validation_path = {toml_value(f'{shown}/{held.name}')}" if held else f"validation = {max(count * 15 // 100, 1)}",
    ]
    if not held and min(map(len, classes.values())) >= FEWEST:
        dataset.append("stratify = true              # held-out images have the classes in proportion")
    stages = [16, 32, 64] if min(height, width) >= 24 else [16, 32]
    model = ['name = "cnn"', f"channels = {toml_value(stages)}", "batch_norm = true"]
    return assemble(path, f"Tell {len(classes)} classes of images apart: {count:,} images.", model, dataset, int(count * 0.85))


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
