"""The whole job: one TOML file, composed of the tables that the modules own."""

from __future__ import annotations

from pydantic import Field

from partrain.comm import Transport
from partrain.data import AnyDataset
from partrain.data.partition import Partition
from partrain.models import AnyModel, Task
from partrain.optim import AnyOptimizer
from partrain.retention import Retention
from partrain.rules import AnyRule
from partrain.section import Section
from partrain.stop import Stop
from partrain.workforce import WorkerGroup


class Job(Section):
    """A job file."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    seed: int = Field(0, ge=0, lt=2**63)
    model: AnyModel
    dataset: AnyDataset
    partition: Partition = Partition()
    task: Task | None = None
    optimizer: AnyOptimizer = Field(discriminator="name")
    sync: AnyRule
    workers: list[WorkerGroup] = Field(min_length=1, max_length=1000)
    transport: Transport = Transport()
    stop: Stop
    checkpoint: Retention = Retention()
