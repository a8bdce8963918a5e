"""Every local optimizer against torch.optim, each with torch's default implementation, over 200 steps of one worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import optim

from benchmarks.audit.case import EQUAL, Case, params_case
from benchmarks.audit.replica import Optimizers, Replica, Vector
from benchmarks.audit.trainings import Batch, Training, Trainings

ROUNDS, STEPS = 4, 200
LBFGS_STEPS, LBFGS_ROUNDINGS = 60, 1e-11
"""L-BFGS amplifies roundings at each step: its second row of the table compares torch's with torch's, where nothing but the order of the
items of a batch differs. Beyond 60 steps roundings hide all else."""

STEPPERS: dict[str, tuple[str, Optimizers]] = {
    "sgd, Nesterov, weight decay": (
        '"sgd", lr = 0.05, momentum = 0.9, nesterov = true, weight_decay = 0.01, batch_size = 8',
        partial(optim.SGD, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    ),
    "sgd, dampening": (
        '"sgd", lr = 0.1, momentum = 0.9, dampening = 0.3, batch_size = 8',
        partial(optim.SGD, lr=0.1, momentum=0.9, dampening=0.3),
    ),
    "adam, amsgrad, weight decay": (
        '"adam", lr = 0.02, weight_decay = 0.01, amsgrad = true, batch_size = 8',
        partial(optim.Adam, lr=0.02, weight_decay=0.01, amsgrad=True),
    ),
    "adamw": (
        '"adamw", lr = 0.02, weight_decay = 0.05, batch_size = 8',
        partial(optim.AdamW, lr=0.02, weight_decay=0.05),
    ),
    "nadam, decoupled weight decay": (
        '"nadam", lr = 0.02, weight_decay = 0.05, decoupled_weight_decay = true, batch_size = 8',
        partial(optim.NAdam, lr=0.02, weight_decay=0.05, decoupled_weight_decay=True),
    ),
    "radam, weight decay": (
        '"radam", lr = 0.02, weight_decay = 0.01, batch_size = 8',
        partial(optim.RAdam, lr=0.02, weight_decay=0.01),
    ),
    "adamax, weight decay": (
        '"adamax", lr = 0.02, weight_decay = 0.01, batch_size = 8',
        partial(optim.Adamax, lr=0.02, weight_decay=0.01),
    ),
    "rmsprop, centered, momentum": (
        '"rmsprop", lr = 0.005, momentum = 0.5, centered = true, batch_size = 8',
        partial(optim.RMSprop, lr=0.005, momentum=0.5, centered=True),
    ),
    "adagrad, decaying rate": (
        '"adagrad", lr = 0.1, lr_decay = 0.01, batch_size = 8',
        partial(optim.Adagrad, lr=0.1, lr_decay=0.01),
    ),
}


def cases() -> Iterator[Case]:
    for name, (words, optimizer) in STEPPERS.items():
        kind = f"`{optimizer.func.__name__}`"
        yield params_case(f"optimizer {name}", ("torch", kind), job(words), partial(by_hand, optimizer=optimizer))
    rprop = partial(by_hand, optimizer=partial(optim.Rprop, lr=0.01))
    yield params_case("optimizer rprop", ("torch", "`Rprop`"), job('"rprop", lr = 0.01'), rprop, EQUAL)
    peer, words = ("torch", "`Muon`; `AdamW(fused=True)` for vectors"), '"muon", lr = 0.02, weight_decay = 0.05, batch_size = 8'
    yield params_case("optimizer muon", peer, job(words), partial(by_hand, optimizer=Muon))
    peer, words = (
        ("torch", "`clip_grad_value_`, then `clip_grad_norm_`"),
        '"sgd", lr = 0.5, clip_value = 0.1, clip_norm = 0.3, batch_size = 8',
    )
    yield params_case("`clip_value` and `clip_norm`, sgd", peer, job(words), partial(by_hand, optimizer=ClippedSgd))

    words, peer = '"lbfgs", lr = 0.1', ("torch", "`LBFGS(max_iter=1)`")
    few, optimizer = job(words, LBFGS_STEPS), partial(optim.LBFGS, lr=0.1, max_iter=1, history_size=10)
    yield params_case("optimizer lbfgs, 60 steps", peer, few, partial(by_hand, optimizer=optimizer), LBFGS_ROUNDINGS)

    def roundings(trainings: Trainings) -> float:
        training = trainings.run(**few)
        return float(np.abs(by_hand(training, optimizer) - by_hand(training, optimizer, order=sorted)).max())

    yield Case("torch's own L-BFGS, the items of a batch sorted, 60 steps", *peer, LBFGS_ROUNDINGS, roundings)


def job(optimizer: str, steps: int = STEPS) -> dict[str, Any]:
    """Settings of a training of one worker."""
    sync = f'rule = "average", iterations = {steps // ROUNDS}'
    return {"sync": sync, "optimizer": f"name = {optimizer}", "workers": "{count = 1}", "rounds": ROUNDS}


def by_hand(training: Training, optimizer: Optimizers, order: Callable[[Batch], Batch] = list) -> Vector:
    """Run the loop that one writes by hand."""
    replica = Replica(optimizer)
    for (batches,) in training.rounds:
        replica.train([order(ids) for ids in batches])
    return replica.params


class Muon:
    """Muon for matrices and AdamW for vectors, as torch's documentation advises.

    AdamW is the fused one, whose bits partrain's has: Muon computes in bfloat16, where one other last bit may become a whole percent.
    """

    def __init__(self, params: list[torch.nn.Parameter]) -> None:
        rates = {"lr": 0.02, "weight_decay": 0.05}
        matrices, vectors = [p for p in params if p.ndim == 2], [p for p in params if p.ndim != 2]
        self._optimizers = optim.Muon(matrices, **rates), optim.AdamW(vectors, **rates, fused=True)

    def zero_grad(self) -> None:
        for optimizer in self._optimizers:
            optimizer.zero_grad()

    def step(self, closure: Callable[[], torch.Tensor]) -> None:
        closure()
        for optimizer in self._optimizers:
            optimizer.step()


class ClippedSgd(optim.SGD):
    """SGD behind both of torch's clippings."""

    def __init__(self, params: list[torch.nn.Parameter]) -> None:
        super().__init__(params, lr=0.5)

    def step(self, closure: Any = None) -> None:
        closure()
        params = self.param_groups[0]["params"]
        torch.nn.utils.clip_grad_value_(params, 0.1)
        torch.nn.utils.clip_grad_norm_(params, 0.3)
        super().step()
