"""Changes in user code since a checkpoint was written: by the bytes of its files, and by its results."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from partrain.config.python_objects import PYTHON
from partrain.config.usercode import UserCode
from partrain.errors import BadCheckpoint, UserCodeFailed

if TYPE_CHECKING:
    from partrain.job.load import LoadedJob

_DIGEST = " (SHA-256)"


def digest_of(path: Path) -> str:
    """Return the first 16 digits of a file's SHA-256."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def code_digests(loaded: LoadedJob) -> dict[str, str]:
    """Hash the user code files next to the job that it names: the only ones known before a dry run has imported them."""
    files = {name.partition(":")[0] for name in loaded.job.user_code if name.partition(":")[0].endswith(".py")}
    paths = {name: loaded.folder / name for name in sorted(files)}
    return versions_of({name: digest_of(path) for name, path in paths.items() if path.is_file()})


def versions_of(digests: Mapping[str, str]) -> dict[str, str]:
    """Return the digests of files by their names among a manifest's versions."""
    return {f"{name}{_DIGEST}": digest for name, digest in digests.items()}


def file_of(version: str) -> str:
    """Return the file whose digest has this name among a manifest's versions; "" if the name is not a file's."""
    return version.removesuffix(_DIGEST) if version.endswith(_DIGEST) else ""


def locate(name: str, folder: Path) -> Path | None:
    """Find a file of user code by its name, from the job's folder or Python's path; None if it is gone."""
    places = [folder / name, *(Path(base, name) for base in sys.path)]
    return next((path for path in places if path.is_file()), None)


def changed_files(loaded: LoadedJob, versions: Mapping[str, str]) -> list[str]:
    """Name the user code files that differ from those of a checkpoint with these versions."""
    files = {file: digest for name, digest in versions.items() if (file := file_of(name))}
    return [name for name, digest in files.items() if (path := locate(name, loaded.folder)) is None or digest_of(path) != digest]


@contextmanager
def changed_code_explained(loaded: LoadedJob, versions: Mapping[str, str]) -> Iterator[None]:
    """Turn BadCheckpoint into UserCodeFailed if user code no longer fits the network of a checkpoint with these versions."""
    try:
        yield
    except BadCheckpoint as failure:
        if not isinstance(loaded.job.model, UserCode) or loaded.job.model.name == PYTHON:  # objects of Python have no files
            raise
        what = f"[model] name: `{loaded.job.model.name}`: {failure.message}"
        raise UserCodeFailed(explain_change(what, changed_files(loaded, versions))) from failure


def explain_change(what: str, files: Sequence[str]) -> str:
    """Make a failure: code computes something else than before the checkpoint. `files`: the changed ones."""
    if files:
        return f"{what}: changed since: {', '.join(files)}: restore the code as it was in training"
    hidden = "an environment variable, or another file or package that its code reads, has changed"
    return f"{what}: {hidden}: restore it as it was in training"
