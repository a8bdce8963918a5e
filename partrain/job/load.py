"""Load a job file: read it, apply overrides, check it, and reject it with all its problems."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from partrain.config.overrides import SET, Flag, override
from partrain.config.problems import IN_PYTHON, FileFinding, Finding, Problem, Rejected, UnfitOverrides, Unreadable, by_line
from partrain.config.toml_source import TomlSource
from partrain.data import DatasetSpec
from partrain.job import checks
from partrain.job.schema import Job, tables_of

__all__ = ["Job", "LoadedJob", "check_against_data", "load", "parse", "problems"]


@dataclass(frozen=True)
class LoadedJob:
    """A job without errors, and its origin."""

    job: Job
    text: str
    """The TOML text, overrides applied."""
    folder: Path
    """Folder that relative data paths start from."""
    warnings: list[Problem]
    name: str = "job.toml"
    """Name of the text in messages: the run folder's file, or IN_PYTHON."""


def load(path: str | os.PathLike[str], overrides: Sequence[str] = (), resuming: bool = False) -> LoadedJob:
    """Load a job file with `--set` arguments applied, and check it for this machine.

    `resuming`: a checkpoint may continue it, which does not need the file that the network starts `from`.
    Raises InputMissing (66) if there is no file to read, and Rejected, a BadJob (78), with all problems if there are errors. If the only
    errors are data files that are missing, it raises the Rejected called Unreadable, whose exit code is that of InputMissing.
    """
    try:
        return _check(override(TomlSource.read(path), overrides), Path(path).absolute().parent, here=True, resuming=resuming)
    except UnfitOverrides as misfit:  # find further problems without them
        raise Rejected([*misfit.problems, *problems(path, misfit.fitting)]) from None


def parse(
    text: str,
    folder: Path,
    name: str = "<checkpoint>",
    here: bool = False,
    overrides: Sequence[str] = (),
    flag: Flag = SET,
    resuming: bool = False,
) -> LoadedJob:
    """Load a job from its text, changed by the arguments of an option `flag`.

    Check this machine only if it is to run `here`, and the file that the network starts `from` only unless it is `resuming`.
    """
    return _check(override(TomlSource.parse(text, name), overrides, flag), folder, here, resuming)


def check_against_data(loaded: LoadedJob, spec: DatasetSpec) -> None:
    """Raise `Rejected` if a job contradicts its data set, whose `spec` may be known only after loading."""
    if errors := [finding for finding in checks.check_data(tables_of(loaded.job), spec) if finding.severity == "error"]:
        text = TomlSource.parse(loaded.text, loaded.name)
        raise Rejected([text.problem(finding) for finding in errors])


def problems(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> list[Problem]:
    """List all errors and warnings of a job file by line. Raises InputMissing if there is no job file to read."""
    try:
        return load(path, overrides).warnings
    except Rejected as rejected:
        return rejected.problems


def _check(text: TomlSource, folder: Path, here: bool, resuming: bool = False) -> LoadedJob:
    job, findings = validate(text.data, folder, here, resuming)
    found = [text.problem(finding) for finding in findings]
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors and all(isinstance(finding, FileFinding) for finding in errors):
        raise Unreadable(found)
    if job is None or errors:
        raise Rejected(found)
    return LoadedJob(job, text.text, folder, by_line(found), IN_PYTHON if text.file.name == IN_PYTHON else "job.toml")


def validate(data: dict[str, Any], folder: Path, here: bool, resuming: bool = False) -> tuple[Job | None, list[Finding]]:
    """Check a job's data, and this machine only if the job is to run `here`: the job (None if a table is invalid), all findings.

    A job that resumes needs no file to start from.
    """
    job, tables, findings = _validate(data)
    findings += checks.check_job(tables)
    findings += checks.check_machine(tables, folder) if here else ()
    named = [getattr(tables.get(name), "name", "") for name in ("model", "dataset", "task")]
    named += [*(getattr(tables.get("task"), "metrics", None) or ()), getattr(tables.get("hooks"), "after_judgement", "")]
    if here and any(set(":<") & set(str(name)) for name in named):
        from partrain.job.code_checks import check_code  # few jobs name code

        findings += check_code(tables, folder)
    findings += checks.check_start(tables, folder) if here and not resuming else ()
    return job, findings


def _validate(data: dict[str, Any]) -> tuple[Job | None, checks.Tables, list[Finding]]:
    """Validate parsed TOML: the job (None if any table is invalid), its valid tables, and the findings."""
    try:
        job = Job.model_validate(data)
    except ValidationError as error:
        from partrain.job.validation_errors import explain

        tables, findings = explain(data, error)
        return None, tables, findings
    return job, tables_of(job), []
