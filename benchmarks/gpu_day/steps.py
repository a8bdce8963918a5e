"""Time the local iterations of a job's worker on a device, in a process of its own, or those of a plain loop with the same network.

    python -m benchmarks.gpu_day.steps JOB DEVICE worker|batchwise|loop|repeatable|copies [--iterations N] [--set KEY=VALUE ...]

`worker`: partrain's worker, the items on the device. `batchwise`: the items in the CPU's memory, from which each batch is copied. `loop`: forward,
backward and step as one writes them by hand, with torch's own settings; `repeatable`: the same with the settings by which partrain's runs repeat to
the bit. `copies`: the seconds in which a worker's parameters go to the CPU's memory and back. It prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from iteration import ROUND, whole
from support.replicas import Handed
from torch import Tensor

from partrain.job.load import load
from partrain.job.plan import make_plan
from partrain.launch.folder.resume_point import ResumePoint
from partrain.launch.shared_dataset import load_shared
from partrain.launch.worker import setup as worker_setup
from partrain.launch.worker.spec import ProcessSpec
from partrain.optim import AnyOptimizer, Sgd
from partrain.system.accelerator import Accelerator
from partrain.system.memory import memory_limits


def prepared(file: Path, device: str, sets: list[str]) -> worker_setup.WorkerSetup:
    """Set up the one worker of a job on a device."""
    loaded = load(file, [*sets, f'workers=[{{device="{device}"}}]', f'sync={{rule="average", iterations={ROUND}}}'])
    dataset, stock = load_shared(loaded)
    plan = make_plan(loaded.job, dataset.items)
    spec = ProcessSpec(
        loaded.job, loaded.folder, plan, (0,), range(1), None, None, Handed(stock), dataset.info, ResumePoint(), memory_limits()
    )  # fmt: skip
    return worker_setup.WorkerSetup(0, worker_setup.ProcessSetup(spec))


def of_worker(file: Path, device: str, sets: list[str], iterations: int) -> dict[str, Any]:
    """Time partrain's worker."""
    ready = prepared(file, device, sets)
    made = ready.worker(torch.zeros(ready.layout.numbers, device=ready.device))
    whole(made, 2 * ROUND)
    return {"seconds": whole(made, iterations), "batch": made.batches.batch_size, "items on": str(made.samples.inputs.device)}


def of_loop(file: Path, device: str, sets: list[str], iterations: int, *, repeatable: bool) -> dict[str, Any]:
    """Time a plain loop on the same network and items, which lie on the device."""
    ready, place = prepared(file, "cpu", sets), torch.device(device)
    if repeatable:
        Accelerator(place).use()
    batch = ready.batches.batch_size
    network = deepcopy(ready.module).to(place).train()
    inputs, targets = (x.to(place) for x in replace(ready.samples, channels_last=False).part(slice(None)))
    optimizer = plain(ready._spec.job.optimizer, list(network.parameters()))

    def iterate() -> None:
        order = torch.randperm(len(targets), device=place)
        for number in range(ROUND):
            index = order[torch.arange(number * batch, (number + 1) * batch, device=place) % len(order)]
            optimizer.zero_grad()
            loss: Tensor = ready.task.mean_loss(network, inputs[index], targets[index])
            torch.autograd.backward(loss)
            optimizer.step()

    times = [seconds(iterate, place) / ROUND for _ in range(2 + iterations // ROUND)]
    return {"seconds": statistics.median(times[2:]), "batch": batch, "items on": str(inputs.device)}


def plain(section: AnyOptimizer, parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """Make torch's optimizer with the rate of a job's. The rate's schedule and the clipping of gradients are left out: the loop gets no slower."""
    kinds: dict[str, Callable[..., torch.optim.Optimizer]] = {
        "sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW,
    }  # fmt: skip
    more = {"momentum": section.momentum} if isinstance(section, Sgd) else {}
    return kinds[section.name](parameters, lr=section.lr, **more)


def of_copies(file: Path, device: str, sets: list[str], iterations: int) -> dict[str, Any]:
    """Time the copies of the parameters to the CPU's memory and back: pinned as partrain copies them, pageable, and pinned without waiting in between."""
    ready, place = prepared(file, device, sets), torch.device(device)
    there = torch.zeros(ready.layout.params.size, device=place)
    accelerator = Accelerator(place)
    pinned = accelerator.staging(there.nbytes).view(there.dtype)
    pageable = torch.empty_like(there, device="cpu")

    def both(here: torch.Tensor, *, wait: bool) -> None:
        here.copy_(there, non_blocking=not wait)
        there.copy_(here, non_blocking=not wait)

    forms = {
        "pinned": lambda: both(pinned, wait=True),
        "pageable": lambda: both(pageable, wait=True),
        "pinned, asynchronous": lambda: both(pinned, wait=False),
    }
    result: dict[str, Any] = {"bytes": there.nbytes, "is pinned": pinned.is_pinned()}
    for name, work in forms.items():
        result[name] = statistics.median([seconds(work, place) for _ in range(2 + iterations // ROUND)][2:])
    return result


def seconds(work: Callable[[], None], device: torch.device) -> float:
    """Time some work, until the device has done it."""
    torch.accelerator.synchronize(device)
    began = time.perf_counter()
    work()
    torch.accelerator.synchronize(device)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("job", type=Path)
    parser.add_argument("device")
    parser.add_argument("what", choices=["worker", "batchwise", "loop", "repeatable", "copies"])
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--set", action="append", default=[])
    given = parser.parse_args()
    arguments = given.job, given.device, given.set, given.iterations
    if given.what == "batchwise":
        worker_setup.SHARE = 0.0
    if given.what == "copies":
        result = of_copies(*arguments)
    elif given.what in ("loop", "repeatable"):
        result = of_loop(*arguments, repeatable=given.what == "repeatable")
    else:
        result = of_worker(*arguments)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
