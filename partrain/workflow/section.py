"""The tables of a workflow file: `[[steps]]`, each with a job, a command of partrain or a program."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from partrain.config.section import Section
from partrain.job.sweep import SweepSection

STEP_NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$"


class StepSection(Section):
    """One `[[steps]]` table. It has exactly one of the keys `job`, `command`, or the name of a command of partrain."""

    model_config = ConfigDict(extra="allow")

    name: str = Field(pattern=STEP_NAME)
    """Name of the step, and of its folder in the workflow's folder."""
    needs: list[str] = Field(default_factory=list)
    """Steps that must run before this one. Steps whose results or `outputs` this step names come first anyway."""
    when: str | None = None
    """Condition on numbers of other steps, as in "{pretrain.test.accuracy} < 0.9". If it does not hold, the step is skipped."""
    assertions: list[str] = Field(default_factory=list, alias="assert")
    """Conditions on the summary of this step, as in "test.accuracy >= 0.9". If one does not hold, the step fails with
    exit code 1."""
    inputs: list[str] = Field(default_factory=list)
    """Files and folders that the step reads, in addition to those named by its other keys. The step runs again if they change."""
    outputs: list[str] = Field(default_factory=list)
    """With `command`: files and folders that the program writes."""
    set: dict[str, Any] = Field(default_factory=dict)
    """With `job`: changed values of keys of the job, as with `--set`. `"~key" = true` removes a key."""
    sweep: SweepSection | None = None
    """With `job`: train the job with many settings, as the table `[sweep]` of a job does."""
    job: str | None = None
    """A job file to train, relative to the workflow file."""
    machines: int = Field(1, ge=1)
    """With `job`: number of machines that train together. More than one needs a `launcher`, which starts the job on each."""
    launcher: list[str] = Field(default_factory=list)
    """With `job`: words before `run JOB.toml`, as in ["srun", "--nodes=2", "torchrun", "--nnodes=2", "-m", "partrain"]."""
    command: list[str] | None = Field(None, min_length=1)
    """A program with its arguments. It runs in the folder of the workflow file."""
    env: dict[str, str] = Field(default_factory=dict)
    """With `command`: environment variables. The step runs again if they change."""
    cores: int = Field(1, ge=1)
    """With `command`: number of cores that the program uses. A `job` uses the cores of its workers."""
    memory: int | None = Field(None, ge=1)
    """With `command`: bytes of memory that the program needs. Programs that together exceed the memory run one after another."""
    devices: list[str] = Field(default_factory=list)
    """With `command`: accelerators that the program uses, as "cuda:0". No other step uses them at the same time."""
    retries: int | None = Field(None, ge=0)
    """Number of retries after a failure, from the last checkpoint if the step trains. Default: `--retries`."""
    timeout: float | None = Field(None, gt=0)
    """Seconds after which the step ends as a failure. A training first finishes its round."""

    @property
    def actions(self) -> list[str]:
        """The keys that define the step's work."""
        return [key for key in ("job", "command") if getattr(self, key) is not None] + list(self.model_extra or {})


class WorkflowSection(Section):
    """A workflow file."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    """Name of the workflow: letters, digits, `.`, `_` and `-`. Its folder is `runs/<name>/`."""
    params: dict[str, Any] = Field(default_factory=dict)
    """Values by name for `{params.NAME}` in the steps. `--param NAME=VALUE` gives another value."""
    steps: list[StepSection] = Field(min_length=1, max_length=10_000)
