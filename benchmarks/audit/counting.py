"""Item-iterations, as `summary.json` has them for each worker, against the items that `forward` saw."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchmarks.audit.case import EQUAL, Case
from benchmarks.audit.trainings import Training, Trainings

SGD = 'name = "sgd", lr = 0.1, batch_size = 16'
JOBS = {
    "whole passes, the last batch short": {"sync": 'rule = "average", passes = 1', "optimizer": f"{SGD}"},
    "batches in three parts": {"sync": 'rule = "average", iterations = 7', "optimizer": f"{SGD}, accumulate = 3"},
    "full batches": {"sync": 'rule = "average", iterations = 5', "optimizer": 'name = "sgd", lr = 0.1, full_batch = true'},
    "workers that join (`ramp_workers`)": {"sync": 'rule = "average", iterations = 5, ramp_workers = 3', "optimizer": SGD},
    "held-out items": {"sync": 'rule = "slowmo", iterations = 5', "optimizer": SGD, "dataset": ", validation = 50"},
    "`async`": {"sync": 'rule = "async", iterations = 3, visits = 4', "optimizer": SGD},
    "`easgd`, asynchronous": {"sync": 'rule = "easgd", iterations = 3, asynchronous = true, visits = 4', "optimizer": SGD},
    "`gossip`, push-sum": {"sync": 'rule = "gossip", style = "push-sum", iterations = 3, visits = 4', "optimizer": SGD},
    "`hogwild`": {"sync": 'rule = "hogwild", iterations = 3, visits = 4', "optimizer": SGD},
}


def cases() -> Iterator[Case]:
    for name, job in JOBS.items():
        yield Case(f"item-iterations, {name}", "", "items that `forward` saw", EQUAL, partial(of_one, job=job))
    yield Case("item-iterations, all trainings of this table", "", "items that `forward` saw", EQUAL, of_all)


def of_one(trainings: Trainings, job: dict[str, str]) -> float:
    return miscounted(trainings.run(**job))


def of_all(trainings: Trainings) -> float:
    return max(map(miscounted, trainings.done))


def miscounted(training: Training) -> float:
    """Return the largest difference over workers."""
    return float(max(abs(seen - counted) for seen, counted in zip(training.seen, training.counted, strict=True)))
