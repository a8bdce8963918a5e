"""Load a workflow: from its file, or from jobs on the command line. All problems are found before anything starts."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from itertools import chain, count
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from partrain.config.overrides import as_toml, changed
from partrain.config.problems import FileFinding, Finding, KeyPath, Problem, Rejected, Unreadable, did_you_mean, shown
from partrain.config.toml_positions import NotToml, Position, TomlRefused
from partrain.config.toml_source import TomlSource
from partrain.errors import NOT_REACHED, Diverged, InputMissing
from partrain.job.load import load as load_job
from partrain.job.load import validate
from partrain.job.messages import describe_value
from partrain.job.sweep import Trial
from partrain.workflow.actions import Action, CommandAction, JobAction, ProgramAction, data_files
from partrain.workflow.commands import Commands
from partrain.workflow.conditions import BadCondition, Condition
from partrain.workflow.kinds import is_workflow
from partrain.workflow.references import references
from partrain.workflow.section import StepSection, WorkflowSection
from partrain.workflow.sweep import SweepAction

_TYPES = {
    "string_type": "a string",
    "list_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "string_pattern_mismatch": "letters, digits, `-` and `_`, at most 100",
    "too_short": "at least one",
    "too_long": "at most 5,000",
}


@dataclass(frozen=True)
class Step:
    """A step of a workflow without errors."""

    name: str
    action: Action
    needs: frozenset[str]
    """The steps that it waits for."""
    when: Condition | None = None
    assertions: tuple[Condition, ...] = ()


@dataclass(frozen=True)
class Workflow:
    """A workflow without errors."""

    name: str
    text: str
    steps: dict[str, Step]
    """Steps by name, each after those that it needs."""
    warnings: list[Problem] = field(default_factory=list)

    def dependents(self, name: str) -> set[str]:
        """Return the steps that need a step, directly or through others."""
        found = {name}
        for step in self.steps.values():
            if step.needs & found:
                found.add(step.name)
        return found - {name}


def load(path: Path, commands: Commands) -> Workflow:
    """Load a workflow file. Raises `InputMissing` if there is none, `Rejected` with all problems if there are errors."""
    return _Loader(TomlSource.read(path), path.absolute().parent, commands).workflow()


def of_jobs(paths: Sequence[Path], overrides: Sequence[str], commands: Commands) -> Workflow:
    """Make a workflow of jobs: each is a step named by its file. A folder stands for its `*.toml`.

    Raises `InputMissing` if a file is missing, `Rejected` with all problems if there are errors.
    """
    files: list[Path] = []
    for path in paths:
        found = sorted(path.glob("*.toml")) if path.is_dir() else [path]
        if not found:
            raise InputMissing(f"{path} holds no *.toml")
        files += found
    named: dict[str, Path] = {}
    problems: list[Problem] = []
    for file in files:
        stem = re.sub(r"[^A-Za-z0-9_-]+", "-", file.stem).strip("-_") or "job"
        name = next(name for name in chain([stem], (f"{stem}-{number}" for number in count(2))) if name not in named)
        named[name] = file
        try:
            if is_workflow(file):
                raise InputMissing(f"{file} is a workflow: run it by itself")
            problems += load_job(file, overrides).warnings
        except Rejected as rejected:
            problems += rejected.problems
    if any(problem.severity == "error" for problem in problems):
        raise Rejected(problems)
    values = {key: _parsed(text) for key, _, text in (each.partition("=") for each in overrides)}
    steps = [{"name": name, "job": str(file.absolute()), "set": values} for name, file in named.items()]
    text = as_toml({"name": "batch", "steps": steps})  # no error can remain that its lines would have to show
    workflow = _Loader(TomlSource.parse(text, "the command line"), Path.cwd(), commands).workflow()
    return replace(workflow, warnings=problems)


def _parsed(text: str) -> Any:
    """Parse the value of an override: TOML, else a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        return text


