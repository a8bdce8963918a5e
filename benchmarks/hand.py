"""The loop a careful user would write by hand: MNIST in memory as float32, one process, torch.optim.SGD.

Run as a program it trains once and prints one JSON line: seconds of training, test accuracy, items per second.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from partrain.data import load
from partrain.data.arrays.sections import Mnist
from partrain.system.environment import processor


def mnist() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training and test items: (n, 784) float32 in [0, 1], (n,) labels."""
    data = load(Mnist(name="mnist"), Path.cwd())
    assert data.test_inputs is not None
    assert data.test_targets is not None
    inputs, tests = (torch.from_numpy(array).float().div_(255).view(-1, 784) for array in (data.inputs, data.test_inputs))
    return inputs, torch.from_numpy(data.targets).clone(), tests, torch.from_numpy(data.test_targets).clone()


def network(name: str) -> nn.Module:
    """Make the network of jobs/mnist.toml, or that of jobs/mnist-cnn.toml."""
    if name == "mlp":
        return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.25), nn.Linear(32 * 7 * 7, 128), nn.ReLU(),
        nn.Dropout(0.25), nn.Linear(128, 10),
    )  # fmt: skip


def train(
    data: tuple[Tensor, Tensor, Tensor, Tensor], iterations: int, rate: float, momentum: float, batch: int, seed: int, name: str
) -> dict[str, float]:
    """Linear warm-up over a tenth, linear decay to zero; shuffled anew each pass. Test accuracy is outside the timing."""
    inputs, targets, tests, answers = data
    torch.manual_seed(seed)
    model = network(name)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=momentum)
    criterion = nn.CrossEntropyLoss()
    warm, order, at = max(1, iterations // 10), torch.randperm(len(inputs)), 0
    began = time.perf_counter()
    for number in range(iterations):
        if at + batch > len(inputs):
            order, at = torch.randperm(len(inputs)), 0
        index = order[at : at + batch]
        at += batch
        optimizer.param_groups[0]["lr"] = rate * min((number + 1) / warm, (iterations - number) / (iterations - warm))
        optimizer.zero_grad()
        criterion(model(inputs[index]), targets[index]).backward()
        optimizer.step()
    seconds = time.perf_counter() - began
    model.eval()
    with torch.no_grad():
        accuracy = float((model(tests).argmax(1) == answers).float().mean())
    return {"seconds": seconds, "accuracy": accuracy, "items_per_second": iterations * batch / seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--iterations", type=int, default=1700)
    parser.add_argument("--rate", type=float, default=0.2)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--network", choices=["mlp", "cnn"], default="mlp")
    parser.add_argument("--onednn", type=int, default=0, help="1: all matrix products by oneDNN")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    if given.onednn:
        matrix_units = any(flag.startswith("amx") or flag == "bf16" for flag in processor().flags)
        assert not matrix_units, "this processor would multiply in bfloat16 (Intel AMX, Arm BF16)"
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"  # type: ignore[attr-defined]
    data = mnist()
    settings = given.rate, given.momentum, given.batch, given.seed, given.network
    train(data, 50, *settings)
    print(json.dumps(train(data, given.iterations, *settings)))


if __name__ == "__main__":
    main()
