"""Datasets of HDF5 with numbers in other places: files in the same folder may be read, all others are refused."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from partrain.errors import one_line


def outside(dataset: Any, path: Path, visited: set[tuple[Path, str]]) -> str:
    """Describe the data of a dataset outside the files of its folder; empty if there are none.

    A data file may come from a stranger, and HDF5 would read any file that it names: as external storage, as the source of a
    virtual dataset, or by a link to such a source.
    """
    import h5py

    if dataset.external:
        return "the bytes of another file (external storage), which is not read"
    if not dataset.is_virtual or (path, dataset.name) in visited:
        return ""
    visited.add((path, dataset.name))
    for source in dataset.virtual_sources():
        name = source.file_name
        places = [path] if name == "." else [path.parent / name]
        if "%" in name:  # a pattern: HDF5 puts numbers in place of %b
            places = sorted(path.parent.glob(re.sub(r"%[^%]", "*", name))) if Path(name).name == name else [Path("/")]
        for place in places:
            if not place.resolve().is_relative_to(path.parent.resolve()):
                return f"the numbers of `{one_line(name)[:80]}`, which is not next to it and is not read"
            with suppress(OSError), h5py.File(place, "r") as file:  # `missing_data` reports a missing file
                target = file.get(source.dset_name)
                if target is None:
                    continue
                if Path(target.file.filename) != place:
                    return f"the numbers of `{one_line(target.file.filename)[:80]}`, by a link, which is not followed"
                if deeper := outside(target, place, visited) if isinstance(target, h5py.Dataset) else "":
                    return deeper
    return ""


def missing_data(dataset: Any, path: Path) -> str:
    """Describe why numbers of a virtual dataset are missing, where HDF5 would silently return zeros; empty if none are."""
    import h5py

    for source in dataset.virtual_sources() if dataset.is_virtual else ():
        if source.file_name == "." or "%" in source.file_name:
            continue
        place = path.parent / source.file_name
        try:
            with h5py.File(place, "r") as file:
                present = source.dset_name in file
        except OSError as error:
            return f"its numbers should lie in {place}, which cannot be read: {(error.strerror or str(error)).splitlines()[0]}"
        if not present:
            return f"its numbers should lie in {place}, which has no dataset `{source.dset_name}`"
    return ""
