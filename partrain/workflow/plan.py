"""The decision whether a step runs, and its reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from partrain.config.problems import did_you_mean
from partrain.errors import CannotCreate, Failure, InputMissing
from partrain.number_format import counted
from partrain.record.run_folder import RunFolder, is_locked
from partrain.record.run_state import COMPLETED
from partrain.runs.tags import read_tags
from partrain.workflow.actions import CONTINUABLE, Prepared
from partrain.workflow.record import DONE, FAILED, RUNNING, STOPPED, VERSION, StepRecord, difference, free_place
from partrain.workflow.results import Results
from partrain.workflow.step import Step, Workflow

NEW = "has not run yet"
"""Reason to run a step for the first time."""


class WrongStep(Failure):
    """An option names a step that the workflow does not have."""

    code, name = 2, "usage"


class Protected(CannotCreate):
    """A step would replace a tagged run."""


@dataclass(frozen=True)
class Selection:
    """The steps that a command should run, by its options."""

    only: frozenset[str] = frozenset()
    start_at: str | None = None
    rerun: frozenset[str] = frozenset()

    def check(self, workflow: Workflow) -> None:
        """Raise `WrongStep` for a name that is not a step's."""
        for name in (*self.only, *self.rerun, *([self.start_at] if self.start_at else [])):
            if name not in workflow.steps:
                near = did_you_mean(name, workflow.steps)
                raise WrongStep(
                    f'no step "{name}"' + (f'; did you mean "{near}"?' if near else f"; steps: {', '.join(workflow.steps)}")
                )

    def steps(self, workflow: Workflow) -> set[str]:
        """Return the steps that may run. The results of the others must exist if needed."""
        if self.only:
            return self._with_runs(self.only, workflow)
        if self.start_at:
            return self._with_runs({self.start_at}, workflow) | workflow.dependents(self.start_at)
        return set(workflow.steps)

    def rerun_in(self, workflow: Workflow) -> set[str]:
        """Return the steps that run even if nothing has changed."""
        return self._with_runs(self.rerun, workflow)

    def _with_runs(self, names: Collection[str], workflow: Workflow) -> set[str]:
        """Add the runs of sweeps, whose names begin with the name of their step."""
        return {step.name for step in workflow.steps.values() if step.name in names or step.sweep in names}


@dataclass(frozen=True)
class Decision:
    """The decision about one step."""

    reason: str
    """Why the step runs; "" if it does not."""
    prepared: Prepared
    inputs: dict[str, str | None]
    """Digests of the step's inputs."""
    continuing: bool = False
    """An interrupted run in the step's folder continues."""
    remark: str = ""
    """A remark on the results, if the step does not run."""
    aside: Path | None = None
    """New place of the finished run in the step's folder, if another run takes this folder."""

    @property
    def text(self) -> str:
        """The reason, and the place of the finished run."""
        return f"{self.reason}; the finished run stays as {self.aside.name}" if self.aside else self.reason


def decide(step: Step, results: Results, rerun: Collection[str] = ()) -> Decision:
    """Decide whether a step runs, once all steps that it needs are settled.

    Raises:
        InputMissing: An input is missing.
        Protected: It would replace a tagged run.
    """
    folder = results.of_step(step.name)
    prepared = step.action.prepare(folder.absolute(), results)
    inputs = results.digests(prepared.inputs)
    record = results.record(step.name)
    continuing = False
    if step.name in rerun:
        reason = "asked for by --rerun"
    elif record is None:
        reason = NEW
    elif (change := _difference(step, record, prepared, inputs, results)) or (change := results.changed_source(record)):
        reason = change
    elif record.status != DONE:
        reason = {STOPPED: "was stopped", FAILED: f"failed: {record.message}"}.get(record.status, "was interrupted")
        continuing = record.status in CONTINUABLE
    else:
        reason = results.changed(record)
    if reason and not continuing and step.action.process != "none" and (tags := read_tags(folder)):
        raise Protected(
            f"{folder} has the tag `{tags[0]}` and stays, though the step would run again: {reason}; give --out another folder, "
            f"or take the tag away: partrain runs tag {folder} {' '.join(tags)} --remove"
        )
    replaced = reason and not continuing and step.name not in rerun and record is not None
    finished = (
        replaced and RunFolder(folder).summary.get("status") in COMPLETED
    )  # also by `partrain resume`, after the step was stopped
    aside = free_place(folder) if finished else None
    made_by, version = (record.settings if record else {}).get(VERSION), prepared.settings.get(VERSION)
    remark = f"made by partrain {made_by}" if made_by != version and not reason else ""
    return Decision(reason, prepared, inputs, continuing, remark, aside)


