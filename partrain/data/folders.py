"""Files of a folder that hold items, without those that systems and other programs leave there; and folders of splits."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from partrain.data.base import reading
from partrain.data.fetch import require_regular

LEFT_THERE = ("__macosx", "thumbs.db", "desktop.ini")
"""Names, in small letters, of what macOS and Windows leave in folders."""
HIDDEN = (".", "@", "~$")
"""Starts of names of hidden files, of those of network storage (`@eaDir`), and of locks of offices."""
SPLITS = {"train": ("train", "training"), "test": ("test", "testing"), "validation": ("validation", "valid", "val", "dev")}
"""Names of the folder of each split, in small letters."""


def is_own(name: str) -> bool:
    """Return whether a file or folder of this name may belong to the data."""
    return not name.startswith(HIDDEN) and name.lower() not in LEFT_THERE


def files_below(folder: Path, suffixes: Collection[str]) -> list[Path]:
    """Return the files with one of these suffixes in a folder and in those in it, sorted."""
    with reading(folder):
        every = sorted(file for file in folder.rglob("*") if file.suffix.lower() in suffixes and file.is_file())
    return [require_regular(file) for file in every if all(map(is_own, file.relative_to(folder).parts))]


def folders_in(folder: Path) -> list[Path]:
    """Return the folders in a folder, sorted."""
    with reading(folder):
        return sorted(entry for entry in folder.iterdir() if entry.is_dir() and is_own(entry.name))


def split_in(folder: Path, split: str) -> Path | None:
    """Return the folder of a split, as `SPLITS` names it; None if there is none."""
    return next((entry for entry in folders_in(folder) if entry.name.lower() in SPLITS[split]), None)
