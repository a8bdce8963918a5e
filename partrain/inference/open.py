"""Open a checkpoint for a command: its file, its content and its job, if the user permits the code and files that it names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from partrain.checkpoint.runs import checkpoint_of, run_folder_of, silent
from partrain.config.python_objects import PYTHON
from partrain.errors import NotTrusted
from partrain.record.file_names import BEST

if TYPE_CHECKING:
    from partrain.checkpoint import Content
    from partrain.job.load import LoadedJob

Use = Literal["network", "items", "run"]
"""Parts of a job that a command uses: the network; also the items of the data set; also the hooks and this machine, for
training."""


def open_checkpoint(path: Path, note: Callable[[str], None] = silent, *, newest: bool = False) -> tuple[Path, Content]:
    """Return the checkpoint file of a path, which may be a run folder or a folder of runs, and its content.

    `note` is called with a sentence if the run is the newest of several, or its best checkpoint is gone. `newest`: for a run
    folder, return the newest checkpoint, not the best.
    """
    from partrain.checkpoint import read
    from partrain.checkpoint.manifest import manifest_of

    folder = path if path.is_dir() else None
    path = checkpoint_of(path, note, newest=newest)
    content = read(path)
    best = manifest_of(content, str(path)).progress.best_round  # no command computes with an unusual field
    if folder and not newest and path.name != BEST and best not in (0, content.round):
        note(f"{path}: the checkpoint of the best round, {best}, is gone; this is the newest round, {content.round}")
    return path, content


def load_job(
    content: Content,
    path: Path,
    *,
    trusted: bool,
    use: Use = "network",
    until: Sequence[str] = (),
    workers: Sequence[str] = (),
    job_file: Path | None = None,
) -> LoadedJob:
    """Load the job in a checkpoint. It is data: the code and the files that it names need the user's permission.

    Args:
        content: The checkpoint.
        path: The checkpoint's file, for messages.
        trusted: The user permits the code and the files that the checkpoint's job names.
        use: The parts of the job that the command uses.
        until: Changed stop conditions, as `key=value`.
        workers: Changed `[[workers]]`, as `key=value`, for the use "run".
        job_file: A job file of the user that replaces the checkpoint's; the user trusts everything it names.

    Raises:
        NotTrusted: The user has not permitted the code or the files.
    """
    from partrain.checkpoint.manifest import manifest_of
    from partrain.config.overrides import UNTIL
    from partrain.config.toml_source import TomlSource
    from partrain.job.load import parse

    if job_file is not None:
        return parse(TomlSource.read(job_file).text, job_file.absolute().parent, str(job_file))
    name = f"{path}:/job"
    loaded = parse(content.job, Path(manifest_of(content).folder), name, local=False, overrides=until, flag=UNTIL, resuming=True)
    if not trusted:
        require_permission(loaded, content, path, use)
    return parse(loaded.text, loaded.folder, name, local=True, overrides=workers, resuming=True) if use == "run" else loaded


def require_permission(loaded: LoadedJob, content: Content, path: Path, use: Use) -> None:
    """Raise NotTrusted if a checkpoint's job names code or files for a use, and the user has not signed the job in a run folder."""
    if named := foreign(loaded, content.job, path, use):
        kinds, names = " and ".join(named), " and ".join(f"`{name}`" for kind in named.values() for name in kind)
        raise NotTrusted(f"{path} names {kinds}: {names} in {loaded.folder}; look at it, then run this again with --trust-code")


def foreign(loaded: LoadedJob, text: str, path: Path, use: Use) -> dict[str, list[str]]:
    """Return code and files that need the user's permission for a use; empty for a run that the user has signed.

    Args:
        loaded: The job.
        text: The job's text in the checkpoint, which `--until` may have changed in `loaded`.
        path: The checkpoint's file.
        use: The parts of the job that the command uses.
    """
    from partrain.checkpoint.signature import is_signed

    job = loaded.job
    code = {"network": job.network_code, "items": job.item_code, "run": job.user_code}[use]
    named = {"code": [name for name in code if name != PYTHON], "files": [] if use == "network" else job.data_files}
    named = {kind: names for kind, names in named.items() if names}
    return {} if named and is_signed(run_folder_of(path), text, loaded.folder) else named
