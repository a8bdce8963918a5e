"""Jobs for folders of images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from partrain.config.overrides import toml_value
from partrain.data.folders import folders_in, own_files, split_in
from partrain.data.images import check_headers, image_shape, images_below
from partrain.data.tables.formats import format_of
from partrain.errors import InputMissing
from partrain.number_format import counted
from partrain.templates.assemble import Asked, Draft, assemble, listed

FEWEST = 7
"""Number of images of a class whose 15 % is one image: in a random draw, a smaller class may have no held-out image."""
HEADERS = 2000
"""Number of images whose headers are read, about; of more images, every second or third, say."""


def propose(path: Path, shown: str, asked: Asked, folder: Path) -> Draft | None:
    """Write a job for a folder of images; see `DataForm.proposal`."""
    if not path.is_dir():
        return None
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
    files = [file for images in classes.values() for file in images]
    check_headers(files[:: len(files) // HEADERS + 1])
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
    what = f"Tell {len(classes)} classes of images apart: {count:,} images."
    return Draft(assemble(path, what, model, dataset, int(count * 0.85)), _unused(root, classes))


def _unused(root: Path, classes: Mapping[str, Sequence[Path]]) -> list[str]:
    """Return a note on files in folders of classes that are not taken for images, by their suffix."""
    taken = {file for images in classes.values() for file in images}
    names = [f"`{file.relative_to(root)}`" for name in classes for file in own_files(root / name) if file not in taken]
    what = f"not used are {counted(len(names), 'file')} without the suffix of an image: {listed(names)}"
    return [f"{root}: {what} (docs/images.md names the formats)"] if names else []


def _form(file: Path) -> tuple[int, int, int]:
    """Return height, width and channels of the first image, at most 64 pixels."""
    channels, height, width = image_shape(file)
    scale = min(1.0, 64 / max(width, height))
    return max(int(height * scale), 8), max(int(width * scale), 8), channels
