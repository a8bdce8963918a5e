"""Trainings by `partrain run`: worker processes over shared memory, as any user's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from benchmarks.audit import network
from benchmarks.audit.replica import Replica, Vector

ROOT = Path(__file__).parents[2]
Batch = Sequence[int]
"""Identities of the items of one forward pass."""

JOB = """
name = "audit"
seed = 5
model = {{name = "network.py:Network", record = "{record}"}}
dataset = {{name = "network.py:Items"{dataset}}}
{optimizer}
sync = {{{sync}}}
workers = [{workers}]
stop = {{rounds = {rounds}}}
"""

LEAST_MOVE = 0.05
"""Smallest change of any training's parameters: a training that stands still would agree with everything."""


@dataclass(frozen=True)
class Training:
    """A finished training."""

    rounds: list[list[list[Batch]]]
    """The batches that `forward` saw, by round, worker and iteration. Empty if workers have no equal number of them in each round."""
    params: Vector
    """Parameters of the network at the end, from the checkpoint."""
    seen: list[int]
    """Items that `forward` saw, by worker."""
    counted: list[int]
    """Item-iterations of each worker in the summary."""


class Trainings:
    """All trainings of an audit, each in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.done: list[Training] = []

    def run(self, sync: str, optimizer: str | None, workers: str = "{count = 2}", rounds: int = 4, dataset: str = "") -> Training:
        """Train by a job of these tables, and read back what `forward` saw, the counts and the network."""
        folder = self.folder / str(len(self.done))
        record = folder / "seen"
        record.mkdir(parents=True)
        shutil.copy(network.__file__, folder / "network.py")
        table = f"optimizer = {{{optimizer}}}" if optimizer else ""
        job = JOB.format(record=record, dataset=dataset, optimizer=table, sync=sync, workers=workers, rounds=rounds)
        (folder / "job.toml").write_text(job)
        summary = json.loads(partrain("run", folder / "job.toml", "--out", folder / "run", "--json"))
        batches = seen_by_worker(record, folder / "run" / "events.jsonl")
        training = Training(
            rounds=by_round(batches, rounds),
            params=params_of(folder / "run" / "checkpoint.h5"),
            seen=[sum(map(len, worker)) for worker in batches],
            counted=[worker["item_iterations"] for worker in summary["workers"]],
        )
        if np.abs(training.params - Replica().params).max() < LEAST_MOVE:
            raise RuntimeError(f"the parameters hardly moved: nothing is compared by\n{job}")
        self.done.append(training)
        return training


def partrain(*words: object) -> str:
    """Run a command of partrain, of the tree that this file is in; return its standard output."""
    command = [sys.executable, "-m", "partrain", *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def seen_by_worker(record: Path, events: Path) -> list[list[Batch]]:
    """Read the batches of each worker, by rank. The `start` event names the processes; the dry run's is not among them."""
    start: dict[str, Any] = json.loads(events.read_text().splitlines()[0])
    files = [record / f"{worker['pid']}.txt" for worker in start["workers"]]
    return [[[int(item) for item in line.split()] for line in file.read_text().splitlines()] for file in files]


def by_round(batches: list[list[Batch]], rounds: int) -> list[list[list[Batch]]]:
    """Divide each worker's batches evenly among the rounds."""
    if any(len(worker) % rounds for worker in batches):
        return []
    lengths = [len(worker) // rounds for worker in batches]
    return [[w[r * n : (r + 1) * n] for w, n in zip(batches, lengths, strict=True)] for r in range(rounds)]


def params_of(checkpoint: Path) -> NDArray[np.float64]:
    """Read the network of a checkpoint, a plain HDF5 file, as one vector in the order of `named_parameters`."""
    with h5py.File(checkpoint) as file:
        return np.concatenate([file[f"model/{name}"][()].ravel() for name in Replica().names])
