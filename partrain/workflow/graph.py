"""The graph of a workflow, as a tree with states, as a Mermaid diagram and as data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from partrain.workflow.plan import Selection, preview
from partrain.workflow.results import Results
from partrain.workflow.step import Workflow


def as_tree(workflow: Workflow, results: Results) -> list[str]:
    """Return the lines of a tree: each step below the last of those that it needs, with its state."""
    states = _states(workflow, results)
    order = {name: number for number, name in enumerate(workflow.steps)}
    below: dict[str | None, list[str]] = {}
    for step in workflow.steps.values():
        below.setdefault(max(step.needs, key=order.__getitem__, default=None), []).append(step.name)

    def branch(name: str | None, prefix: str) -> Iterator[str]:
        children = below.get(name, [])
        for number, child in enumerate(children):
            last = number == len(children) - 1
            more = sorted(workflow.steps[child].needs - {name}, key=order.__getitem__) if name else []
            also = f"  (also needs {', '.join(more)})" if more else ""
            yield f"{prefix}{'└─ ' if last else '├─ '}{child}: {states[child]}{also}"
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
    """Return the steps with what they need, their states and recorded numbers."""
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
    """Return each step's state: `done`, or what it would do and why."""
    words = {"skip": "done", "run": "to do", "maybe": "done, may run again"}
    states = {}
    for name, action, reason in preview(workflow, results, Selection()):
        states[name] = words[action] + (f" ({reason})" if reason != "unchanged" else "")
    return states
