"""Rates of layers and groups, and frozen BatchNorm, against torch: parameter groups, and layers in evaluation mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.audit.case import Case, params_case
from benchmarks.audit.network import Layered
from benchmarks.audit.replica import Optimizers, Replica, Vector
from benchmarks.audit.trainings import Training

LR, DECAY, WEIGHT_DECAY, HEAD_LR = 0.2, 0.5, 0.05, 0.5
LAYER = {"layers.0": 0, "layers.1": 0, "layers.3": 1, "layers.5": 2}
"""Layers by hand, from the input: the norm belongs to the layer before it."""
SGD = f'name = "sgd", lr = {LR}, momentum = 0.8, weight_decay = {WEIGHT_DECAY}, batch_size = 8'
GROUPS = f'groups = [{{match = ["*.bias"], weight_decay = 0.0}}, {{match = ["layers.5.*"], lr = {HEAD_LR}}}]'
SYNC = 'rule = "average", iterations = 6, optimizer_state = "local"'


def sgd(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    return torch.optim.SGD(groups, lr=LR, momentum=0.8, weight_decay=WEIGHT_DECAY)


def cases() -> Iterator[Case]:
    for words, how in (f"layer_decay = {DECAY}", by_layer), (GROUPS, by_group), (f"layer_decay = {DECAY}, {GROUPS}", by_both):
        for count in 1, 2:
            job = {"sync": SYNC, "optimizer": f"{SGD}, {words}", "workers": f"{{count = {count}}}", "network": "Layered"}
            names = {by_layer: "`layer_decay`", by_group: "`groups`", by_both: "`layer_decay` and `groups`"}
            what = f"{names[how]}, {count} worker{'s' * (count > 1)}"
            if count == 1 or how is by_both:
                rates = partial(in_groups, rates=how)
                job |= {"model": ', freeze = ["layers.1.*"]'}
                yield params_case(
                    what, ("torch", "`SGD` with `param_groups`"), job, partial(averaged, optimizer=rates, network=frozen)
                )
    plain = partial(torch.optim.SGD, lr=LR, momentum=0.8, weight_decay=WEIGHT_DECAY)
    job = {"sync": SYNC, "optimizer": SGD, "network": "Layered", "workers": "{count = 1}"}
    peer = "torch", "`BatchNorm1d` in training mode"
    yield params_case("BatchNorm: parameters and statistics", peer, job, partial(averaged, optimizer=plain, network=Layered))
    frozen_job = job | {"model": ', freeze = ["layers.1.*"]'}
    for count in 1, 2:
        what = f"BatchNorm frozen: parameters and statistics, {count} worker{'s' * (count > 1)}"
        peer = "torch", "`BatchNorm1d` in evaluation mode"
        each = frozen_job | {"workers": f"{{count = {count}}}"}
        yield params_case(what, peer, each, partial(averaged, optimizer=plain, network=frozen))
    following = job | {"model": ', freeze = ["layers.1.*"], freeze_statistics = false'}
    peer = "torch", "`BatchNorm1d` in training mode, `requires_grad_(False)`"
    yield params_case(
        "BatchNorm frozen, `freeze_statistics = false`", peer, following, partial(averaged, optimizer=plain, network=fixed)
    )


def fixed() -> nn.Module:
    """Make the network with a BatchNorm whose scale and shift are not trained."""
    network = Layered()
    network.layers[1].requires_grad_(False)
    return network


def frozen() -> nn.Module:
    """Make the network with a BatchNorm that computes as in evaluation."""
    network = fixed()
    network.layers[1].eval()  # type: ignore[index]
    return network


def by_layer(name: str) -> dict[str, float]:
    return {"lr": LR * DECAY ** (2 - LAYER[name.rpartition(".")[0]])}


def by_group(name: str) -> dict[str, float]:
    if name.endswith(".bias"):
        return {"weight_decay": 0.0}
    return {"lr": HEAD_LR} if name.startswith("layers.5.") else {}


def by_both(name: str) -> dict[str, float]:
    group = by_group(name)
    return group | {"lr": group.get("lr", LR) * DECAY ** (2 - LAYER[name.rpartition(".")[0]])}


def in_groups(params: list[nn.Parameter], rates: Callable[[str], dict[str, float]]) -> torch.optim.Optimizer:
    """Make torch's optimizer with a group for each parameter."""
    names = [name for name, _ in Layered().named_parameters()]
    return sgd([{"params": [param], **rates(name)} for name, param in zip(names, params, strict=True)])


def averaged(training: Training, optimizer: Optimizers, network: Callable[[], nn.Module]) -> Vector:
    """Run local SGD with a mean of the parameters after each round; each worker keeps its momentum."""
    replicas = [Replica(optimizer, network) for _ in training.seen]
    for round in training.rounds:
        for replica, batches in zip(replicas, round, strict=True):
            replica.train(batches)
        mean = np.mean([replica.params for replica in replicas], axis=0)
        for replica in replicas:
            replica.params = mean
    return replicas[0].state
