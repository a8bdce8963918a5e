"""Synchronous rules give the same bits whether workers are threads that take turns or processes."""

from functools import partial

import pytest
import torch
from lab import TRANSPORTS, Trial, blobs, restless
from torch import Tensor
from variants import SYNCHRONOUS, VARIANTS

from partrain.comm.group import ArenaGroup
from partrain.optim import Adam
from partrain.protocols import Rule
from partrain.rules.average import Average

RULES: dict[str, Rule] = {name: VARIANTS[name] for name in sorted(SYNCHRONOUS)} | {
    "all-alone": Average(iterations=3, optimizer_state="local", buffers="local", weights="equal"),
    "anew": Average(iterations=3, optimizer_state="reset", buffers="recalibrate"),
}


def trial(name: str) -> Trial:
    """Dropout, BatchNorm, moments, unequal partitions, judging."""
    optimizer = Adam(name="adam", lr=0.02, batch_size=4, schedule="linear")
    return Trial(RULES[name], optimizer, restless, held_out=blobs(21), horizon=200)


def train(group: ArenaGroup, row: Tensor, name: str) -> tuple[list[list[float]], list[float], float | None]:
    """A worker's parameters after each round, its moments and buffers at the end, the last judgement."""
    torch.set_num_threads(1)
    one = trial(name)
    trained = one.train(group, row, 4, one.nothing())
    worker = trained.worker
    return trained.courses, torch.cat([worker.optimizer.moments.flatten(), worker.buffers]).tolist(), trained.progress.loss


@pytest.mark.parametrize("name", RULES)
def test_threads_and_processes_give_the_same_bits(name: str) -> None:
    spans = trial(name).spans
    threads = torch.get_num_threads()
    with torch.random.fork_rng():
        one, other = (transport(2, partial(train, name=name), spans.numbers, spans.wire) for transport in TRANSPORTS.values())
    torch.set_num_threads(threads)
    assert one == other
