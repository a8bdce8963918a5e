"""The graph of a workflow, as a tree with states, as a Mermaid diagram and as data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from partrain.display.workflow_table import seconds_text
from partrain.workflow.plan import Selection, folded, preview
from partrain.workflow.results import Results
from partrain.workflow.step import Workflow


def as_tree(workflow: Workflow, results: Results) -> list[str]:
    """Return the lines of a tree: each step below the last of the steps that it needs, with its state. A sweep is one step."""
    titles = {
        title.partition(" ")[0]: f"{title}: {_state(action, reason)}"
        for title, action, reason in folded(list(preview(workflow, results, Selection())))
    }
    needs = {name: set[str]() for name in titles}
    for step in workflow.steps.values():
        needs[step.sweep] |= {workflow.steps[name].sweep for name in step.needs} - {step.sweep}
    order = {name: number for number, name in enumerate(titles)}
    below: dict[str | None, list[str]] = {}
    for name in titles:
        below.setdefault(max(needs[name], key=order.__getitem__, default=None), []).append(name)

    def _took(name: str) -> str:
        seconds = sum(
            record.seconds for step in workflow.steps.values() if step.sweep == name and (record := results.record(step.name))
        )
        return f", {seconds_text(seconds)}" if seconds else ""

    def branch(name: str | None, prefix: str) -> Iterator[str]:
        children = below.get(name, [])
        for number, child in enumerate(children):
            last = number == len(children) - 1
            more = sorted(needs[child] - {name}, key=order.__getitem__) if name else []
            also = f"  (also needs {', '.join(more)})" if more else ""
            yield f"{prefix}{'└─ ' if last else '├─ '}{titles[child]}{_took(child)}{also}"
            yield from branch(child, prefix + ("   " if last else "│  "))

    return [workflow.name, *branch(None, "")]


def as_mermaid(workflow: Workflow) -> list[str]:
    """Return the lines of a Mermaid flowchart."""
    number = {name: f"s{index}" for index, name in enumerate(workflow.steps)}
    lines = ["flowchart TD", *(f'    {number[name]}["{name}"]' for name in workflow.steps)]
    return [
        *lines,
        *(f"    {number[need]} --> {number[step.name]}" for step in workflow.steps.values() for need in sorted(step.needs)),
    ]


def as_document(workflow: Workflow, results: Results) -> dict[str, Any]:
    """Return the steps with their needs, states and recorded numbers."""
    states = _states(workflow, results)
    steps = []
    for step in workflow.steps.values():
        record = results.record(step.name)
        steps.append({
            "step": step.name, "needs": sorted(step.needs), "state": states[step.name],
            "seconds": record.seconds if record else None, "summary": record.summary if record else {},
        })  # fmt: skip
    return {"name": workflow.name, "folder": str(results.folder), "steps": steps}


def _states(workflow: Workflow, results: Results) -> dict[str, str]:
    """Return each step's state: `done`, or its next action and the reason."""
    return {name: _state(action, reason) for name, action, reason in preview(workflow, results, Selection())}


def _state(action: str, reason: str) -> str:
    words = {
        "skip": "done", "skipped": "skipped", "running": "running", "run": "to do", "maybe": "done, may run again", "refuse": "refused", "wait": "blocked",
    }  # fmt: skip
    return words[action] + (f" ({reason})" if reason not in ("unchanged", "") else "")
