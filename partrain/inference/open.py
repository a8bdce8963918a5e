"""Opening of a checkpoint for a command: its file, its content, and its job, if the user trusts the code that the job names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from partrain.checkpoint.runs import checkpoint_of, run_folder_of, silent
from partrain.config.python_objects import PYTHON
from partrain.errors import NotTrusted

if TYPE_CHECKING:
    from partrain.checkpoint import Content
    from partrain.job.load import LoadedJob


def open_checkpoint(path: Path, note: Callable[[str], None] = silent, best: bool = False) -> tuple[Path, Content]:
    """Return the checkpoint file of a path, which may be a run folder or a folder of runs, and its content.

    `note` is called with a sentence if the run is the newest of several. `best`: of a run folder, its best checkpoint.
    """
    from partrain.checkpoint import read
    from partrain.checkpoint.manifest import manifest_of

    path = checkpoint_of(path, note, best)
    content = read(path)
    manifest_of(content, str(path))  # no command computes with a field that is odd
    return path, content


def load_job(
    content: Content,
    path: Path,
    trusted: bool,
    until: Sequence[str] = (),
    here: bool = False,
    job_file: Path | None = None,
    data: bool = True,
) -> LoadedJob:
    """Load the job that a checkpoint contains. It is data: code that it names runs only with the user's consent.

    Args:
        content: The checkpoint.
        path: The checkpoint's file, for messages.
        trusted: The user allows the code that the checkpoint's job names.
        until: Changed stop conditions, as `key=value`.
        here: The job will run on this machine, with its hooks.
        job_file: A job file of the user that replaces the checkpoint's; the user trusts the code that it names.
        data: The data set will be opened too; a user data set is code as well.
    """
    from partrain.checkpoint.manifest import manifest_of
    from partrain.checkpoint.signature import is_signed
    from partrain.config.overrides import UNTIL
    from partrain.config.toml_source import TomlSource
    from partrain.job.load import parse

    if job_file is not None:
        return parse(TomlSource.read(job_file).text, job_file.absolute().parent, str(job_file))
    loaded = parse(content.job, Path(manifest_of(content).folder), f"{path}:/job", here, until, UNTIL, resuming=True)
    job = loaded.job
    named = [name for name in (job.user_code if here else job.item_code if data else job.network_code) if name != PYTHON]
    if named and not trusted and not is_signed(run_folder_of(path), content.job, loaded.folder):
        code = f"{' and '.join(f'`{name}`' for name in named)} in {loaded.folder}"
        raise NotTrusted(f"{path} names code: {code}; look at it, then run this again with --trust-code")
    return loaded
