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
from torch.nn import Module

from benchmarks.audit import network as user_code
from benchmarks.audit.replica import Replica, Vector, arrays

ROOT = Path(__file__).parents[2]
Batch = Sequence[int]
"""Identities of the items of one forward pass."""

JOB = """
name = "audit"
seed = 5
model = {{name = "network.py:{network}", record = "{record}"{model}}}
dataset = {{{items}{dataset}}}
{optimizer}
sync = {{{sync}}}
workers = [{workers}]
stop = {{rounds = {rounds}}}
{more}
"""

LEAST_MOVE = 0.05
"""Smallest change of any training's parameters: a training that stands still would agree with everything."""


@dataclass(frozen=True)
class Training:
    """A finished training."""

    run: Path
    """The run folder."""
    rounds: list[list[list[Batch]]]
    """The batches that `forward` saw, by round, worker and iteration. Empty if workers have no equal number of them in each round."""
    params: Vector
    """Parameters and floating-point buffers of the network at the end, from the checkpoint."""
    seen: list[int]
    """Items that `forward` saw, by worker."""
    counted: list[int]
    """Item-iterations of each worker in the summary."""
    held_out: set[int]
    """Items that `forward` saw outside training."""
    rates: list[float]
    """Learning rate of the last iteration of each round, by the events of worker 0."""
    summary: dict[str, Any]
    """The run's summary.json."""


class Trainings:
    """All trainings of an audit, each in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.done: list[Training] = []
        self._by_job: dict[str, Training] = {}

    def run(
        self,
        sync: str,
        optimizer: str | None,
        workers: str = "{count = 2}",
        rounds: int = 4,
        dataset: str = "",
        network: str = "Network",
        items: str = 'name = "network.py:Items"',
        model: str = "",
        more: str = "",
    ) -> Training:
        """Train by a job of these tables, once, and read back what `forward` saw, the counts and the network."""
        key = repr((sync, optimizer, workers, rounds, dataset, network, items, model, more))
        if key in self._by_job:
            return self._by_job[key]
        folder = self.folder / str(len(self.done))
        record = folder / "seen"
        record.mkdir(parents=True)
        shutil.copy(user_code.__file__, folder / "network.py")
        table = f"optimizer = {{{optimizer}}}" if optimizer else ""
        job = JOB.format(
            network=network, record=record, model=model, items=items, dataset=dataset, optimizer=table, sync=sync,
            workers=workers, rounds=rounds, more=more,
        )  # fmt: skip
        (folder / "job.toml").write_text(job)
        partrain("run", folder / "job.toml", "--out", folder / "run", "--quiet")
        training = read_training(folder / "run", record, rounds, network)
        if np.abs(training.params - Replica(network=getattr(user_code, network)).state).max() < LEAST_MOVE:
            raise RuntimeError(f"the parameters hardly moved: nothing is compared by\n{job}")
        self.done.append(training)
        self._by_job[key] = training
        return training

    def resumed(self, training: Training, round: int, network: str = "Network") -> Training:
        """Continue a training from its checkpoint after a round, in another folder. The job must keep all checkpoints."""
        start, folder = checkpoint_after(training.run, round), training.run.parent / f"resumed-after-{round}"
        partrain("resume", start, "--out", folder, "--trust-code", "--quiet")
        return read_training(folder, training.run.parent / "seen", training.summary["rounds"] - round, network)


def checkpoint_after(run: Path, round: int) -> Path:
    """Find the checkpoint of a round by the number that it holds."""
    for path in (run / "checkpoints").glob("*.h5"):
        if int(path.stem.rpartition("-")[2]) == round:
            return path
    raise RuntimeError(f"{run} has no checkpoint of round {round}")


def read_training(run: Path, record: Path, rounds: int, network: str) -> Training:
    """Read a run folder, and what `forward` saw in its last session of so many rounds."""
    summary, lines = json.loads((run / "summary.json").read_text()), events(run)
    batches = seen_by_worker(record, run / "events.jsonl")
    return Training(
        run=run,
        rounds=by_round(batches, rounds),
        params=params_of(run / "checkpoint.h5", getattr(user_code, network)()),
        seen=[sum(map(len, worker)) for worker in batches],
        counted=[worker["item_iterations"] for worker in summary["workers"]],
        held_out={item for batch in held_out_batches(record, run / "events.jsonl") for item in batch},
        rates=[event["lr"] for event in lines if event["event"] == "round" and event["rank"] == 0],
        summary=summary,
    )


def events(run: Path) -> list[dict[str, Any]]:
    """Read the events of a run."""
    return [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]


def partrain(*words: object) -> str:
    """Run a command of partrain, of the tree that this file is in; return its standard output."""
    command = [sys.executable, "-m", "partrain", *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def seen_by_worker(record: Path, events: Path, kind: str = "") -> list[list[Batch]]:
    """Read the batches of each worker, by rank. The `start` event names the processes; the dry run's is not among them."""
    start: dict[str, Any] = json.loads(events.read_text().splitlines()[0])
    files = [record / f"{kind}{worker['pid']}.txt" for worker in start["workers"]]
    lines = [file.read_text().splitlines() if file.exists() or not kind else [] for file in files]
    return [[[int(item) for item in line.split()] for line in worker] for worker in lines]


def held_out_batches(record: Path, events: Path) -> list[Batch]:
    """Read the batches that the workers evaluated, in the order of ranks."""
    return [batch for worker in seen_by_worker(record, events, "held-out-") for batch in worker]


def by_round(batches: list[list[Batch]], rounds: int) -> list[list[list[Batch]]]:
    """Divide each worker's batches evenly among the rounds."""
    if any(len(worker) % rounds for worker in batches):
        return []
    lengths = [len(worker) // rounds for worker in batches]
    return [[w[r * n : (r + 1) * n] for w, n in zip(batches, lengths, strict=True)] for r in range(rounds)]


def params_of(checkpoint: Path, network: Module) -> NDArray[np.float64]:
    """Read the network of a checkpoint, a plain HDF5 file, as one vector in the order of `arrays`."""
    with h5py.File(checkpoint) as file:
        return np.concatenate([file[f"model/{name}"][()].ravel() for name in arrays(network)])
