"""Data files in a folder, without the files that systems and other programs leave there; and folders of splits."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from partrain.data.base import reading
from partrain.data.fetch import require_regular

LEFT_THERE = ("__macosx", "thumbs.db", "desktop.ini")
"""Names, in lower case, of files and folders that macOS and Windows leave in folders."""
HIDDEN = (".", "@", "~$")
"""Starts of names of hidden files, of files of network storage (`@eaDir`), and of lock files of office programs."""
SPLITS = {"train": ("train", "training"), "test": ("test", "testing"), "validation": ("validation", "valid", "val", "dev")}
"""Folder names of each split, in lower case."""


def is_own(name: str) -> bool:
    """Return whether a file or folder of this name may belong to the data."""
    return not name.startswith(HIDDEN) and name.lower() not in LEFT_THERE


def files_below(folder: Path, suffixes: Collection[str]) -> list[Path]:
    """Return the files with one of these suffixes in a folder and its subfolders, sorted."""
    return [require_regular(file) for file in own_files(folder) if file.suffix.lower() in suffixes]


def own_files(folder: Path) -> list[Path]:
    """Return the files that may belong to the data in a folder and its subfolders, sorted."""
    with reading(folder):
        every = sorted(file for file in folder.rglob("*") if file.is_file())
    return [file for file in every if all(map(is_own, file.relative_to(folder).parts))]


def folders_in(folder: Path) -> list[Path]:
    """Return the folders in a folder, sorted."""
    with reading(folder):
        return sorted(entry for entry in folder.iterdir() if entry.is_dir() and is_own(entry.name))


def split_in(folder: Path, split: str) -> Path | None:
    """Return the folder of a split, by the names in `SPLITS`; None if there is none."""
    return next((entry for entry in folders_in(folder) if entry.name.lower() in SPLITS[split]), None)
