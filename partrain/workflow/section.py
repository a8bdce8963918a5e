"""The tables of a workflow file: `[[steps]]`, each with a job, a command of partrain or a program."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from partrain.config.section import Section
from partrain.job.sweep import SweepSection

STEP_NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$"


class StepSection(Section):
    """One `[[steps]]` table. Exactly one further key says what it does: `job`, `command`, or the name of a command of partrain."""

    model_config = ConfigDict(extra="allow")

    name: str = Field(pattern=STEP_NAME)
    """Also its folder in the workflow's folder."""
    needs: list[str] = Field(default_factory=list)
    """Steps that come first. A step that names what another made needs that one without saying so."""
    when: str | None = None
    """Condition on recorded numbers, as in "{pretrain.test.accuracy} < 0.9". The step is skipped if it does not hold."""
    assertions: list[str] = Field(default_factory=list, alias="assert")
    """Conditions on this step's summary, as in "test.accuracy >= 0.9". The step fails with exit code 1 if one does not hold."""
    inputs: list[str] = Field(default_factory=list)
    """Files and folders that the step reads, beside those that are known already."""
    outputs: list[str] = Field(default_factory=list)
    """Files and folders that a program writes."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Overrides of a job, as with `--set`."""
    sweep: SweepSection | None = None
    """Trials of a job: the job is trained once for each."""
    job: str | None = None
    """A job file; relative paths start from the workflow file's folder."""
    machines: int = Field(1, ge=1)
    """Machines that train a job together. More than one needs a `launcher`, which starts the job on each."""
    launcher: list[str] = Field(default_factory=list)
    """Words before `run JOB.toml`, as in ["srun", "--nodes=2", "torchrun", "--nnodes=2", "-m", "partrain"]."""
    command: list[str] | None = Field(None, min_length=1)
    """A program with its arguments. It runs in the workflow file's folder."""

    @property
    def actions(self) -> list[str]:
        """The keys that say what the step does."""
        return [key for key in ("job", "command") if getattr(self, key) is not None] + list(self.model_extra or {})


class WorkflowSection(Section):
    """A workflow file."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    """Name of the workflow: its folder is `runs/<name>/`."""
    steps: list[StepSection] = Field(min_length=1, max_length=5000)
