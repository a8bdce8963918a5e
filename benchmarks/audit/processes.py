"""Two processes of torch.distributed over gloo that train as a user of another implementation would."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from benchmarks.audit.replica import Replica, Vector
from benchmarks.audit.trainings import Batch, Training

Loop = Callable[..., None]
"""A loop of one process: its replica, its batches by iteration, further settings."""


def in_processes(loop: Loop, training: Training, optimizer: Any, **settings: Any) -> Vector:
    """Run a loop in one process for each worker of the training; return the parameters of the first process."""
    workers = len(training.seen)
    batches = [[ids for round in training.rounds for ids in round[worker]] for worker in range(workers)]
    with tempfile.TemporaryDirectory() as folder:
        arguments = loop, batches, optimizer, settings, folder
        torch.multiprocessing.spawn(_process, args=arguments, nprocs=workers)
        return np.load(Path(folder) / "params.npy")


def _process(rank: int, loop: Loop, batches: list[list[Batch]], optimizer: Any, settings: dict[str, Any], folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=len(batches))
    replica = Replica(optimizer)
    loop(replica, batches[rank], **settings)
    if rank == 0:
        np.save(Path(folder) / "params.npy", replica.params)
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # without torch's own end, which aborts now and then on a machine under load: a thread of gloo outlives the group
