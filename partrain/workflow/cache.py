"""Step results shared by people and machines: each under the digest of everything that it depends on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from partrain.errors import Failure
from partrain.record.file_names import STEP
from partrain.workflow.record import plain


class NoCache(Failure):
    """The store of results is unusable."""

    code, name = 66, "no-cache"


def key_of(settings: Mapping[str, Any], inputs: Mapping[str, str | None]) -> str:
    """Return the digest of a step's settings and inputs, which names its results."""
    content = json.dumps([plain(dict(settings)), list(inputs.values())])
    return hashlib.sha256(content.encode()).hexdigest()


class Cache:
    """A folder of results: a path, or an address that fsspec knows, as s3://BUCKET/PATH.

    A result exists if its `step.json` does.
    """

    def __init__(self, address: str) -> None:
        """Open a store. Raises `NoCache` for an unreachable address."""
        from fsspec.core import url_to_fs

        self._address = address
        try:
            self._store, self._root = url_to_fs(address)
        except (ImportError, ValueError, OSError) as error:
            raise NoCache(f"--cache {address}: {error}") from None

    def fetch(self, key: str, folder: Path) -> bool:
        """Copy a result into the empty folder of its step; return whether the store has it. Raises `NoCache`."""
        try:
            if not self._store.exists(f"{self._root}/{key}/{STEP}"):
                return False
            self._store.get(f"{self._root}/{key}/", f"{folder}/", recursive=True)
        except (OSError, ValueError) as error:
            raise NoCache(f"--cache {self._address}: {error}") from None
        return True

    def store(self, key: str, folder: Path) -> None:
        """Copy the files of a step, its record last. Raises `NoCache`."""
        files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != STEP)
        target = f"{self._root}/{key}"
        try:
            for path in [*files, folder / STEP]:
                name = path.relative_to(folder)
                self._store.makedirs(f"{target}/{name.parent.as_posix()}", exist_ok=True)
                self._store.put_file(str(path), f"{target}/{name.as_posix()}")
        except (OSError, ValueError) as error:
            raise NoCache(f"--cache {self._address}: {error}") from None
