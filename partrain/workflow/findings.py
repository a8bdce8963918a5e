"""Problems found by the checks of a workflow file, and the check of its structure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from partrain.config.problems import FileFinding, Finding, KeyPath, Problem, Rejected, Unreadable, did_you_mean
from partrain.config.toml_source import TomlSource
from partrain.job.messages import describe_value
from partrain.workflow.section import StepSection, WorkflowSection

_TYPES = {
    "string_type": "a string",
    "list_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "string_pattern_mismatch": "letters, digits, `-` and `_`, at most 100",
    "too_short": "at least one",
    "too_long": "at most 10,000",
}


class Findings:
    """The problems of a workflow file and of the jobs that it names."""

    def __init__(self, source: TomlSource) -> None:
        self._source = source
        self._findings: list[Finding] = []
        self._problems: list[Problem] = []

    def find(self, path: KeyPath, message: str, suggestion: str = "", *, at_key: bool = False) -> None:
        """Add a problem at a place of the file."""
        self._findings.append(Finding(path, message, suggestion, "key" if at_key else "value"))

    def missing(self, path: KeyPath, message: str) -> None:
        """Add a missing file."""
        self._findings.append(FileFinding(path, message))

    def add(self, problems: Iterable[Problem]) -> None:
        """Add problems of a job, each once."""
        self._problems += [problem for problem in dict.fromkeys(problems) if problem not in self._problems]

    def warnings(self) -> list[Problem]:
        """Return the problems. Raises `Rejected` if one is an error, `Unreadable` if all are missing files."""
        problems = [*(self._source.problem(finding) for finding in self._findings), *self._problems]
        if any(problem.severity == "error" for problem in problems):
            files_only = all(isinstance(finding, FileFinding) for finding in self._findings) and not self._problems
            raise (Unreadable if files_only else Rejected)(problems)
        return problems

    def validated(self) -> tuple[WorkflowSection | None, dict[int, StepSection]]:
        """Check the file's structure.

        Return the file, or None after an error; and the valid steps by their number in the file.
        """
        data = dict(self._source.data)
        try:
            section = WorkflowSection.model_validate(data)
            return section, dict(enumerate(section.steps))
        except ValidationError as error:
            errors = error.errors(include_url=False)
        for problem in errors:
            self._explain(problem["type"], tuple(problem["loc"]), problem["input"], problem.get("ctx", {}))
        bad = {error["loc"][1] if error["loc"][0] == "steps" and len(error["loc"]) > 1 else -1 for error in errors}
        steps = data.get("steps")
        if -1 in bad or not isinstance(steps, list):
            return None, {}
        return None, {number: StepSection.model_validate(step) for number, step in enumerate(steps) if number not in bad}

    def _explain(self, kind: str, path: KeyPath, value: Any, context: Mapping[str, Any]) -> None:
        """Turn one of pydantic's errors into a finding."""
        key = next((part for part in reversed(path) if isinstance(part, str)), "")
        if kind == "value_error":
            named = re.search(r"`([^`]+)`", str(context["error"]))
            at_key = named is not None and isinstance(value, dict) and named[1] in value
            self.find((*path, named[1]) if named and at_key else path, str(context["error"]), at_key=at_key)
        elif kind == "missing":
            self.find(path, f"missing key `{key}`", f'add {key} = "..."')
        elif kind == "extra_forbidden":
            near = did_you_mean(key, WorkflowSection.model_fields)
            self.find(path, f"unknown key `{key}`", f"did you mean `{near}`?" if near else "legal: name, steps", at_key=True)
        else:
            self.find(path, f"`{key}`: expected {_TYPES.get(kind, 'another value')}, got {describe_value(value)}")
