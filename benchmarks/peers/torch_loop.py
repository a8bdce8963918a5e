"""PyTorch in one process. Methods: `constant` learning rate, `linear` schedule, `compile` (linear, loss and gradient compiled)."""

from __future__ import annotations

import time

import torch
from torch import nn

from benchmarks.peers.common import SIZES, arguments, batches, finish, mnist, rates


def network(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(SIZES[0], SIZES[1]), nn.ReLU(), nn.Linear(SIZES[1], SIZES[2]))


def main() -> None:
    plan = arguments()
    torch.set_num_threads(plan.threads)
    inputs, targets, tests, right = map(torch.from_numpy, mnist())
    model, criterion = network(plan.seed), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=plan.rate, momentum=plan.momentum)

    def loss_of(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return criterion(model(inputs), targets)

    if plan.method == "compile":
        loss_of = torch.compile(loss_of)
    for _ in range(20):  # memory, threads and compiled code, without a step
        loss_of(inputs[: plan.batch], targets[: plan.batch]).backward()
    began = time.perf_counter()
    for index, rate in zip(torch.from_numpy(batches(plan, len(inputs))), rates(plan).tolist(), strict=True):
        if plan.method != "constant":
            optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        loss_of(inputs[index], targets[index]).backward()
        optimizer.step()
    seconds = time.perf_counter() - began
    with torch.no_grad():
        finish(plan, seconds, model(tests).argmax(1), right.numpy())


if __name__ == "__main__":
    main()