def preview(workflow: Workflow, results: Results, selection: Selection) -> Iterator[tuple[str, str, str]]:
    """Yield for each step its name, `run`, `running`, `skip`, `skipped` (by `when`), `maybe`, `refuse` or `wait`, and the reason.

    Changes nothing.
    """
    selected, moving, refused = selection.steps(workflow), set[str](), set[str]()
    running = is_locked(results.folder)
    for step in workflow.steps.values():
        if step.name not in selected:
            yield step.name, "skip", "not asked for"
            continue
        if held := sorted(step.needs & refused):
            refused.add(step.name)
            yield step.name, "wait", f"needs {', '.join(held)}"
            continue
        if running and (record := results.record(step.name)) and record.status == RUNNING:
            moving.add(step.name)
            yield step.name, "running", ""
            continue
        if waits := sorted(step.needs & moving):
            moving.add(step.name)
            change = _change(step, results)
            condition = f"if {step.when.text}" if step.when else ""
            reasons = [change.removeprefix(NEW), f"after {', '.join(waits)}", condition]
            yield step.name, "run" if change else "maybe", "; ".join(filter(None, reasons))
            continue
        try:
            if step.when and not step.when.holds({}, results.resolve):
                yield step.name, "skipped", f"{step.when.text} does not hold"
                continue
            decision = decide(step, results, selection.rerun_in(workflow))
        except (InputMissing, ValueError) as missing:
            yield step.name, "run", str(missing)
            continue
        except Protected as protected:
            refused.add(step.name)
            yield step.name, "refuse", protected.message
            continue
        if decision.reason:
            moving.add(step.name)
        yield (
            step.name,
            "run" if decision.reason else "skip",
            decision.text or ", ".join(filter(None, ("unchanged", decision.remark))),
        )


def _difference(step: Step, record: StepRecord, prepared: Prepared, inputs: dict[str, str | None], results: Results) -> str:
    """Describe the first change since a step's record; "" if nothing changed."""
    change = step.action.change(record.settings, prepared.settings)
    return change or difference(record, prepared.settings, inputs, results.shown)


def _change(step: Step, results: Results) -> str:
    """Return why a step will run however earlier steps end: it never ran, or ran with other settings; "" if unknown."""
    record = results.record(step.name)
    if record is None:
        return NEW
    try:
        prepared = step.action.prepare(results.of_step(step.name).absolute(), results)
        return _difference(step, record, prepared, record.inputs, results)
    except (InputMissing, ValueError):
        return ""


def folded(rows: Sequence[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Merge the runs of each sweep and its ranking into one row, with their number."""
    groups: dict[str, list[tuple[str, str, str]]] = {}
    for row in rows:
        groups.setdefault(row[0].partition("/")[0], []).append(row)
    return [group[0] if len(group) == 1 else _folded(name, group) for name, group in groups.items()]


def _folded(name: str, group: Sequence[tuple[str, str, str]]) -> tuple[str, str, str]:
    runs = [row for row in group if "/" in row[0]]
    counts = Counter(action for _, action, _ in runs)
    action = next((action for action in ("refuse", "running", "run", "wait", "maybe") if counts[action]), group[-1][1])
    deciding = runs if counts[action] else group  # perhaps only the ranking runs
    reasons = list(
        dict.fromkeys(reason for _, wanted, reason in deciding if wanted == action and not reason.startswith("after "))
    )
    reason = reasons[0] if len(reasons) == 1 else f"{reasons[0]}, ..." if reasons else ""
    further = f", {counts['maybe']} more perhaps" if action != "maybe" and counts["maybe"] else ""
    part = f"{counts[action]} of {len(runs)}{further}: " if 0 < counts[action] < len(runs) else ""
    return f"{name} ({counted(len(runs), 'run')})", action, part + reason


def failed_assertions(step: Step, record: StepRecord, results: Results) -> Sequence[str]:
    """Return the assertions of a step that do not hold, with the recorded numbers."""
    failures = []
    for condition in step.assertions:
        try:
            if condition.holds(record.summary, results.resolve):
                continue
            values = ", ".join(f"{name} = {value}" for name, value in condition.values(record.summary, results.resolve).items())
            failures.append(f"{condition.text} does not hold: {values}")
        except ValueError as unknown:
            failures.append(f"{condition.text}: {unknown}")
        except InputMissing as missing:
            failures.append(f"{condition.text}: {missing.message}")
    return failures
