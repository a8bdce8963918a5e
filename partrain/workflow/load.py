"""Load a workflow: from its file, or from jobs on the command line. All problems are found before anything starts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from itertools import chain, count
from pathlib import Path
from typing import Any

from partrain.config.overrides import as_change, as_toml, value_of
from partrain.config.problems import KeyPath, Problem, Rejected, did_you_mean, shown
from partrain.config.toml_source import TomlSource
from partrain.errors import Failure, InputMissing
from partrain.job.load import load as load_job
from partrain.job.sweep import SweepSection, Trial
from partrain.record.summary import Summary
from partrain.runs.conditions import BadCondition, Condition
from partrain.runs.references import Reference, references, substitute
from partrain.tasks.kinds import KINDS
from partrain.workflow.actions import JobAction
from partrain.workflow.commands import Commands
from partrain.workflow.findings import Findings
from partrain.workflow.kinds import is_workflow
from partrain.workflow.section import StepSection
from partrain.workflow.step import Circular, Step, Workflow, in_order
from partrain.workflow.step_checks import StepChecks
from partrain.workflow.sweep import SweepAction
from partrain.workflow.tuning import TunedTrial, Tuner

PARAMS = "params"
"""Name of the workflow's parameters in references."""


class WrongParameter(Failure):
    """An option gives a parameter that the workflow does not have."""

    code, name = 2, "usage"


def load(path: Path, commands: Commands, params: Sequence[str] = ()) -> Workflow:
    """Load a workflow file with `--param` arguments.

    Raises `InputMissing` if there is none, `WrongParameter`, and `Rejected` with all problems if there are errors.
    """
    return _Loader(_with_params(TomlSource.read(path), params), path.absolute().parent, commands).workflow()


def _with_params(source: TomlSource, arguments: Sequence[str]) -> TomlSource:
    """Replace `{params.NAME}` by the values of `[params]` and of arguments `NAME=VALUE`."""
    table = source.data.get("params")
    params = dict(table) if isinstance(table, dict) else {}
    for argument in arguments:
        name, equals, text = argument.partition("=")
        if not equals or name not in params:
            near = did_you_mean(name, params)
            raise WrongParameter(
                f"--param {argument}: " + ("expected NAME=VALUE" if not equals else f"the workflow has no parameter `{name}`")
                + (f'; did you mean "{near}"?' if near else f"; [params] has {', '.join(params)}" if params else "; it has no [params]")
            )  # fmt: skip
        params[name] = value_of(text)
    if not params:
        return source

    def value(reference: Reference) -> Any:
        return params.get(reference.result, str(reference)) if reference.step == PARAMS else str(reference)

    return replace(source, data=source.data | {"steps": substitute(source.data.get("steps"), value)})


def of_jobs(paths: Sequence[Path], overrides: Sequence[str], commands: Commands) -> Workflow:
    """Make a workflow of jobs: each is a step named after its file. A folder means its `*.toml` files.

    Raises `InputMissing` if a file is missing, `Rejected` with all problems if there are errors.
    """
    files: list[Path] = []
    for path in paths:
        jobs = sorted(path.glob("*.toml")) if path.is_dir() else [path]
        if not jobs:
            raise InputMissing(f"{path} holds no *.toml")
        files += jobs
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
    values = dict(map(as_change, overrides))
    steps = [{"name": name, "job": str(file.absolute()), "set": values} for name, file in named.items()]
    text = as_toml(
        {"name": next(iter(named)) if len(paths) == 1 and not paths[0].is_dir() else "batch", "steps": steps}
    )  # no error can remain that its lines would have to show
    workflow = _Loader(TomlSource.parse(text, "the command line"), Path.cwd(), commands).workflow()
    return replace(workflow, warnings=problems)


