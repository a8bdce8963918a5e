"""BatchNorm networks whose replicas are averaged every ten iterations: what becomes of the running statistics.

    python benchmarks/batchnorm.py [SEEDS]

An MLP 784-128-128-10 with BatchNorm on MNIST; 4,000 iterations of batch 64 in all; test accuracy. One process; two workers of partrain
under each policy for buffers; and two processes that average as PyTorch's own PeriodicModelAverager does (parameters only, as
accelerate's LocalSGD and torchft's LocalSGD: each replica keeps its own statistics and is judged with them). Each with the items
shuffled, and with worker 0 having the digits 0 to 4 and worker 1 the others.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from recording import record
from runs import partrain, shown
from torch import Tensor, nn
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

from partrain.data import load
from partrain.data.arrays.sections import Mnist

JOB = Path(__file__).parents[1] / "jobs" / "mnist.toml"
ITERATIONS, BATCH, RATE, PERIOD = 4000, 64, 0.05, 10
ORDERS = {"shuffled": "shuffled", "by label": "by-label"}

NOTE = (
    "PyTorch's PeriodicModelAverager averages parameters only (so do accelerate's LocalSGD and torchft's): each "
    "replica is judged with running statistics of its own. While items are shuffled that is hard to see. Where "
    "partitions differ it costs a quarter of the answers; pooled means and variances, which are partrain's default, "
    "do not."
)


def network() -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs in (784, 128):
        layers += [nn.Linear(inputs, 128), nn.BatchNorm1d(128), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(128, 10))


def ours(order: str, workers: int, buffers: str, seed: int) -> float:
    """Test accuracy of the network that partrain hands back."""
    rounds = ITERATIONS // PERIOD // workers
    content = partrain(
        JOB,
        'model={name="mlp", hidden=[128, 128], batch_norm=true}',
        f'partition.order="{order}"',
        f'optimizer={{name="sgd", lr={RATE}, momentum=0.9, batch_size={BATCH}, schedule="linear", warmup=0.1}}',
        f'sync={{rule="average", iterations={PERIOD}, buffers="{buffers}"}}',
        f'workers=[{{device="cpu", count={workers}}}]',
        f"stop={{rounds={rounds}, judge_every={rounds}}}",
        f"seed={seed}",
    )
    return float(content["test"]["accuracy"])


def peers(order: str, seed: int) -> list[float]:
    """Test accuracy of each replica, with the statistics it has."""
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_peer, (order, seed, folder), nprocs=2)  # type: ignore[no-untyped-call]
        return [json.loads((Path(folder) / str(rank)).read_text()) for rank in range(2)]


def _peer(rank: int, order: str, seed: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    torch.manual_seed(seed)
    model, (inputs, targets, tests, answers) = network(), _mnist()
    own = torch.randperm(55_000)
    if order == "by label":
        own = own[torch.argsort(targets[own], stable=True)]
    own = own.tensor_split(2)[rank]
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    averager = PeriodicModelAverager(period=PERIOD, warmup_steps=0)
    generator, count = torch.Generator().manual_seed(1000 * seed + rank), ITERATIONS // 2
    for number in range(count):
        index = own[torch.randint(len(own), (BATCH,), generator=generator)]
        optimizer.param_groups[0]["lr"] = RATE * min((number + 1) / (count // 10), (count - number) / (count - count // 10))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs[index]), targets[index]).backward()
        optimizer.step()
        averager.average_parameters(model.parameters())
    for parameter in model.parameters():  # a final mean, as partrain makes one
        dist.all_reduce(parameter.data)
        parameter.data /= 2
    model.eval()
    with torch.no_grad():
        accuracy = float((model(tests).argmax(1) == answers).float().mean())
    (Path(folder) / str(rank)).write_text(json.dumps(accuracy))
    dist.destroy_process_group()


def _mnist() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    data = load(Mnist(name="mnist"), Path.cwd())
    assert data.test_inputs is not None
    assert data.test_targets is not None
    inputs, tests = (torch.from_numpy(array).float().div_(255).view(-1, 784) for array in (data.inputs, data.test_inputs))
    return inputs, torch.from_numpy(data.targets).clone(), tests, torch.from_numpy(data.test_targets).clone()


def main(seeds: int) -> None:
    rows = []
    for words, order in ORDERS.items():
        found: dict[str, list[Any]] = {}
        for seed in range(seeds):
            if order == "shuffled":
                found.setdefault("one worker", []).append(ours(order, 1, "average", seed))
            for buffers in ("average", "recalibrate", "local"):
                found.setdefault(f'two workers, buffers = "{buffers}"', []).append(ours(order, 2, buffers, seed))
            for rank, accuracy in enumerate(peers(words, seed)):
                found.setdefault(f"two processes with PeriodicModelAverager, replica {rank}", []).append(accuracy)
        for who, values in found.items():
            print(f"{words}, {who}: {shown(values, '.4f')}", flush=True)
            rows.append({"items": words, "network": who, "test accuracy": values})
    title = (
        f"BatchNorm under averaging: an MLP on MNIST, {ITERATIONS:,} iterations of batch {BATCH} in all, averaged every {PERIOD}"
    )
    record("batchnorm", title, rows, notes=[NOTE])


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
