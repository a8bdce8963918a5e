"""A checkpoint that a command is given: its file, its content, and the job it carries, if the code that names is trusted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from partrain.errors import InputMissing, NotTrusted

if TYPE_CHECKING:
    from partrain.checkpoint import Content
    from partrain.job.load import LoadedJob


def newest_checkpoint(path: Path) -> Path:
    """A run folder stands for its newest checkpoint."""
    if path.is_dir():
        if not (path / "checkpoint.h5").exists():
            raise InputMissing(f"{path} holds no checkpoint.h5: nothing was committed there")
        return path / "checkpoint.h5"
    return path


def open_checkpoint(path: Path) -> tuple[Path, Content]:
    """The file that a path stands for, and what it holds."""
    from partrain.checkpoint import read

    path = newest_checkpoint(path)
    return path, read(path)


def load_job(
    content: Content,
    path: Path,
    trusted: bool,
    until: Sequence[str] = (),
    here: bool = False,
    own: Path | None = None,
    data: bool = True,
) -> LoadedJob:
    """The job a checkpoint carries. It is data: code that it names runs only if the user says so.

    Args:
        content: The checkpoint.
        path: Its file, for messages.
        trusted: The user said that the code the checkpoint's job names may run.
        until: Stop conditions moved.
        here: The job is to run on this machine.
        own: A job file that the user names in its stead: it is the user's word, so is the code that it names.
        data: Its data set is opened, too: where that is the user's own, this is code as well.
    """
    from partrain.checkpoint.manifest import manifest_of
    from partrain.config.overrides import UNTIL
    from partrain.config.toml_source import TomlSource
    from partrain.job.load import parse

    if own is not None:
        return parse(TomlSource.read(own).text, own.absolute().parent, str(own))
    loaded = parse(content.job, Path(manifest_of(content).folder), f"{path}:/job", here, until, UNTIL)
    named = loaded.job.user_code if data else loaded.job.network_code
    if named and not trusted:
        code = f"{' and '.join(f'`{name}`' for name in named)} in {loaded.folder}"
        raise NotTrusted(f"{path} names code: {code}; look at it, then run this again with --trust-code")
    return loaded
