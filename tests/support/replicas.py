"""Whole replicas in one process, from a job's text to the snapshot. Only the coordinator and the processes are replaced."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from support import lab
from torch import Tensor

from partrain.comm.arena import Arena
from partrain.comm.group import ArenaGroup
from partrain.job.load import parse
from partrain.job.plan import make_plan
from partrain.launch.folder.resume_point import ResumePoint
from partrain.launch.shared_dataset import load_shared
from partrain.launch.worker.messages import Message, Ready, SnapshotFilled
from partrain.launch.worker.process import WorkerProcess
from partrain.launch.worker.setup import ProcessSetup
from partrain.launch.worker.spec import ProcessSpec
from partrain.system.memory import memory_limits
from partrain.training.loop import Ending
from partrain.training.snapshot_layout import SlotMap
from partrain.training.stop import Progress

JOB = """
name = "replicas"
[model]
name = "mlp"
hidden = [6]
{model}
[engine]
compiled = false  # whose last bits are not those of a device
[dataset]
kind = "synthetic"
function = "blobs"
items = 75
test_items = 10
validation = 11
[optimizer]
{optimizer}
[sync]
iterations = 3
{sync}
[[workers]]
device = "{devices[0]}"
partition_size = 20
[[workers]]
device = "{devices[1]}"
partition_size = 44
iterations = {iterations}
[transport]
kind = "simulated"
[stop]
rounds = {rounds}
judge_every = 1
"""
CPUS = ("cpu", "cpu")
RESTLESS = "batch_norm = true\ndropout = 0.25"
PLAIN = 'name = "sgd"\nlr = 0.05\nbatch_size = 4'
MOMENTUM = PLAIN + "\nmomentum = 0.9"
MET = 2e-3, 2e-4
"""Relative and absolute bound of the difference that other last digits may grow to in a few iterations."""


@dataclass
class Coordinator:
    """The coordinator's part: free a slot when one is filled, and give out what a checkpoint held."""

    arena: Arena
    held: dict[str, NDArray[Any]]
    """The checkpoint's arrays, if there is one."""
    newest: dict[str, NDArray[Any]] | None = None
    """Arrays of the newest snapshot."""

    def send(self, message: Message) -> None:
        """As `Channel.send`."""
        if isinstance(message, Ready) and self.newest is None:
            self.map = SlotMap.from_json(message.map)
            self.slots = self.arena.map_slots(message.slots_at, self.map.size)
            self.newest = {}
            first = self.map.view(self.slots[0])
            for path, array in self.held.items():
                first[path][...] = array
            self.arena.put("granted", 1)
            self.arena.put("restored", 1)
        if isinstance(message, SnapshotFilled):
            self.newest = {path: view.copy() for path, view in self.map.view(self.slots[message.slot]).items()}
            self.arena.put("granted", message.slot + 1)


@dataclass
class Course:
    """The result of a training."""

    endings: list[Ending]
    arrays: dict[str, NDArray[Any]]

    def same(self, other: Course) -> bool:
        """Return whether every array has the same bits, and the scores are equal."""
        assert self.arrays.keys() == other.arrays.keys()
        equal = all(self.arrays[path].tobytes() == other.arrays[path].tobytes() for path in self.arrays)
        return equal and [one.test for one in self.endings] == [one.test for one in other.endings]

    def assert_near(self, other: Course, relative: float, absolute: float) -> None:
        """Assert equal numbers, up to rounding."""
        assert self.arrays.keys() == other.arrays.keys()
        for path, array in other.arrays.items():
            np.testing.assert_allclose(self.arrays[path], array, rtol=relative, atol=absolute, err_msg=path)


@dataclass
class Trainer:
    """Trains jobs in a folder."""

    folder: Path

    def __call__(
        self,
        devices: tuple[str, str],
        sync: str = 'rule = "average"',
        optimizer: str = MOMENTUM,
        model: str = RESTLESS,
        *,
        iterations: int = 3,
        rounds: int = 2,
        since: tuple[int, Course] | None = None,
    ) -> Course:
        """Train two workers; `since`: continue another course after a number of rounds."""
        text = JOB.format(devices=devices, sync=sync, optimizer=optimizer, model=model, iterations=iterations, rounds=rounds)
        loaded = parse(text, self.folder, local=True)
        job = loaded.job
        dataset, stock = load_shared(loaded)
        plan = make_plan(job, dataset.items)
        done = since[0] if since else 0
        coordinators: list[Coordinator] = []

        def work(group: ArenaGroup, row: Tensor) -> Ending:
            if not coordinators:
                coordinators.append(Coordinator(group.arena, since[1].arrays if since else {}))
            channel: Any = coordinators[0]
            progress = Progress(round=done, item_iterations=done * plan.items)
            order = ProcessSpec(
                job,
                self.folder,
                plan,
                (0, 1),
                range(2),
                None,
                None,
                Handed(stock),
                dataset.info,
                ResumePoint(progress, resuming=bool(since)),
                memory_limits(),
            )
            return WorkerProcess(group.rank, ProcessSetup(order), group.arena, group.transport, channel).train()

        endings = lab.simulate(2, work)
        os.close(stock)
        assert coordinators[0].newest
        return Course(endings, coordinators[0].newest)


@dataclass(frozen=True)
class Handed:
    """A memory file, as a process receives it."""

    descriptor: int

    def detach(self) -> int:
        return os.dup(self.descriptor)


def table(settings: dict[str, object]) -> str:
    """Write settings as lines of TOML."""

    def value(one: object) -> str:
        if isinstance(one, dict):
            return "{ " + ", ".join(f"{key} = {value(each)}" for key, each in one.items()) + " }"
        return json.dumps(one)

    return "\n".join(f"{key} = {value(one)}" for key, one in settings.items())


def optimizer_of(name: str) -> str:
    """Write an `[optimizer]` table with settings that only this optimizer has."""
    more = {"adam": "amsgrad = true", "rmsprop": "momentum = 0.9\ncentered = true", "adagrad": "lr_decay = 0.1"}.get(name, "")
    clip = "" if name == "rprop" else "clip_norm = 1.0\nclip_value = 0.5"
    batch = "" if name in ("rprop", "lbfgs") else "batch_size = 4"
    return "\n".join((f'name = "{name}"', "lr = 0.01", more, clip, batch))
