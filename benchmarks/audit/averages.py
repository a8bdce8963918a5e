"""Averages of the weights (`ema`, `swa`) against `AveragedModel` and `update_bn` of torch."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn, update_bn

from benchmarks.audit.case import Case, params_case
from benchmarks.audit.network import ITEMS, Layered, Network
from benchmarks.audit.replica import ROWS, Replica, Vector
from benchmarks.audit.trainings import Training

ITERATIONS, ROUNDS, DECAY, SHARE = 4, 12, 0.9, 0.4
OPTIMIZER = 'name = "sgd", lr = 0.3, batch_size = 8', partial(torch.optim.SGD, lr=0.3)
SYNC = f'rule = "average", iterations = {ITERATIONS}'


def cases() -> Iterator[Case]:
    for count in 1, 2:
        job = {"optimizer": OPTIMIZER[0], "workers": f"{{count = {count}}}", "rounds": ROUNDS}
        workers = f"{count} worker{'s' * (count > 1)}"
        peer = "torch", "`AveragedModel`, plain mean, then `get_ema_avg_fn`"
        yield params_case(f"`ema`, {workers}", peer, job | {"sync": f"{SYNC}, ema = {DECAY}"}, ema)
        peer = "torch", "`AveragedModel`"
        yield params_case(f"`swa`, {workers}", peer, job | {"sync": f"{SYNC}, swa = {SHARE}"}, partial(swa, network=Network))
        peer = "torch", "`AveragedModel`, `update_bn` on all items"
        job |= {"sync": f"{SYNC}, swa = {SHARE}", "network": "Layered"}
        yield params_case(f"`swa`, {workers}, BatchNorm", peer, job, partial(swa, network=Layered))


def ema(training: Training) -> Vector:
    """Take the decay of an iteration as min(t / (t + 1), decay), t iterations before it: that of a plain mean while that is less."""
    average = AveragedModel(Network())
    for iterations, mixed in mixed_networks(training, Network):
        for _ in range(iterations):
            if average.n_averaged / (average.n_averaged + 1) > DECAY:
                average.avg_fn = get_ema_avg_fn(DECAY)
            average.update_parameters(mixed)
    return state_of(average)


def swa(training: Training, network: type[torch.nn.Module]) -> Vector:
    """Average from the first round that ends at SHARE of the run's length or later."""
    average = AveragedModel(network())
    for number, (_, mixed) in enumerate(mixed_networks(training, network), 1):
        if number >= SHARE * ROUNDS:
            average.update_parameters(mixed)
    update_bn([ROWS[:ITEMS]], average)
    return state_of(average)


def mixed_networks(training: Training, network: type[torch.nn.Module]) -> Iterator[tuple[int, torch.nn.Module]]:
    """Train by local SGD with a mean after each round; yield the iterations of a worker in the round, and the mean of the networks."""
    replicas = [Replica(OPTIMIZER[1], network) for _ in training.seen]
    mixed = Replica(OPTIMIZER[1], network)
    for round in training.rounds:
        for replica, batches in zip(replicas, round, strict=True):
            replica.train(batches)
        mixed.params = np.mean([replica.params for replica in replicas], axis=0)
        for replica in replicas:
            replica.params = mixed.params
        yield len(round[0]), mixed.network


def state_of(average: AveragedModel) -> Vector:
    replica = Replica()
    replica.network = average.module
    return replica.state
