"""The results of steps, as other steps name them: files and recorded numbers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from partrain.errors import InputMissing
from partrain.runs.conditions import UnknownNumber, lookup
from partrain.runs.references import Reference
from partrain.workflow.digests import Digests
from partrain.workflow.record import StepRecord
from partrain.workflow.step import Workflow

BASE = "{base}"
"""Prefix of the name of a file in the workflow file's folder, outside the folder of the results."""


class Results:
    """The results in a workflow's folder."""

    def __init__(self, workflow: Workflow, folder: Path, digests: Digests) -> None:
        self._workflow, self.folder, self._digests = workflow, folder, digests
        self._records: dict[str, StepRecord | None] = {}

    def of_step(self, name: str) -> Path:
        """Return the folder of a step."""
        return self.folder / name

    def record(self, name: str) -> StepRecord | None:
        """Return the record of a step; None if it has not run."""
        if name not in self._records:
            self._records[name] = StepRecord.read(self.of_step(name))
        return self._records[name]

    def store(self, name: str, record: StepRecord) -> None:
        """Write the record of a step."""
        record.write(self.of_step(name))
        self._records[name] = record

    def save(self) -> None:
        """Save the digests for the next run."""
        self._digests.save()

    def resolve(self, reference: Reference) -> Any:
        """Return the path or number that a reference names. Raises `InputMissing` if it does not exist."""
        record = self.record(reference.step)
        if reference.is_path:
            action = self._workflow.steps[reference.step].action
            written = [self._place(name) for name in (record.outputs if record else ())]
            return str(action.result(self.of_step(reference.step).absolute(), reference.result, written))
        try:
            return lookup(record.summary if record else {}, reference.result)
        except UnknownNumber as unknown:
            raise InputMissing(f"{reference}: {unknown}") from None

    def digest(self, reference: Reference) -> Any:
        """Return the digest of the file that a reference names, or the number."""
        value = self.resolve(reference)
        if reference.result == "folder":  # its log and times always differ
            steps = [step.name for step in self._workflow.steps.values() if step.sweep == reference.step]  # a sweep's runs too
            records = {name: record for name in steps if (record := self.record(name))}
            return {name: sorted(map(str, record.outputs.values())) for name, record in records.items()}
        return self._digests.of(Path(value)) if reference.is_path else value

    def digests(self, paths: Sequence[Path]) -> dict[str, str | None]:
        """Return the digests of files and folders by name.

        The name is the path relative to the folder of the results, or to the workflow file's, if the file is in one of them. So a
        copied or moved project has the same names, and so do results copied to another depth.
        """
        return {self._name(path): self._digests.of(path) for path in paths}

    def sources(self, files: Mapping[Path, str]) -> dict[str, str | None]:
        """Return the digests of user code files by name. None: a file is not the one that the step read."""
        now = {path: self._digests.of(path) for path in files}
        return {
            self._name(path): digest if (digest or "").startswith(f"sha256:{files[path]}") else None
            for path, digest in now.items()
        }

    def changed_source(self, record: StepRecord) -> str:
        """Return the first user code file that differs from the one that the step read; "" if all are the same."""
        for name, digest in record.sources.items():
            if digest is None or self._digests.of(self._place(name)) != digest:
                return f"{self.shown(name)} changed"
        return ""

    def changed(self, record: StepRecord) -> str:
        """Return the first output of a step that has changed since, with its state; "" if none has."""
        for name, digest in record.outputs.items():
            now = self._digests.of(self._place(name))
            if now is None or now != digest:
                return f"{self.shown(name)} {'is missing' if now is None else 'was changed by another program'}"
        return ""

    def shown(self, name: str) -> str:
        """Return the path of a named file as a person would type it."""
        path = self._place(name)
        return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)

    def _name(self, path: Path) -> str:
        path = Path(os.path.normpath(self._workflow.base / path))
        if path.is_relative_to(own := self.folder.absolute()):
            return os.path.relpath(path, own)
        return f"{BASE}/{os.path.relpath(path, self._workflow.base)}" if path.is_relative_to(self._workflow.base) else str(path)

    def _place(self, name: str) -> Path:
        """Return the path of a named file.

        Older records name files of the workflow file's folder relative to the folder of the results.
        """
        base, _, rest = name.partition("/")
        return Path(os.path.normpath(self._workflow.base / rest if base == BASE else self.folder.absolute() / name))
