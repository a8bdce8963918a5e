"""The checks of single steps: each step becomes an action, or several for a sweep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from partrain.config.overrides import assigned, changed
from partrain.config.problems import Finding, KeyPath, Problem, Rejected, did_you_mean
from partrain.config.toml_positions import NotToml, Position, TomlRefused
from partrain.config.toml_source import TomlSource
from partrain.errors import NOT_REACHED, Diverged, InputMissing
from partrain.job.load import validate
from partrain.job.messages import describe_value
from partrain.job.sweep import HELD_OUT, Trial
from partrain.runs.references import references
from partrain.workflow.actions import Action, CommandAction, JobAction, ProgramAction, data_files
from partrain.workflow.commands import Commands
from partrain.workflow.findings import Findings
from partrain.workflow.resources import Resources
from partrain.workflow.section import StepSection

OWNERS = {
    "set": "job", "sweep": "job", "launcher": "job", "outputs": "command", "env": "command", "cores": "command", "memory": "command",
    "devices": "command",
}  # fmt: skip
"""The keys of a step that belong to one kind of step."""


class StepChecks:
    """The checks of the steps of one file, each independent of the others."""

    def __init__(self, source: TomlSource, folder: Path, commands: Commands, made: set[Path], findings: Findings) -> None:
        """Make the checks.

        Args:
            source: The workflow file.
            folder: Its folder.
            commands: The commands that a step may run.
            made: The files that programs of the workflow write. They may not exist yet.
            findings: Receives the problems.
        """
        self._source, self._folder, self._commands, self._made, self._findings = source, folder, commands, made, findings
        self._groups = {name.partition(" ")[0] for name in commands}
        self._jobs: dict[Path, TomlSource | None] = {}
        self._positions: dict[KeyPath, dict[KeyPath, Position]] = {}
        """Positions of each step, by its path."""
        for place, position in source.positions.items():
            self._positions.setdefault(place[:2], {})[place] = position

    def action(self, path: KeyPath, section: StepSection) -> Action | None:
        """Check the work of a step; None if an error prevents it."""
        key = self._kind(path, section)
        if key is None:
            return None
        for other, owner in OWNERS.items():
            if other in section.model_fields_set and key != owner:
                self._findings.find(
                    (*path, other), f"`{other}` belongs to a `{owner}`; this step has none", "remove it", at_key=True
                )
        match key:
            case "job":
                return self._job(path, section)
            case "command":
                assert section.command is not None
                resources = Resources(section.cores, section.memory or 0, frozenset(section.devices))
                return ProgramAction(
                    section.name, section.command, section.inputs, section.outputs, self._folder, section.env, resources
                )
        return self._command((*path, key), section, key)

    def trial(self, path: KeyPath, action: JobAction, trial: Trial, *, first: bool = False) -> JobAction:
        """Check the job of one run of a sweep; for the `first` one also against this machine and the data."""
        source = self._jobs[action.path]
        assert source is not None
        changes = {**action.overrides, **trial.overrides, "sweep": {}}
        places = {key: place for key, _, place in self._overrides(path)}
        sweep, positions = self._sweep_at(path, source)
        for key in trial.overrides:
            in_zip = (*sweep, "zip", key)
            written = "k_folds" if trial.fold and key in HELD_OUT else key
            places[key] = in_zip if in_zip in positions else (*sweep, written)
        swept = {key: _below(positions, places[key]) for key in trial.overrides}
        late = {key: value for key, value in changes.items() if _is_result(value)}
        for key, value in changes.items():
            source = source if key in late else self._overridden(source, key, value, places.get(key, path), swept.get(key))
        job, findings = validate(source.data, action.path.parent, local=first and not self._waits(changes, source, action.path))
        self._findings.add(source.problem(finding) for finding in findings if finding.severity == "error")
        return replace(
            action,
            overrides=changes,
            data=assigned(source.data, late),
            job=job or action.job,
            tolerated=(NOT_REACHED, Diverged.code),
        )

    def find_in_sweep(self, path: KeyPath, action: JobAction, key: str, message: str, suggestion: str = "") -> None:
        """Add a problem of a sweep, at one of its keys in the workflow file or in the job."""
        source = self._jobs[action.path]
        assert source is not None
        sweep, positions = self._sweep_at(path, source)
        if positions is source.positions:
            self._findings.add([source.problem(Finding((*sweep, key), message, suggestion))])
        else:
            self._findings.find((*sweep, key), message, suggestion)

    def _sweep_at(self, path: KeyPath, job: TomlSource) -> tuple[KeyPath, Mapping[KeyPath, Position]]:
        """Return the place of a step's sweep, and the positions of the file that has it: the workflow, or the job."""
        own = self._positions.get(path[:2], {})
        return ((*path, "sweep"), own) if (*path, "sweep") in own else (("sweep",), job.positions)

    def _kind(self, path: KeyPath, section: StepSection) -> str | None:
        """Return the key that defines a step's work."""
        unknown = [key for key in section.actions if key not in ("job", "command", *self._groups)]
        for key in unknown:
            near = did_you_mean(key, [*StepSection.model_fields, "assert", *self._groups])
            others = ", ".join(field for field in StepSection.model_fields if field != "assertions")
            self._findings.find(
                (*path, key), f"unknown key `{key}` in [[steps]]",
                f"did you mean `{near}`?" if near else f"legal: {others}, assert, or a command of partrain", at_key=True,
            )  # fmt: skip
        actions = [key for key in section.actions if key not in unknown]
        if len(actions) == 1:
            return actions[0]
        if not unknown:
            what = "does nothing" if not actions else f"does {len(actions)} things: {', '.join(actions)}"
            self._findings.find(path, f'step "{section.name}" {what}', "give it one of job, command, or a command of partrain")
        return None

    def _command(self, path: KeyPath, section: StepSection, key: str) -> Action | None:
        options = (section.model_extra or {})[key]
        if key not in self._commands:  # a group of commands: data.convert = {...}
            members = [name.partition(" ")[2] for name in self._commands if name.startswith(f"{key} ")]
            if not isinstance(options, dict) or len(options) != 1 or next(iter(options)) not in members:
                suggestion = f"write {key}.{members[0]} = {{...}}; there are {', '.join(members)}"
                self._findings.find(path, f"`{key}` is a group of commands", suggestion)
                return None
            member = next(iter(options))
            path, key, options = (*path, member), f"{key} {member}", options[member]
        if not isinstance(options, dict):
            self._findings.find(path, f"`{key}`: expected a table of its options, got {describe_value(options)}")
            return None
        spec = self._commands[key]
        for option, message, suggestion in spec.problems(options):
            self._findings.find((*path, option) if option else path, message, suggestion, at_key=bool(option))
        return CommandAction(spec, options, self._folder, [self._folder / file for file in section.inputs])

    def _job(self, path: KeyPath, section: StepSection) -> Action | None:
        """Check a job with its overrides. The outputs of other steps may not exist yet."""
        assert section.job is not None
        file = self._folder / section.job
        source = self._job_source((*path, "job"), file)
        if source is None:
            return None
        base = source
        overrides = {}
        late = []
        for key, value, place in self._overrides(path):
            overrides[key] = value
            if _is_result(value):  # a number that another step will provide: the job is checked without it
                late.append((key, value, place))
            else:
                source = self._overridden(source, key, value, place)
        full = source
        for key, value, place in late:
            full = self._overridden(full, key, value, place)
        job, findings = validate(source.data, file.parent, local=not self._waits(overrides, source, file))
        sweep = section.sweep or (job.sweep if job else None)
        if job is None or sweep is None or sweep.is_empty:  # keys that a sweep varies may be wrong before it varies them
            self._findings.add(self._of_step(source.problem(finding), path, section) for finding in findings)
        if late:
            keys = {tuple(key.split(".")) for key, _, _ in late}
            unknown = [
                problem
                for problem in validate(full.data, file.parent, local=False)[1]
                if problem.path in keys and problem.at == "key"
            ]
            self._findings.add(map(full.problem, unknown))
        if section.machines > 1 and not section.launcher:
            self._findings.find(
                (*path, "machines"), f"one job on {section.machines} machines is started by a launcher on each of them",
                'add launcher = ["torchrun", "--nnodes=2", ..., "-m", "partrain"], or what your cluster has', at_key=True,
            )  # fmt: skip
        if job is None:
            return None
        more = [self._folder / name for name in section.inputs]
        return JobAction(file, overrides, full.data, job, base.text, more, tuple(section.launcher), section.machines)

    def _of_step(self, problem: Problem, path: KeyPath, section: StepSection) -> Problem:
        """Name the step in a problem of its job file, which the step's `set` may have caused."""
        if not section.set or problem.place == self._source.file.name:
            return problem
        return replace(problem, message=f'{problem.message} (with the `set` of step "{section.name}")')

    def _waits(self, overrides: Mapping[str, Any], source: TomlSource, file: Path) -> bool:
        """Return whether a job needs results of other steps."""
        return any(references(dict(overrides))) or any(
            data_file.resolve() in self._made for data_file in data_files(source.data.get("dataset"), file.parent)
        )

    def _job_source(self, path: KeyPath, file: Path) -> TomlSource | None:
        if file not in self._jobs:
            self._jobs[file] = None
            try:
                self._jobs[file] = TomlSource.read(file)
            except InputMissing as missing:
                self._findings.missing(path, missing.message)
            except Rejected as rejected:
                self._findings.add(rejected.problems)
        return self._jobs[file]

    def _overrides(self, path: KeyPath) -> Iterator[tuple[str, Any, KeyPath]]:
        """List the changes in a step's `set`: dotted key, value, place in the file.

        `stop.rounds = 4` changes only that key, with or without quotes. `stop = {rounds = 4}` replaces the table, as `--set`
        does.
        """

        def parts(key: str, value: Any, place: KeyPath) -> Iterator[tuple[str, Any, KeyPath]]:
            position = self._source.positions[place]
            if isinstance(value, dict) and position.key[0] == position.value[0]:  # a dotted key: its value begins with the key
                for name, item in value.items():
                    yield from parts(f"{key}.{name}", item, (*place, name))
            else:
                yield key, value, place

        table = self._source.data["steps"][path[1]].get("set", {})
        for key, value in table.items():
            yield from parts(key, value, (*path, "set", key))

    def _overridden(
        self, source: TomlSource, key: str, value: Any, place: KeyPath, places: dict[KeyPath, Position] | None = None
    ) -> TomlSource:
        """Return a job with one change; its problems are shown at the change in the workflow file, or at other `places`."""
        if places is None:
            places = _below(self._positions.get(place[:2], {}), place)
        try:
            return changed(source, [(key, value, places)])
        except (TomlRefused, NotToml) as refused:
            message = refused.message if isinstance(refused, TomlRefused) else 'expected the key of a job, as in "stop.rounds"'
            self._findings.find(place, f"`{key}`: {message}", at_key=True)
            return source


def _below(positions: Mapping[KeyPath, Position], place: KeyPath) -> dict[KeyPath, Position]:
    """Return the positions of a key and of all below it, by their paths from the key."""
    return {path[len(place) :]: position for path, position in positions.items() if path[: len(place)] == place}


def _is_result(value: Any) -> bool:
    """Return whether a value is a single reference to a number of another step, whose type is not yet known."""
    inner = list(references(value))
    return isinstance(value, str) and len(inner) == 1 and str(inner[0]) == value and not inner[0].is_path