class _Loader:
    """The checks of one workflow file: names, references, order, and files written by steps."""

    def __init__(self, source: TomlSource, folder: Path, commands: Commands) -> None:
        self._source, self._folder = source, folder
        self._findings = Findings(source)
        self._file, self._sections = self._findings.validated()
        self._names: dict[str, int] = {}
        self._makers: dict[Path, str] = {}
        """The steps that write files, by path."""
        self._check_names()
        self._check_outputs()
        self._checks = StepChecks(source, folder, commands, set(self._makers), self._findings)

    def workflow(self) -> Workflow:
        """Check the file and return the workflow. Raises `Rejected`."""
        steps = [step for number, section in self._sections.items() for step in self._steps(("steps", number), section)]
        try:
            steps = in_order(steps)
        except Circular as circle:
            self._findings.find(("steps", self._names[circle.first], "name"), str(circle))
        warnings = self._findings.warnings()
        assert self._file is not None
        return Workflow(self._file.name, self._source.text, self._folder, {step.name: step for step in steps}, warnings)

    def _check_names(self) -> None:
        for number, section in self._sections.items():
            if self._names.setdefault(section.name, number) != number:
                message = f'step "{section.name}" is there twice'
                self._findings.find(("steps", number, "name"), message, "give each its own name")

    def _check_outputs(self) -> None:
        """Refuse two steps that write one path. An output that a step's words name as its own is in the step's folder."""
        for number, section in self._sections.items():
            own = any(reference == (section.name, "output") for reference in references(section.command or []))
            for index, output in enumerate(section.outputs):
                if any(references(output)) or (own and not index):
                    continue
                other = self._makers.setdefault((self._folder / output).resolve(), section.name)
                if other != section.name:
                    message = f'step "{other}" writes {shown(output, 60)} too'
                    self._findings.find(("steps", number, "outputs", index), message, "let each step write a file of its own")

    def _steps(self, path: KeyPath, section: StepSection) -> list[Step]:
        """Check a step.

        A sweep becomes a step for each of its runs, and one that ranks them. Empty if errors leave nothing to run.
        """
        action = self._checks.action(path, section)
        texts = [*([section.when] if section.when else []), *section.assertions]
        self._check_references(path, section)
        when = self._condition((*path, "when"), section.when) if section.when else None
        assertions = [self._condition((*path, "assert", index), text) for index, text in enumerate(section.assertions)]
        for index, name in enumerate(section.needs):
            self._check_name((*path, "needs", index), name)
        if action is None:
            return []
        named = {reference.step for reference in [*action.references(), *references(texts), *references(section.inputs)]}
        makers = {self._makers.get(file.resolve(), "") for file in action.reads()}
        needs = frozenset((named | makers | set(section.needs)) - {section.name, ""})
        kept = tuple(assertion for assertion in assertions if assertion)
        step = Step(section.name, action, needs, when, kept, section.retries, section.timeout)
        sweep = (section.sweep or action.job.sweep) if isinstance(action, JobAction) else None
        if sweep is None or sweep.is_empty or not isinstance(action, JobAction):
            return [step]
        return self._sweep(path, step, action, sweep)

    def _sweep(self, path: KeyPath, step: Step, action: JobAction, sweep: SweepSection) -> list[Step]:
        """Return a step for each run of a sweep, and one that ranks them."""
        own = (action.job.task and action.job.task.lower_is_better) or ()
        if sweep.largest is None and sweep.by.rpartition(".")[2] in own:
            sweep = sweep.model_copy(update={"largest": False})
        self._check_by(path, action, sweep.by)
        trials = sweep.named_runs(action.job.seed)
        tuner = self._tuner(path, action, sweep, trials) if sweep.tuned else None
        runs = []
        for number, (name, trial) in enumerate(trials.items()):
            job = self._checks.trial(path, action, trial, first=not number)
            before = frozenset[str]()
            if tuner:
                job = replace(job, tuned=TunedTrial(tuner, trial.number))
                before = frozenset(f"{step.name}/{earlier}" for earlier in tuner.before(trial.number))
            runs.append(replace(step, name=f"{step.name}/{name}", action=job, needs=step.needs | before, assertions=()))
        ranking = SweepAction(sweep, trials, action, tuner)
        return [*runs, replace(step, action=ranking, needs=frozenset(run.name for run in runs), when=None)]

    def _check_by(self, path: KeyPath, action: JobAction, by: str) -> None:
        """Check before any training that the trials will record the metric that ranks them."""
        job = action.job
        place, _, name = by.rpartition(".")
        if (
            job.hooks.code
            or place not in ("", "metrics", "best.metrics", "test")
            or (not place and name in Summary.__annotations__)
        ):
            return  # a hook may add numbers
        judged = dict.fromkeys(("loss", "accuracy", *(job.task.judged if job.task else ())))
        if name not in judged and all(name not in kind.judged for kind in KINDS.values()):
            near = did_you_mean(name, judged)
            advice = f'did you mean "{near}"?' if near else f"the job judges {', '.join(judged)}; further ones: [task] metrics"
            self._checks.find_in_sweep(path, action, "by", f"no trial will record `{shown(by, 60)}`", advice)

    def _tuner(self, path: KeyPath, action: JobAction, sweep: SweepSection, trials: Mapping[str, Trial]) -> Tuner:
        """Check that all settings that a tuner may draw fit the job, and return the tuner."""
        if find_spec("optuna") is None:
            message = "trials are drawn by Optuna, which is not installed: pip install 'partrain[tune]'"
            self._checks.find_in_sweep(path, action, "sampler", message)
        for extreme in sweep.extremes():
            self._checks.trial(path, action, extreme)
        return Tuner(sweep, action.job.seed, trials)

    def _check_name(self, path: KeyPath, name: str) -> bool:
        raw = self._source.data.get("steps")
        if name in self._names or any(isinstance(entry, dict) and entry.get("name") == name for entry in raw or ()):
            return True
        near = did_you_mean(name, self._names)
        suggestion = f'did you mean "{near}"?' if near else f"steps: {', '.join(self._names)}"[:200]
        self._findings.find(path, f'no step "{shown(name, 60)}"', suggestion)
        return False

    def _check_references(self, path: KeyPath, section: StepSection) -> None:
        """Check that each reference names a step; errors point to the innermost value with the reference."""
        for place, text in _texts(self._source.data["steps"][path[1]], path):
            for reference in references(text):
                if reference.step == PARAMS and PARAMS not in self._names:
                    names = ", ".join(self._file.params if self._file else ()) or "nothing"
                    self._findings.find(place, f"no parameter `{reference.result}`", f"[params] has {names}")
                    continue
                own = reference.step == section.name and not (place[2] in ("command", "assert") and reference.is_path)
                if self._check_name(place, reference.step) and own:
                    self._findings.find(place, f"`{reference}` names a result of the step itself")

    def _condition(self, path: KeyPath, text: str) -> Condition | None:
        try:
            return Condition.parse(text)
        except BadCondition as error:
            self._findings.find(path, str(error))
            return None


def _texts(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """Iterate over the texts in a value, with their paths."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, (*path, index))
