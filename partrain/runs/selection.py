"""Selection and order of runs: conditions such as `accuracy > 0.9`, keys to sort by, and the settings in which runs differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from partrain.config.overrides import flatten
from partrain.config.problems import did_you_mean, shown
from partrain.errors import InputMissing
from partrain.record.run_folder import STATUSES
from partrain.runs.conditions import BadCondition, Condition
from partrain.runs.listing import COLUMNS, ListedRun
from partrain.runs.references import Reference

T = TypeVar("T")
UNSAID = object()
"""The value of a key that a job does not mention."""


class BadSelection(ValueError):
    """An invalid condition or sort key: one line for the user."""


def parse_condition(text: str) -> Condition:
    """Parse a condition on the numbers of one run. Raises `BadSelection`."""
    try:
        condition = Condition.parse(text)
    except BadCondition as error:
        raise BadSelection(f"`{shown(text, 80)}`: {error}") from None
    if condition.references:
        raise BadSelection(f"`{shown(text, 80)}`: only steps of a workflow may name other steps in braces")
    return condition


def holds(condition: Condition, numbers: Mapping[str, Any]) -> bool:
    """Return whether a condition holds for the numbers of a run. A number that the run lacks satisfies no comparison."""
    return condition.holds(dict.fromkeys(condition.names) | dict(numbers), _no_steps)


def values_of(condition: Condition, numbers: Mapping[str, Any]) -> str:
    """Return the numbers that a condition names, for a message."""
    values = condition.values(dict.fromkeys(condition.names) | dict(numbers), _no_steps)
    return ", ".join(f"{name} is {'missing' if value is None else f'{value:g}' if isinstance(value, float) else value}"
                     for name, value in values.items())  # fmt: skip


def check_names(names: Iterable[str], legal_names: Iterable[str]) -> None:
    """Check that some run recorded each of these numbers. Raises `BadSelection` with the nearest name."""
    legal_keys = dict.fromkeys(legal_names)
    for name in names:
        if name not in legal_keys:
            near = did_you_mean(name, legal_keys) or next((key for key in legal_keys if key.endswith(f".{name}")), "")
            legal = ", ".join(key for key in legal_keys if not key.startswith("workers."))
            more = f"did you mean `{near}`?" if near else f"there are {shown(legal, 300)}; words stand in quotes"
            raise BadSelection(f"no run has `{shown(name, 60)}`: {more}")


def ordered(rows: Sequence[T], key: str, numbers: Callable[[T], Mapping[str, Any]]) -> list[T]:
    """Sort rows by a number or word; `-KEY` puts the largest first. Rows without it come last. Raises `BadSelection`."""
    name = key.removeprefix("-")
    check_names([name], (number for row in rows for number in numbers(row)) if rows else [name])
    measured = [row for row in rows if numbers(row).get(name) is not None]
    measured.sort(key=lambda row: _sortable(numbers(row)[name]), reverse=key.startswith("-"))
    return [*measured, *(row for row in rows if numbers(row).get(name) is None)]


def statuses(texts: Sequence[str]) -> set[str]:
    """Return the statuses that the user names, each text possibly several with commas. Raises `BadSelection`."""
    words = [word.strip() for text in texts for word in text.split(",")]
    for word in words:
        if word not in STATUSES:
            near = did_you_mean(word, STATUSES)
            raise BadSelection(
                f"unknown status `{word}`; " + (f"did you mean `{near}`?" if near else f"known: {', '.join(STATUSES)}")
            )
    return set(words)


def fulfilling(runs: Sequence[ListedRun], texts: Sequence[str]) -> list[ListedRun]:
    """Return the runs for which all conditions hold. Raises `BadSelection`."""
    conditions = [parse_condition(text) for text in texts]
    names = [name for condition in conditions for name in condition.names]
    numbers = _numbers(runs, names)
    if runs:
        check_names(names, (name for run in runs for name in numbers(run)))
    return [run for run in runs if all(holds(condition, numbers(run)) for condition in conditions)]


def sorted_runs(runs: Sequence[ListedRun], key: str) -> list[ListedRun]:
    """Sort runs by a column, a number of the summary or a key of the job. Raises `BadSelection`."""
    return ordered(runs, key, _numbers(runs, [key.removeprefix("-")]))


def _numbers(runs: Sequence[ListedRun], names: Sequence[str]) -> Callable[[ListedRun], Mapping[str, Any]]:
    """Return a function for the numbers of a run; it includes the job's settings if some name is not a number."""
    legal_keys = set(COLUMNS).union(*(run.numbers for run in runs))
    if legal_keys.issuperset(names):
        return lambda run: run.numbers
    whole = {run.folder: dict(flatten(run.settings)) | run.numbers for run in runs}
    return lambda run: whole[run.folder]


def _sortable(value: Any) -> tuple[int, Any]:
    """Return a key that compares across types: numbers come before words."""
    if isinstance(value, list):
        value = " ".join(map(str, value))
    return (1, value) if isinstance(value, str) else (0, value)


def differences(jobs: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the keys in which jobs differ, with each job's value; jobs that do not mention a key are left out."""
    flat = {label: dict(flatten(job)) for label, job in jobs.items()}
    keys = {key: None for settings in flat.values() for key in settings}
    by_key = {}
    for key in keys:
        values = {label: settings.get(key, UNSAID) for label, settings in flat.items()}
        if key != "name" and any(value != next(iter(values.values())) for value in values.values()):
            by_key[key] = {label: value for label, value in values.items() if value is not UNSAID}
    return by_key


def _no_steps(reference: Reference) -> Any:
    raise InputMissing(f"{reference}: there are no steps")
