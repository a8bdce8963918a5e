"""Learning-rate schedules against torch.optim.lr_scheduler: trainings of one worker with plain SGD.

partrain's rate is that of the middle of an iteration. So the schedulers run over twice as many steps, and an iteration takes the odd ones.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.optim import lr_scheduler as torch_schedules

from benchmarks.audit.case import ROUNDINGS, Case, params_case
from benchmarks.audit.replica import Replica, Vector
from benchmarks.audit.trainings import Training, Trainings

LR, ITERATIONS, RESUMED = 0.5, 40, 17
END = 2 * ITERATIONS
"""Steps of a scheduler until the horizon."""
WARM = END // 4
"""Steps of the warm-up."""
Schedule = Callable[[torch.optim.Optimizer], torch_schedules.LRScheduler]

WARMUP = partial(torch_schedules.LinearLR, start_factor=0.1, total_iters=WARM)


def warm_cosine(optimizer: torch.optim.Optimizer) -> torch_schedules.LRScheduler:
    cosine = torch_schedules.CosineAnnealingLR(optimizer, T_max=END - WARM, eta_min=0.1 * LR)
    return torch_schedules.SequentialLR(optimizer, [WARMUP(optimizer), cosine], milestones=[WARM])


SCHEDULES: dict[str, tuple[str, Schedule]] = {
    "constant after a warm-up": ('"constant", warmup = 0.25, lr_start = 0.1', WARMUP),
    "step, milestones": (
        '"step", milestones = [0.5, 0.75], gamma = 0.3',
        partial(torch_schedules.MultiStepLR, milestones=[END // 2, END * 3 // 4], gamma=0.3),
    ),
    "step, every": ('"step", every = 0.3, gamma = 0.5', partial(torch_schedules.StepLR, step_size=END * 3 // 10, gamma=0.5)),
    "linear": ('"linear"', partial(torch_schedules.LinearLR, start_factor=1.0, end_factor=0.0, total_iters=END)),
    "cosine": ('"cosine"', partial(torch_schedules.CosineAnnealingLR, T_max=END)),
    "cosine after a warm-up": ('"cosine", warmup = 0.25, lr_start = 0.1, lr_end = 0.1', warm_cosine),
    "polynomial": ('"polynomial", power = 2.0', partial(torch_schedules.PolynomialLR, total_iters=END, power=2.0)),
    "exponential": ('"exponential", lr_end = 0.01', partial(torch_schedules.ExponentialLR, gamma=0.01 ** (1 / END))),
    # torch counts steps from 0 and ends its phases one step early.
    "one-cycle": (
        '"one-cycle"',
        partial(
            torch_schedules.OneCycleLR,
            max_lr=LR,
            total_steps=END + 1,
            pct_start=(0.3 * END + 1) / (END + 1),
            cycle_momentum=False,
        ),
    ),
}


def cases() -> Iterator[Case]:
    for name, (words, schedule) in SCHEDULES.items():
        job = {
            "sync": 'rule = "average", iterations = 1',
            "optimizer": f'name = "sgd", lr = {LR}, batch_size = 8, schedule = {words}',
            "workers": "{count = 1}",
            "rounds": ITERATIONS,
            "more": f'checkpoint = {{commit = "every", keep = {ITERATIONS}}}',
        }
        kind = "SequentialLR" if schedule is warm_cosine else schedule.func.__name__  # type: ignore[attr-defined]
        peer = "torch", f"`{kind}`"
        yield params_case(f"schedule {name}, sgd", peer, job, partial(trained, schedule=schedule))
        what = f"schedule {name}, resumed after {RESUMED} of {ITERATIONS} iterations: each rate, and the parameters"
        yield Case(what, *peer, ROUNDINGS, partial(resumed, job=job, schedule=schedule))


def resumed(trainings: Trainings, job: dict[str, Any], schedule: Schedule) -> float:
    """Compare the rates before the interruption and those of the session after it, and the parameters at its end."""
    whole = trainings.run(**job)
    rest = trainings.resumed(whole, RESUMED)
    rates, params = scheduled(whole, schedule)
    if (len(whole.rates), len(rest.rates)) != (ITERATIONS, ITERATIONS - RESUMED):
        raise RuntimeError(f"{len(whole.rates)} and {len(rest.rates)} rates: not one of each iteration")
    differences = np.subtract([*whole.rates, *rest.rates], [*rates, *rates[RESUMED:]])
    return max(float(np.abs(differences).max()), float(np.abs(rest.params - params).max()))


def trained(training: Training, schedule: Schedule) -> Vector:
    return scheduled(training, schedule)[1]


def scheduled(training: Training, schedule: Schedule) -> tuple[list[float], Vector]:
    """Train with the rates of a scheduler's odd steps; return these rates and the parameters."""
    replica, rates = Replica(partial(torch.optim.SGD, lr=LR)), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # schedulers warn if they step before the optimizer
        scheduler = schedule(replica.optimizer)
        for (batches,) in training.rounds:
            for ids in batches:
                scheduler.step()
                rates.append(float(replica.optimizer.param_groups[0]["lr"]))
                replica.step(ids)
                scheduler.step()
    return rates, replica.params