class _Loader:
    """The checks of one workflow file."""

    def __init__(self, source: TomlSource, folder: Path, commands: Commands) -> None:
        self._source, self._folder, self._commands = source, folder, commands
        self._findings: list[Finding] = []
        self._problems: list[Problem] = []
        self._jobs: dict[Path, TomlSource | None] = {}
        self._sections: list[StepSection] = []
        self._names: dict[str, int] = {}

    def workflow(self) -> Workflow:
        """Check the file and return the workflow. Raises `Rejected`."""
        section = self._validated()
        self._sections = section.steps if section else []
        self._find_names()
        steps = [step for index, each in enumerate(self._sections) for step in self._steps(index, each)]
        order = self._order(steps)
        self._check_outputs()
        problems = [*(self._source.problem(finding) for finding in self._findings), *self._problems]
        if any(problem.severity == "error" for problem in problems):
            files_only = all(isinstance(each, FileFinding) for each in self._findings) and not self._problems
            raise (Unreadable if files_only else Rejected)(problems)
        assert section is not None
        by_name = {step.name: step for step in steps}
        return Workflow(section.name, self._source.text, {name: by_name[name] for name in order}, problems)

    def _find(self, path: KeyPath, message: str, suggestion: str = "", at_key: bool = False) -> None:
        self._findings.append(Finding(path, message, suggestion, "key" if at_key else "value"))

    # The shape of the file

    def _validated(self) -> WorkflowSection | None:
        """Validate the file's shape. After errors in steps, the valid ones are checked further."""
        data = dict(self._source.data)
        try:
            return WorkflowSection.model_validate(data)
        except ValidationError as error:
            errors = error.errors(include_url=False)
            for each in errors:
                self._explain(each["type"], tuple(each["loc"]), each["input"], each.get("ctx", {}))
            places = [each["loc"] for each in errors]
            bad = {place[1] if place[0] == "steps" and len(place) > 1 else -1 for place in places}
        steps = data.get("steps")
        if -1 in bad or not isinstance(steps, list) or len(bad) == len(steps):
            return None
        rest = WorkflowSection.model_validate(data | {"steps": [step for index, step in enumerate(steps) if index not in bad]})
        self._kept = [index for index in range(len(steps)) if index not in bad]
        return rest

    def _explain(self, kind: str, path: KeyPath, value: Any, context: Mapping[str, Any]) -> None:
        """Turn one of pydantic's errors into a finding."""
        key = next((part for part in reversed(path) if isinstance(part, str)), "")
        if kind == "value_error":
            named = re.search(r"`([^`]+)`", str(context["error"]))
            at_key = named is not None and isinstance(value, dict) and named[1] in value
            self._find((*path, named[1]) if named and at_key else path, str(context["error"]), at_key=at_key)
        elif kind == "missing":
            self._find(path, f"missing key `{key}`", f'add {key} = "..."')
        elif kind == "extra_forbidden":
            near = did_you_mean(key, WorkflowSection.model_fields)
            self._find(path, f"unknown key `{key}`", f"did you mean `{near}`?" if near else "legal: name, steps", at_key=True)
        else:
            self._find(path, f"`{key}`: expected {_TYPES.get(kind, 'another value')}, got {describe_value(value)}")

    def _index(self, position: int) -> int:
        """Return the number of a step in the file, whose invalid steps were left out."""
        return getattr(self, "_kept", range(position + 1))[position]

    def _find_names(self) -> None:
        for position, section in enumerate(self._sections):
            first = self._names.setdefault(section.name, position)
            if first != position:
                self._find(
                    ("steps", self._index(position), "name"), f'step "{section.name}" is there twice', "give each its own name"
                )

    # One step

    def _steps(self, position: int, section: StepSection) -> list[Step]:
        """Check a step; a sweep is a step for each of its runs, and one that ranks them. Nothing if errors leave nothing to run."""
        path: KeyPath = ("steps", self._index(position))
        action = self._action(path, section)
        texts = [*([section.when] if section.when else []), *section.assertions]
        self._check_references(path, section, texts)
        when = self._condition((*path, "when"), section.when) if section.when else None
        assertions = [self._condition((*path, "assert", index), text) for index, text in enumerate(section.assertions)]
        for index, name in enumerate(section.needs):
            self._check_name((*path, "needs", index), name)
        if action is None:
            return []
        named = {each.step for each in [*action.references(), *references(texts), *references(section.inputs)]}
        named |= self._makers(action)
        needs = frozenset((named | set(section.needs)) - {section.name})
        kept = tuple(each for each in assertions if each)
        sweep = (section.sweep or action.job.sweep) if isinstance(action, JobAction) else None
        if sweep is None or sweep.is_empty or not isinstance(action, JobAction):
            return [Step(section.name, action, needs, when, kept)]
        trials = sweep.named_runs(action.job.seed)
        runs = [
            Step(f"{section.name}/{name}", self._run(path, section, action, trial), needs, when) for name, trial in trials.items()
        ]
        ranking = SweepAction(sweep, trials, action)
        return [*runs, Step(section.name, ranking, frozenset(run.name for run in runs), None, kept)]

    def _run(self, path: KeyPath, section: StepSection, action: JobAction, trial: Trial) -> JobAction:
        """Check the job of one run of a sweep."""
        changes = {**section.set, **trial.overrides, "sweep": {}}
        source = self._jobs[action.path]
        assert source is not None
        source = self._overridden(source, path, changes)
        job, findings = validate(source.data, action.path.parent, here=False)
        problems = [source.problem(finding) for finding in findings if finding.severity == "error"]
        self._problems += [problem for problem in problems if problem not in self._problems]
        return replace(action, overrides=changes, data=source.data, job=job or action.job, tolerated=(NOT_REACHED, Diverged.code))

    def _action(self, path: KeyPath, section: StepSection) -> Action | None:
        actions = section.actions
        unknown = [key for key in actions if key not in ("job", "command", *self._groups())]
        for key in unknown:
            near = did_you_mean(key, [*StepSection.model_fields, "assert", *self._groups()])
            legal = f"legal: {', '.join(key for key in StepSection.model_fields if key != 'assertions')}, assert, or a command of partrain"
            self._find(
                (*path, key), f"unknown key `{key}` in [[steps]]", f"did you mean `{near}`?" if near else legal, at_key=True
            )
        known = [key for key in actions if key not in unknown]
        if len(known) != 1:
            if not unknown:
                what = "does nothing" if not known else f"does {len(known)} things: {', '.join(known)}"
                self._find(path, f'step "{section.name}" {what}', "give it one of job, command, or a command of partrain")
            return None
        if section.set and known != ["job"]:
            self._find((*path, "set"), "`set` changes a job; this step has none", "remove it", at_key=True)
        if section.sweep and known != ["job"]:
            self._find((*path, "sweep"), "`sweep` varies a job; this step has none", "remove it", at_key=True)
        if section.outputs and known != ["command"]:
            self._find((*path, "outputs"), "`outputs` belongs to a `command`", "remove it", at_key=True)
        if section.job is not None:
            return self._job((*path, "job"), section)
        if section.command is not None:
            return ProgramAction(section.name, section.command, section.inputs, section.outputs, self._folder)
        return self._command((*path, known[0]), section, known[0])

    def _groups(self) -> set[str]:
        return {name.partition(" ")[0] for name in self._commands}

    def _command(self, path: KeyPath, section: StepSection, key: str) -> Action | None:
        options = (section.model_extra or {})[key]
        if key not in self._commands:  # a group of commands: data.convert = {...}
            members = [name.partition(" ")[2] for name in self._commands if name.startswith(f"{key} ")]
            if not isinstance(options, dict) or len(options) != 1 or next(iter(options)) not in members:
                self._find(
                    path, f"`{key}` is a group of commands", f"write {key}.{members[0]} = {{...}}; there are {', '.join(members)}"
                )
                return None
            member = next(iter(options))
            path, key, options = (*path, member), f"{key} {member}", options[member]
        if not isinstance(options, dict):
            self._find(path, f"`{key}`: expected a table of its options, got {describe_value(options)}")
            return None
        spec = self._commands[key]
        for option, message, suggestion in spec.problems(options):
            self._find((*path, option) if option else path, message, suggestion, at_key=bool(option))
        return CommandAction(spec, options, self._folder, [self._folder / each for each in section.inputs])

    def _job(self, path: KeyPath, section: StepSection) -> Action | None:
        """Check a job with its overrides. What other steps make may be missing yet."""
        assert section.job is not None
        file = self._folder / section.job
        source = self._job_source(path, file)
        if source is None:
            return None
        base = path[:-1]
        source = self._overridden(source, base, section.set)
        made_here = any(references(section.set)) or self._reads_outputs(source.data, file.parent)
        job, findings = validate(source.data, file.parent, here=not made_here)
        problems = [source.problem(finding) for finding in findings]
        self._problems += [problem for problem in problems if problem not in self._problems]
        if job is None:
            return None
        return JobAction(file, section.set, source.data, job, [self._folder / each for each in section.inputs])

    def _job_source(self, path: KeyPath, file: Path) -> TomlSource | None:
        if file not in self._jobs:
            self._jobs[file] = None
            try:
                self._jobs[file] = TomlSource.read(file)
            except InputMissing as missing:
                self._findings.append(FileFinding(path, missing.message))
            except Rejected as rejected:
                self._problems += rejected.problems
        return self._jobs[file]

    def _overridden(self, source: TomlSource, base: KeyPath, overrides: Mapping[str, Any]) -> TomlSource:
        for key, value in overrides.items():
            places: dict[KeyPath, Position] = {}
            prefix = next(
                (place for place in ((*base, "sweep", key), (*base, "sweep", "zip", key)) if place in self._source.positions),
                (*base, "set", key),
            )
            for path, position in self._source.positions.items():
                if path[: len(prefix)] == prefix and (prefix[2] == "set" or path == prefix):
                    places[path[len(prefix) :]] = position
            try:
                source = changed(source, [(key, value, places)])
            except (TomlRefused, NotToml) as refused:
                message = (
                    refused.message if isinstance(refused, TomlRefused) else 'expected the key of a job, as in "stop.rounds"'
                )
                self._find(prefix, f"`{key}`: {message}", at_key=True)
        return source

    def _reads_outputs(self, data: Mapping[str, Any], folder: Path) -> bool:
        """Tell if the job's data come from a step of this file."""
        made = {(self._folder / each).resolve() for section in self._sections for each in section.outputs}
        return any(path.resolve() in made for path in data_files(data.get("dataset"), folder))

    def _makers(self, action: Action) -> set[str]:
        """Return the steps that write files which a step reads without naming the steps."""
        if isinstance(action, JobAction):
            read = [*data_files(action.data.get("dataset"), action.path.parent), *action.more_inputs]
        elif isinstance(action, CommandAction):
            read = [*action.spec.paths(action.options, "input", action.base), *action.more_inputs]
        else:
            read = [self._folder / each for each in getattr(action, "reads", ())]
        paths = {path.resolve() for path in read}
        made = ((section.name, each) for section in self._sections for each in section.outputs)
        return {name for name, each in made if (self._folder / each).resolve() in paths}

    # Names of steps

    def _check_name(self, path: KeyPath, name: str) -> bool:
        raw = self._source.data.get("steps")
        if name in self._names or any(isinstance(each, dict) and each.get("name") == name for each in raw or ()):
            return True
        near = did_you_mean(name, self._names)
        self._find(
            path, f'no step "{shown(name, 60)}"', f'did you mean "{near}"?' if near else f"steps: {', '.join(self._names)}"[:200]
        )
        return False

    def _check_references(self, path: KeyPath, section: StepSection, texts: Sequence[str]) -> None:
        """Check that each reference names a step, at the innermost value that holds it."""
        raw = self._source.data["steps"][path[1]]
        for place, text in _texts(raw, path):
            for reference in references(text):
                own = reference.step == section.name and not (place[2] in ("command", "assert") and reference.is_path)
                if self._check_name(place, reference.step) and own:
                    self._find(place, f"`{reference}` names a result of the step itself", "")

    def _condition(self, path: KeyPath, text: str) -> Condition | None:
        try:
            return Condition.parse(text)
        except BadCondition as error:
            self._find(path, str(error))
            return None

    # The graph

    def _order(self, steps: Sequence[Step]) -> list[str]:
        """Sort the steps; a circle is an error that shows it."""
        number = {step.name: index for index, step in enumerate(steps)}
        graph = {step.name: sorted(step.needs & number.keys()) for step in steps}
        sorter = TopologicalSorter(graph)
        try:
            sorter.prepare()
        except CycleError as circle:
            names = list(reversed(circle.args[1]))
            names = [name for name in names if "/" not in name]
            position = self._names[names[0]]
            self._find(("steps", self._index(position), "name"), f"steps wait for each other in a circle: {' → '.join(names)}")
            return []
        order: list[str] = []
        ready: list[int] = []
        while sorter.is_active():  # of the steps that can come next, the first of the file
            for name in sorter.get_ready():
                heappush(ready, number[name])
            name = steps[heappop(ready)].name
            order.append(name)
            sorter.done(name)
        return order

    def _check_outputs(self) -> None:
        """Refuse two steps that write one path."""
        makers: dict[Path, str] = {}
        for position, section in enumerate(self._sections):
            for index, each in enumerate(section.outputs):
                if any(references(each)):
                    continue
                path = (self._folder / each).resolve()
                other = makers.setdefault(path, section.name)
                if other != section.name:
                    place = ("steps", self._index(position), "outputs", index)
                    self._find(place, f'step "{other}" writes {shown(each, 60)} too', "let each step write a file of its own")


def _texts(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """Iterate over the texts in a value, with their paths."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _texts(each, (*path, key))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _texts(each, (*path, index))
