"""Compressed messages and sign-based steps: the formulas of their papers in numpy.

Messages carry numbers in float32, as partrain's default is; the formulas round them so, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch

from benchmarks.audit.case import EQUAL, Case, params_case
from benchmarks.audit.formulas import PLAIN, ends, ring
from benchmarks.audit.replica import Replica, Vector
from benchmarks.audit.trainings import Batch, Training

DENSITY, GAMMA = 0.2, 0.4
SENT = 15
"""Entries of a message: DENSITY of the network's 75 parameters."""
TAU, TARGET, CLIP, DECAY = 0.0625, (0.2, 0.3), 1.5, 0.5 ** (1 / 20)
"""First threshold, shares of the parameters between which it stays, bound of residuals in thresholds, factor of the threshold."""


def cases() -> Iterator[Case]:
    compressor = f'compressor = {{kind = "topk", density = {DENSITY}}}'
    job = {"sync": f'rule = "topk", iterations = 3, {compressor}', "optimizer": PLAIN[0], "rounds": 12}
    paper = "numpy", "Stich et al. 2018, algorithm 1, over local steps"
    yield params_case("`topk`, a fifth of the parameters, error feedback", paper, job, topk)

    sync = f'rule = "choco", iterations = 2, gamma = {GAMMA}, {compressor}'
    job = {"sync": sync, "optimizer": PLAIN[0], "workers": "{count = 4}", "rounds": 12}
    yield params_case(
        "`choco`, ring of 4, a fifth of the parameters", ("numpy", "Koloskova et al. 2019, algorithm 2"), job, choco
    )

    sync = f'rule = "threshold", iterations = 10, threshold = {TAU}'
    job = {"sync": f"{sync}, adaptive = false, clip_every = 0", "optimizer": PLAIN[0]}
    yield params_case("`threshold`, fixed, sum of updates", ("numpy", "Strom 2015"), job, partial(threshold, combine=sum))

    sync += f', target = {list(TARGET)}, clip = {CLIP}, combine = "mean"'
    job = {"sync": sync, "optimizer": PLAIN[0], "rounds": 6}
    paper = "numpy", "Strom 2015 with DL4J's AdaptiveThresholdAlgorithm and ResidualClippingPostProcessor"
    reference = partial(threshold, combine=lambda sent: np.mean(sent, axis=0), adaptive=True)
    yield params_case("`threshold`, adaptive, clipped, mean of updates", paper, job, reference)

    for variant in "irprop-", "irprop+", "rprop+", "rprop-":
        job = {"sync": f'rule = "rprop", iterations = 10, variant = "{variant}"', "optimizer": None}
        yield params_case(
            f"rule `rprop`, {variant}", ("numpy", "Igel, Huesken 2003"), job, partial(rprop, variant=variant), EQUAL
        )
    job = {"sync": 'rule = "rprop", iterations = 10', "optimizer": None}
    yield params_case("rule `rprop`, irprop-", ("torch", "`Rprop` on the items of both workers"), job, torch_rprop, EQUAL)


def largest(x: Vector) -> Vector:
    """Keep the SENT entries of largest magnitude, in float32."""
    sent = np.zeros_like(x)
    index = np.argsort(-np.abs(x))[:SENT]
    sent[index] = x[index].astype(np.float32)
    return sent


def topk(training: Training) -> Vector:
    """q_i = C(e_i + x - x_i);  e_i <- e_i + x - x_i - q_i;  x <- x - mean of q_i."""
    replicas = [Replica(PLAIN[1]) for _ in training.seen]
    x = replicas[0].params
    errors = [np.zeros_like(x) for _ in replicas]
    for round in training.rounds:
        wanted = [error + x - x_i for error, x_i in zip(errors, ends(replicas, x, round), strict=True)]
        sent = [largest(one) for one in wanted]
        errors = [one - q for one, q in zip(wanted, sent, strict=True)]
        x = x - np.mean(sent, axis=0)
    return x


def choco(training: Training) -> Vector:
    """xhat_i <- xhat_i + C(x_i - xhat_i);  x_i <- x_i + gamma sum_j W_ij (xhat_j - xhat_i)."""
    replicas = [Replica(PLAIN[1]) for _ in training.seen]
    mixing = ring(len(replicas))
    estimates = np.array([replica.params for replica in replicas])
    for round in training.rounds:
        for replica, batches in zip(replicas, round, strict=True):
            replica.train(batches)
        estimates += [largest(replica.params - estimate) for replica, estimate in zip(replicas, estimates, strict=True)]
        for replica, row, estimate in zip(replicas, mixing, estimates, strict=True):
            replica.params = replica.params + GAMMA * (row @ (estimates - estimate))
    return np.mean([replica.params for replica in replicas], axis=0)


def threshold(training: Training, combine: Callable[[list[Vector]], Vector], adaptive: bool = False) -> Vector:
    """r_i <- r_i + u_i;  q_i = tau_i sign(r_i) where |r_i| >= tau_i;  r_i <- r_i - q_i;  x <- x - sum or mean of q_i.

    Where adaptive, every fifth iteration clips r_i to CLIP tau_i, and tau_i rises or falls by DECAY if too much or little was sent.
    """
    replicas = [Replica(PLAIN[1]) for _ in training.seen]
    x = replicas[0].params
    taus, residuals = [TAU for _ in replicas], [np.zeros_like(x) for _ in replicas]
    for number, batches in enumerate(iterations(training), 1):
        sent = []
        for worker, after in enumerate(ends(replicas, x, [[ids] for ids in batches])):
            residual, tau = residuals[worker] + x - after, float(np.float32(taus[worker]))
            sent.append(np.where(np.abs(residual) >= tau, np.sign(residual) * tau, 0.0))
            residuals[worker] = residual - sent[-1]
            if adaptive:
                if number % 5 == 0:
                    residuals[worker] = residuals[worker].clip(-CLIP * taus[worker], CLIP * taus[worker])
                share = np.count_nonzero(sent[-1]) / len(x)
                taus[worker] *= 1 / DECAY if share > TARGET[1] else DECAY if share < TARGET[0] else 1
        x = x - combine(sent)
    return x


def iterations(training: Training) -> list[tuple[Batch, ...]]:
    """Give the workers' batches of each iteration."""
    return [batches for round in training.rounds for batches in zip(*round, strict=True)]


def full_batches(training: Training) -> list[Batch]:
    """Join the workers' batches of each iteration."""
    return [[item for ids in batches for item in ids] for batches in iterations(training)]


def rprop(training: Training, variant: str) -> Vector:
    """Resilient propagation on the gradient of all items, as the paper's pseudo-code has it for each weight."""
    replica = Replica()
    x = replica.params
    steps, before, move, loss_before = np.full_like(x, 0.01), np.zeros_like(x), np.zeros_like(x), np.inf
    for ids in full_batches(training):
        replica.params = x
        loss, gradient = replica.gradient(ids)
        same, other = gradient * before > 0, gradient * before < 0
        steps = np.where(same, np.minimum(steps * 1.2, 50), np.where(other, np.maximum(steps * 0.5, 1e-6), steps))
        undone = -move
        if variant != "rprop-":
            gradient = np.where(other, 0, gradient)
        move = -np.sign(gradient) * steps
        if variant == "rprop+" or (variant == "irprop+" and loss > loss_before):
            move = np.where(other, undone, move)
        x, before, loss_before = x + move, gradient, loss
    return x


def torch_rprop(training: Training) -> Vector:
    replica = Replica(torch.optim.Rprop)
    replica.train(full_batches(training))
    return replica.params
