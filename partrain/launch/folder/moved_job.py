"""A checkpoint's job, named again by the user because its data or code have moved: `partrain resume CKPT --job FILE`."""

from __future__ import annotations

import errno
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from partrain.config.overrides import UNTIL, as_toml
from partrain.config.problems import Unreadable
from partrain.config.toml_source import TomlSource
from partrain.errors import BadJob
from partrain.job.load import LoadedJob, parse

if TYPE_CHECKING:
    from partrain.checkpoint import Content

PATHS = ("path", "test_path", "validation_path", "inputs", "targets", "test_inputs", "test_targets")
"""Keys of `[dataset]` that are paths."""
_OWN_KEYS = ("name", "validation", "fold", "stratify", "classes")
"""Keys of a user data set that are not arguments of it."""


def moved_job(file: Path, content: Content, until: Sequence[str], note: Callable[[str], None]) -> LoadedJob:
    """Load the user's job for a checkpoint. Raises BadJob if it differs from the checkpoint's job in more than paths.

    The checkpoint's `[stop]`, which `--until` may have changed before, applies; `note` gets a sentence if the file's differs.
    """
    source, before = TomlSource.read(file), TomlSource.parse(content.job, "the checkpoint's job").data
    if source.data.get("stop") != before.get("stop"):
        note(f"[stop] of {file} has no effect: the checkpoint's holds, and --until changes it")
        tables = {name: table for name, table in source.data.items() if name != "stop"}
        source = TomlSource.parse(as_toml(tables | ({"stop": before["stop"]} if "stop" in before else {})), str(file))
    if difference := next(_differences(before, source.data), None):
        key, stored, now = difference
        raise BadJob(
            f"{file}: `{key}` is {now}, in the checkpoint {stored}: only paths may differ; begin with the run folder's job.toml, "
            "and change the paths"
        )
    return parse(source.text, file.absolute().parent, str(file), local=True, overrides=until, flag=UNTIL, resuming=True)


def ignored_change(loaded: LoadedJob, content: Content) -> str:
    """Name what the user's job changes although a run goes on with the job of its checkpoint; "" for nothing but paths."""
    changes = list(_differences(tomllib.loads(content.job), loaded.source.data))
    if not changes:
        return ""
    key, stored, now = changes[0]
    more = "; other keys differ too" if len(changes) > 1 else ""
    return (
        f"`{key}` is {now} in the job, and {stored} in the checkpoint, whose job counts{more}; changes of the job and --set have no "
        "effect on a run that goes on; train another job with another --out"
    )


def with_advice(missing: Unreadable) -> Unreadable:
    """Add to the error about missing files of a checkpoint's job how to name their new place."""
    advice = "if it has moved, name a job with the new path: partrain resume --job FILE"
    gone = os.strerror(errno.ENOENT)
    return Unreadable(replace(problem, suggestion=advice) if gone in problem.message else problem for problem in missing.problems)


def _differences(before: Any, now: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, str, str]]:
    """Yield key, value in the checkpoint and value in the file for forbidden differences."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys([*before, *now]):
            if not (path == ("dataset",) and _is_path(key, before)) and (*path, key) != ("model", "from"):
                yield from _differences(before.get(key), now.get(key), (*path, key))
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for number, (value, other) in enumerate(zip(before, now, strict=True)):
            yield from _differences(value, other, (*path, str(number)))
    elif before != now or isinstance(before, bool) != isinstance(now, bool):
        yield ".".join(path), _shown(before), _shown(now)


def _is_path(key: str, dataset: Mapping[str, Any]) -> bool:
    """Return whether a key of `[dataset]` may be a path; so may any text among a user data set's arguments."""
    if "name" in dataset:
        return key not in _OWN_KEYS and isinstance(dataset.get(key), str)
    return key in PATHS


def _shown(value: Any) -> str:
    return (
        "missing"
        if value is None
        else f'"{value}"'
        if isinstance(value, str)
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
    )
