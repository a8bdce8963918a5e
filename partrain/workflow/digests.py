"""SHA-256 of files and folders. Digests are kept with the size and time of each file, so an unchanged file is read only once."""

from __future__ import annotations

import hashlib
import json
import os
import time
from contextlib import suppress
from pathlib import Path

from partrain.record.file_names import EVENTS, TAGS
from partrain.system.atomic_file import atomic_file
from partrain.system.regular_file import read_object

RECENT_NS = 2_000_000_000
"""A file that changed this recently before it was read may change again without a new time: its digest is not kept."""


class Digests:
    """Digests of paths, kept in one file of the workflow's folder."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known: dict[str, list[int | str]] = {}
        self._changed = False
        if path:
            self._known = read_object(path)

    def of(self, path: Path) -> str | None:
        """Return the digest of a file, or of a folder's names and contents; None if the path does not exist."""
        try:
            if path.is_dir():
                return self._of_folder(path)
            return self._of_file(path)
        except OSError:
            return None

    def save(self) -> None:
        """Write the digests; failure to write the file only costs time."""
        if not self._path or not self._changed:
            return
        with suppress(OSError), atomic_file(self._path, sync=False) as descriptor:
            os.write(descriptor, json.dumps(self._known).encode())
            self._changed = False

    def _of_folder(self, folder: Path) -> str:
        whole = hashlib.sha256()
        for path in sorted(path for path in folder.rglob("*") if path.is_file() and not _is_of_tags(path)):
            whole.update(f"{path.relative_to(folder)}\0{self._of_file(path)}\n".encode(errors="surrogateescape"))
        return f"sha256:{whole.hexdigest()}"

    def _of_file(self, path: Path) -> str:
        state = path.stat()
        stamp = [state.st_size, state.st_mtime_ns, state.st_ino]
        key = str(path.absolute())
        entry = self._known.get(key)
        if isinstance(entry, list) and entry[:3] == stamp and isinstance(entry[3], str):
            return entry[3]
        with path.open("rb") as file:
            digest = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
        if abs(time.time_ns() - state.st_mtime_ns) > RECENT_NS:
            self._known[key] = [*stamp, digest]
            self._changed = True
        return digest


def _is_of_tags(path: Path) -> bool:
    """Return whether a file holds the tags of a run, which do not change results. A file of the user may have the same name."""
    return path.name == TAGS and (path.parent / EVENTS).exists()
