"""Rules that no package on PyPI has: the formulas of their papers in numpy, around local steps by torch.optim."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch

from benchmarks.audit.case import Case, params_case
from benchmarks.audit.replica import Optimizers, Replica, Vector
from benchmarks.audit.trainings import Batch, Training

LR, RHO = 0.2, 0.5
"""Learning rate and momentum of the local optimizer."""
BETA, ELASTICITY = 0.4, 0.8
"""Slow momentum of `slowmo`; beta of `easgd`."""
PLAIN = f'name = "sgd", lr = {LR}, batch_size = 8', partial(torch.optim.SGD, lr=LR)
HEAVY = f'name = "sgd", lr = {LR}, momentum = {RHO}, batch_size = 8', partial(torch.optim.SGD, lr=LR, momentum=RHO)
UNEQUAL = "{partition_size = 60, iterations = 3}, {partition_size = 180, iterations = 7}"
SHARES = [60 / 240, 180 / 240]
"""Shares of the two workers of UNEQUAL in all items."""


def cases() -> Iterator[Case]:
    unequal = "60 and 180 items, 3 and 7 iterations"
    job = {"sync": 'rule = "average"', "optimizer": HEAVY[0], "workers": UNEQUAL}
    paper = "numpy", "McMahan et al. 2017, weights by items"
    yield params_case(f"`average`, sgd with momentum, averaged too; {unequal}", paper, job, partial(average, optimizer=HEAVY[1]))

    job = {"sync": f'rule = "slowmo", iterations = 5, momentum = {BETA}, optimizer_state = "local"', "optimizer": HEAVY[0]}
    paper = "numpy", "Wang, Tantia et al. 2020, algorithm 1"
    yield params_case("`slowmo`, sgd with momentum", paper, job, partial(slowmo, optimizer=HEAVY[1]))

    for weights, shares in ("items", SHARES), ("equal", [0.5, 0.5]):
        sync = f'rule = "fednova", weights = "{weights}", local_momentum = {RHO}, optimizer_state = "reset"'
        job = {"sync": sync, "optimizer": HEAVY[0], "workers": UNEQUAL}
        paper = "numpy", "Wang, Liu et al. 2020"
        yield params_case(
            f"`fednova`, sgd with momentum, weights {weights}; {unequal}", paper, job, partial(fednova, shares=shares)
        )

    sync = f'rule = "easgd", iterations = 5, elasticity = {ELASTICITY}, optimizer_state = "local"'
    nesterov = HEAVY[0] + ", nesterov = true", partial(HEAVY[1], nesterov=True)
    for name, (words, optimizer) in {"sgd": PLAIN, "Nesterov's momentum (EAMSGD)": nesterov}.items():
        job = {"sync": sync, "optimizer": words, "rounds": 6}
        paper = "numpy", "Zhang et al. 2015, equations 2 and 3"
        yield params_case(f"`easgd`, {name}", paper, job, partial(easgd, optimizer=optimizer))

    for order, how in ("before", ""), ("after", ", mixing after the steps"):
        sync = f'rule = "gossip", order = "{order}", iterations = 2'
        job = {"sync": sync, "optimizer": PLAIN[0], "workers": "{count = 4}", "rounds": 10}
        paper = "numpy", f"Lian et al. 2017, algorithm 1{how}"
        yield params_case(f"`gossip`, ring of 4, order {order}", paper, job, partial(gossip, order=order))


def average(training: Training, optimizer: Optimizers) -> Vector:
    """x and the momentum become sum_i n_i x_i / sum_i n_i, n_i items of the round."""
    replicas = [Replica(optimizer) for _ in training.seen]
    for round in training.rounds:
        items = [sum(map(len, batches)) for batches in round]
        for replica, batches in zip(replicas, round, strict=True):
            replica.train(batches)
        mean = np.average([replica.params for replica in replicas], axis=0, weights=items)
        buffers = [
            [replica.optimizer.state[param]["momentum_buffer"] for param in replica.network.parameters()] for replica in replicas
        ]
        for of_one_param in zip(*buffers, strict=True):
            momentum = torch.from_numpy(np.average([buffer.numpy() for buffer in of_one_param], axis=0, weights=items))
            for buffer in of_one_param:
                buffer.copy_(momentum)
        for replica in replicas:
            replica.params = mean
    return mean


def slowmo(training: Training, optimizer: Optimizers) -> Vector:
    """u <- beta u + (x - mean) / gamma;  x <- x - gamma u. gamma: the learning rate."""
    replicas = [Replica(optimizer) for _ in training.seen]
    x = replicas[0].params
    u = np.zeros_like(x)
    for round in training.rounds:
        u = BETA * u + (x - np.mean(ends(replicas, x, round), axis=0)) / LR
        x = x - LR * u
    return x


def fednova(training: Training, shares: list[float]) -> Vector:
    """x <- x - tau sum_i p_i d_i;  d_i = (x - x_i) / |a_i|_1;  tau = sum_i p_i |a_i|_1. Momentum begins each round at zero.

    a_i holds how often each gradient of the round has moved x_i: with momentum rho the j-th of K moves it 1 + rho + ... + rho^(K - j) times.
    """
    replicas = [Replica(HEAVY[1]) for _ in training.seen]
    x = replicas[0].params
    for round in training.rounds:
        for replica in replicas:
            replica.reset()
        norms = [sum(RHO**power for j in range(len(batches)) for power in range(len(batches) - j)) for batches in round]
        directions = [(x - x_i) / norm for x_i, norm in zip(ends(replicas, x, round), norms, strict=True)]
        tau = sum(p * norm for p, norm in zip(shares, norms, strict=True))
        x = x - tau * sum(p * d for p, d in zip(shares, directions, strict=True))
    return x


def easgd(training: Training, optimizer: Optimizers) -> Vector:
    """x_i <- x_i - eta g_i(x_i) - alpha (x_i - c);  c <- c + alpha sum_i (x_i - c) with the old x_i; then tau - 1 plain steps."""
    replicas = [Replica(optimizer) for _ in training.seen]
    alpha, center = ELASTICITY / len(replicas), replicas[0].params
    for round in training.rounds:
        distances = [replica.params - center for replica in replicas]
        for replica, (first, *others), distance in zip(replicas, round, distances, strict=True):
            replica.step(first)
            replica.params = replica.params - alpha * distance
            replica.train(others)
        center = center + alpha * sum(distances)
    return center


def gossip(training: Training, order: str) -> Vector:
    """X <- W (X + steps), or W X + steps (D-PSGD)."""
    replicas = [Replica(PLAIN[1]) for _ in training.seen]
    mixing = ring(len(replicas))
    for round in training.rounds:
        before = np.array([replica.params for replica in replicas])
        for replica, batches in zip(replicas, round, strict=True):
            replica.train(batches)
        after = np.array([replica.params for replica in replicas])
        mixed = mixing @ after if order == "after" else mixing @ before + (after - before)
        for replica, x in zip(replicas, mixed, strict=True):
            replica.params = x
    return mixed.mean(axis=0)


def ring(count: int) -> Vector:
    """W (N, N): a third for a worker and each of its two neighbours."""
    return np.array([[float((i - j) % count in (0, 1, count - 1)) / 3 for j in range(count)] for i in range(count)])


def ends(replicas: list[Replica], x: Vector, round: list[list[Batch]]) -> list[Vector]:
    """Train each replica from x on its batches; return where each ends."""
    for replica, batches in zip(replicas, round, strict=True):
        replica.params = x
        replica.train(batches)
    return [replica.params for replica in replicas]
