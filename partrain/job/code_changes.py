"""Changes of user code since a checkpoint was written: by the bytes of the files that the job names, and by what the code computes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from partrain.job.load import LoadedJob

_DIGEST = " (SHA-256)"


def code_digests(loaded: LoadedJob) -> dict[str, str]:
    """Hash the files of user code beside the job. Their imports and installed packages are not hashed."""
    files = {name.partition(":")[0] for name in loaded.job.user_code if name.partition(":")[0].endswith(".py")}
    paths = {name: loaded.folder / name for name in sorted(files)}
    return {
        f"{name}{_DIGEST}": hashlib.sha256(path.read_bytes()).hexdigest()[:16] for name, path in paths.items() if path.is_file()
    }


def changed_files(loaded: LoadedJob, versions: Mapping[str, str]) -> list[str]:
    """Name the files of user code that are not those of a checkpoint with these versions."""
    return [name.removesuffix(_DIGEST) for name, digest in code_digests(loaded).items() if versions.get(name) != digest]


def explain_change(what: str, files: Sequence[str]) -> str:
    """Write a failure: code computes something else than before the checkpoint. `files`: those that have changed."""
    cause = (
        f"{', '.join(files)} has changed" if files else "its code, a file or an environment variable that it reads has changed"
    )
    return f"{what}: {cause}: restore it as it was in training"
