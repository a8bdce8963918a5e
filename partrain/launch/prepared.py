"""A run ready to begin: its job, data and plan."""

from __future__ import annotations

import os
from dataclasses import dataclass

from partrain.checkpoint.manifest import Manifest
from partrain.data import Dataset
from partrain.job.load import LoadedJob
from partrain.job.plan import Plan
from partrain.launch.initial_weights import InitialWeights


@dataclass(frozen=True)
class PreparedRun:
    """A run before its first process."""

    loaded: LoadedJob
    plan: Plan
    dataset: Dataset
    dataset_fd: int
    """Memory file of the data."""
    initial: InitialWeights | None
    """The arrays that the network starts from; None without a file, and on resume."""

    def close(self) -> None:
        """Close the memory files."""
        os.close(self.dataset_fd)
        if self.initial:
            os.close(self.initial.descriptor)


@dataclass(frozen=True)
class RecordedRun(PreparedRun):
    """A run whose checkpoints this machine writes: it is the only machine, or the first."""

    manifest: Manifest
