"""Load a job file: read it, apply overrides, check it, and reject it with all its problems."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from partrain import data
from partrain.config.overrides import SET, Flag, as_toml, override
from partrain.config.problems import FileFinding, Finding, Problem, Rejected, UnfitOverrides, Unreadable, WrongValue, by_line
from partrain.config.toml_source import TomlSource
from partrain.data import Dataset, DatasetSpec
from partrain.data.base import Allocate
from partrain.data.fetch import TransferReport
from partrain.job import checks
from partrain.job.schema import Job, tables_of
from partrain.system.startup import STARTUP_LIMIT_S

__all__ = ["Job", "LoadedJob", "check_against_data", "load", "load_dataset", "locating", "parse", "problems"]


@dataclass(frozen=True)
class LoadedJob:
    """A valid job, and its origin."""

    job: Job
    source: TomlSource
    folder: Path
    """Folder where relative data paths start."""
    warnings: list[Problem]

    @property
    def text(self) -> str:
        """The TOML text with overrides applied."""
        return self.source.text

    def edited(self, name: str, edit: Callable[[dict[str, Any]], object], *, resuming: bool = False) -> LoadedJob:
        """Return the job after `edit` has changed its tables in place, checked for this machine; messages call it `name`."""
        tables = tomllib.loads(self.text)
        edit(tables)
        return parse(as_toml(tables), self.folder, name, local=True, resuming=resuming)

    def located(self, wrong: WrongValue) -> Rejected:
        """Return the error with its place in the job."""
        return Rejected([self.source.problem(wrong.finding)], wrong.detail)


def load(
    path: str | os.PathLike[str],
    overrides: Sequence[str] = (),
    *,
    text: str | os.PathLike[str] | None = None,
    resuming: bool = False,
) -> LoadedJob:
    """Load a job file with `--set` arguments applied, and check it for this machine.

    `text`: another file, which holds the text of the job; paths in it start at the folder of `path`.
    `resuming`: a checkpoint may continue the job, which then does not need the file that the network starts `from`.
    Raises InputMissing (66) if there is no file to read, and Rejected, a BadJob (78), with all problems if there are errors. If the only
    errors are missing data files, it raises the Rejected called Unreadable, with the exit code of InputMissing.
    """
    try:
        return _check(
            override(TomlSource.read(text or path), overrides), Path(path).absolute().parent, local=True, resuming=resuming
        )
    except UnfitOverrides as misfit:  # find further problems without them
        raise Rejected([*misfit.problems, *problems(path, misfit.fitting)]) from None


def parse(
    text: str,
    folder: Path,
    name: str = "<checkpoint>",
    *,
    local: bool = False,
    overrides: Sequence[str] = (),
    flag: Flag = SET,
    resuming: bool = False,
) -> LoadedJob:
    """Load a job from its text, changed by the arguments of an option `flag`.

    Check against this machine only if `local`, and check the file that the network starts `from` unless `resuming`.
    """
    return _check(override(TomlSource.parse(text, name), overrides, flag), folder, local=local, resuming=resuming)


def check_against_data(loaded: LoadedJob, spec: DatasetSpec, drawn: Sequence[int] = ()) -> None:
    """Raise `Rejected` if a job contradicts its data set, whose `spec` may be known only after loading, or `drawn` sizes of partitions."""
    if errors := [finding for finding in checks.check_data(tables_of(loaded.job), spec, drawn) if finding.severity == "error"]:
        raise Rejected([loaded.source.problem(finding) for finding in errors])


@contextmanager
def locating(loaded: LoadedJob) -> Iterator[None]:
    """Add the place in the job to a value that turns out wrong after loading."""
    try:
        yield
    except WrongValue as wrong:
        raise loaded.located(wrong) from None


def load_dataset(
    loaded: LoadedJob, allocate: Allocate | None = None, report: TransferReport | None = None, *, in_memory: bool = True
) -> Dataset:
    """Load the data set of a job; see `data.load`.

    Raises Stalled if user code yields no item for the longer of `stall_seconds` and STARTUP_LIMIT_S.
    """
    from partrain.data.user.pipe import waiting_at_most

    job = loaded.job
    with waiting_at_most(max(job.transport.stall_seconds, STARTUP_LIMIT_S)):
        return data.load(job.dataset, loaded.folder, allocate, job.training, report, in_memory=in_memory)


def problems(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> list[Problem]:
    """List all errors and warnings of a job file by line. Raises InputMissing if there is no job file to read."""
    try:
        return load(path, overrides).warnings
    except Rejected as rejected:
        return rejected.problems


def _check(text: TomlSource, folder: Path, *, local: bool, resuming: bool = False) -> LoadedJob:
    job, findings = validate(text.data, folder, local=local, resuming=resuming)
    problems = [text.problem(finding) for finding in findings]
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors and all(isinstance(finding, FileFinding) for finding in errors):
        raise Unreadable(problems)
    if job is None or errors:
        raise Rejected(problems)
    return LoadedJob(job, text, folder, by_line(problems))


def validate(data: dict[str, Any], folder: Path, *, local: bool, resuming: bool = False) -> tuple[Job | None, list[Finding]]:
    """Check a job's data, and with `local` this machine: return the job (None if a table is invalid), all findings.

    A job that resumes needs no file to start from.
    """
    job, tables, findings = _validate(data)
    if "optimizer" not in tables and "sync" in tables and tables["sync"].full_batch:
        findings = [finding for finding in findings if finding.path[:1] != ("optimizer",)]  # the table has no effect
    findings += checks.check_job(tables)
    findings += checks.check_machine(tables, folder) if local else ()
    named = [getattr(tables.get(name), "name", "") for name in ("model", "dataset", "task")]
    named += [*(getattr(tables.get("task"), "metrics", None) or ()), getattr(tables.get("hooks"), "after_judgement", "")]
    if local and any(set(":<") & set(str(name)) for name in named):
        from partrain.job.code_checks import check_code, stream_in  # few jobs name code

        findings += check_code(tables, folder)
        findings += checks.check_stream(tables, stream) if (stream := stream_in(tables, folder)) else ()
    findings += checks.check_start(tables, folder) if local and not resuming else ()
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
