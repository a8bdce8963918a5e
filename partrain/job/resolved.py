"""A job with all its defaults, key by key: the origin of each value, and the differences between two jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from partrain.config.overrides import override, toml_value
from partrain.config.problems import KeyPath
from partrain.config.toml_source import TomlSource
from partrain.job.load import LoadedJob, load
from partrain.job.schema import NAMING, Job
from partrain.record.file_names import JOB

DEFAULT = "default"


class Setting(NamedTuple):
    """A key of a job with its value."""

    path: KeyPath
    value: Any
    origin: str
    """Place that sets the value: `file:line`, `--set KEY=VALUE`, or `default`."""

    @property
    def key(self) -> str:
        """The dotted key, as in `workers.0.count`."""
        return ".".join(map(str, self.path))

    @property
    def is_default(self) -> bool:
        """True if the job does not set the key."""
        return self.origin == DEFAULT


def load_any(path: Path, overrides: Sequence[str] = ()) -> tuple[LoadedJob, list[Setting]]:
    """Load a job file, or the job of a run folder, with the settings in the order of the tables. Raises like `load`."""
    file = path / JOB if path.is_dir() else path
    loaded = load(file, overrides, resuming=path.is_dir())
    return loaded, settings(loaded.job, override(TomlSource.read(file), overrides))


def settings(job: Job, source: TomlSource) -> list[Setting]:
    """List all settings of a job; keys without a value are left out."""
    content = job.model_dump(by_alias=True, exclude_none=True)
    if "optimizer" not in source.data:
        content.pop("optimizer")  # the rule defines its own steps
    return [Setting(path, value, _origin(source, path)) for path, value in _leaves((), content)]


def difference(settings: Sequence[Setting], other: Sequence[Setting]) -> list[tuple[str, str, str]]:
    """List the keys whose values differ, with both values as TOML; `-` if a job has no such key."""
    first, second = ({setting.key: toml_value(setting.value) for setting in some} for some in (settings, other))
    keys = [*first, *(key for key in second if key not in first)]
    return [(key, first.get(key, "-"), second.get(key, "-")) for key in keys if first.get(key) != second.get(key)]


def full_text(settings: Sequence[Setting]) -> str:
    """Write a job as TOML.

    Defaults are comments, so that the text stays the same job: some keys are refused if they have no effect.
    """
    lines: list[str] = []
    tables: dict[KeyPath, list[Setting]] = {(): []}  # keys of the top come first
    for setting in settings:
        tables.setdefault(setting.path[:-1], []).append(setting)
    for table, members in tables.items():
        if table:
            lines += ["", "# " * all(member.is_default for member in members) + _heading(table)]
        lines += ["# " * member.is_default + f"{member.path[-1]} = {toml_value(member.value)}" for member in members]
    return "\n".join(lines) + "\n"


def _heading(table: KeyPath) -> str:
    name = ".".join(str(name) for name in table if isinstance(name, str))
    return f"[[{name}]]" if isinstance(table[-1], int) else f"[{name}]"


def _leaves(path: KeyPath, content: Any) -> Iterator[tuple[KeyPath, Any]]:
    """Yield the values of nested tables by path; lists of tables count as tables, other lists as values."""
    if isinstance(content, dict) and (content or not path) and not (path and path[0] == "sweep"):
        for key, value in sorted(content.items(), key=lambda pair: pair[0] not in NAMING):  # stable; they choose the other keys
            yield from _leaves((*path, key), value)
    elif isinstance(content, list) and content and all(isinstance(item, dict) for item in content):
        for number, item in enumerate(content):
            yield from _leaves((*path, number), item)
    elif content != {}:
        yield path, content


def _origin(source: TomlSource, path: KeyPath) -> str:
    """Return where the value at a path was set: there, or in a table that holds it."""
    data: Any = source.data
    for name in path:
        try:
            data = data[name]
        except (KeyError, IndexError, TypeError):
            return DEFAULT
    position = None
    while position is None and path:
        position, path = source.positions.get(path), path[:-1]
    if position is None:
        return source.file.name
    problem = position.text.problem(position.key, "")
    return f"{problem.place}:{problem.line}" if problem.line else problem.place
