"""Workers of one process over the `shared` transport: they take turns, and have the bits of workers of processes of their own."""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest
import torch
from support.lab import Common, Snapshot, Trained, Trial, blobs, join, mlp, restless
from support.rule_forms import SYNCHRONOUS, VARIANTS
from support.runs import eventually

from partrain.comm.arena import Arena
from partrain.comm.group import Transport
from partrain.comm.replicas import ReplicaTransport
from partrain.comm.shared import SharedTransport
from partrain.comm.transport import Abandoned, Deadlock, Placement
from partrain.optim import Sgd
from partrain.training.gathering import gather
from partrain.training.worker import LocalWorker

UNEVEN = (range(14), range(9, 24), range(24, 36), range(36, 48))
SGD = Sgd(lr=0.1, momentum=0.9, batch_size=4)
Enter = Callable[[], Transport]


def run(arena: Arena, work: Callable[[int, Enter], BaseException | None]) -> None:
    """Run all workers of an arena in this process."""
    ranks = tuple(range(arena.size))
    placement = Placement(
        arena, ranks, range(len(ranks)), None, ["cpu"] * len(ranks), lambda _: None, lambda _: {}, 0, exact=True
    )
    ReplicaTransport.run_workers(placement, work)
    os.close(arena.descriptor)


def as_replicas(trial: Trial, rounds: int) -> list[Trained]:
    """Train all workers as replicas of one process."""
    arena, layout, taken = Arena.create(len(trial.partitions)), trial.layout, Snapshot(trial.nothing().progress, {})
    results: dict[int, Trained] = {}
    failures: list[BaseException] = []

    def work(rank: int, enter: Enter) -> BaseException | None:
        try:
            common = Common(trial.rule, layout.params.size)
            group, row = join(arena, rank, enter(), layout.numbers, layout.scratch, layout.params.dtype, common)
            results[rank] = trial.train(group, row, rounds, taken)
        except Exception as error:
            failures.append(error)
            return error
        return None

    with torch.random.fork_rng():
        run(arena, work)
    if failures:
        raise failures[0]
    return [results[rank] for rank in sorted(results)]


@pytest.mark.parametrize("network", [mlp, restless], ids=["compiled", "by autograd"])
@pytest.mark.parametrize("name", sorted(SYNCHRONOUS))
def test_every_rule_has_the_bits_of_separate_workers(name: str, network: Callable[[], torch.nn.Module]) -> None:
    trial = Trial(VARIANTS[name], SGD, network, partitions=UNEVEN, held_out=blobs(21))
    ours, theirs = as_replicas(trial, 3), trial.run(3)[0]
    assert [one.courses for one in ours] == [one.courses for one in theirs]
    assert all(
        torch.equal(one.worker.optimizer.moments, other.worker.optimizer.moments) for one, other in zip(ours, theirs, strict=True)
    )


@pytest.mark.parametrize("name", sorted(set(VARIANTS) - set(SYNCHRONOUS)))
def test_asynchronous_rules_train_all_visits(name: str) -> None:
    trial = Trial(VARIANTS[name], Sgd(lr=0.02, batch_size=4), mlp, partitions=UNEVEN, held_out=blobs(21))
    ours, theirs = as_replicas(trial, 4), trial.run(4)[0]
    trained = [sum(record["items"] for one in runs for record in one.records) for runs in (ours, theirs)]
    assert trained[0] == trained[1] > 0
    losses = [record["loss"] for record in ours[0].records]
    assert losses[-1] < losses[0]
    assert all(one.worker.items for one in ours)


def test_a_replica_does_not_wait_for_the_turns_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its clock stops meanwhile; the clock of the run does not."""
    now = [0.0]
    monkeypatch.setattr("partrain.comm.turns.perf_counter", lambda: now[0])
    monkeypatch.setattr("partrain.comm.shared.time.perf_counter", lambda: now[0])
    spent: dict[int, tuple[float, float]] = {}

    def work(rank: int, enter: Enter) -> None:
        transport = enter()
        began = transport.clock(), transport.run_clock()
        now[0] += 10.0**rank  # this worker computes
        transport.local_barrier()
        transport.local_barrier()
        spent[rank] = transport.clock() - began[0], transport.run_clock() - began[1]

    run(Arena.create(3), work)
    assert spent == {0: (1.0, 111.0), 1: (10.0, 110.0), 2: (100.0, 100.0)}


def test_all_replicas_wait_for_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last one of them meets the others in its turn."""
    now = [0.0]
    monkeypatch.setattr("partrain.comm.turns.perf_counter", lambda: now[0])
    monkeypatch.setattr("partrain.comm.shared.time.perf_counter", lambda: now[0])
    monkeypatch.setattr(SharedTransport, "_await_end", lambda self: now.__setitem__(0, now[0] + 50))
    arena, spent = Arena.create(3), dict[int, float]()
    placement = Placement(arena, (0, 1), range(3), None, ["cpu"] * 3, lambda _: None, lambda _: {}, 0, exact=True)

    def work(rank: int, enter: Enter) -> None:
        transport = enter()
        began = transport.clock()
        now[0] += 1 + rank  # this worker computes
        transport.local_barrier()
        spent[rank] = transport.clock() - began

    ReplicaTransport.run_workers(placement, work)
    assert spent == {0: 51.0, 1: 52.0}
    os.close(arena.descriptor)


def test_one_worker_of_a_process_reads_gathered_tensors_for_all() -> None:
    """Copies of its own for each worker would be N^2."""
    arena, trial = Arena.create(3), Trial(VARIANTS["average"], SGD, mlp, partitions=UNEVEN)
    gathered: list[list[torch.Tensor]] = []

    def work(rank: int, enter: Enter) -> None:
        layout = trial.layout
        group, _ = join(
            arena, rank, enter(), layout.numbers, layout.scratch, layout.params.dtype, Common(trial.rule, layout.params.size)
        )
        gathered.append(gather(group, torch.full((rank + 1,), float(rank))))

    run(arena, work)
    assert [one.tolist() for one in gathered[0]] == [[0.0], [1.0, 1.0], [2.0, 2.0, 2.0]]
    assert all(one is other for tensors in gathered[1:] for one, other in zip(tensors, gathered[0], strict=True))


def test_a_wait_that_nothing_ends_is_a_deadlock() -> None:
    waits: list[BaseException | None] = []

    def work(rank: int, enter: Enter) -> None:
        try:
            enter().wait_for_peers(lambda: False, "a message")
        except BaseException as error:
            waits.append(error.__cause__)
            raise

    run(Arena.create(2), work)
    assert [str(error) for error in waits if isinstance(error, Deadlock)] == [
        "deadlock: worker 0 waits for a message; worker 1 waits for a message"
    ] * 2


def test_an_error_of_a_worker_ends_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[type[BaseException]] = []

    class Watched(Trial):
        def train(self, *words: Any, **options: Any) -> Trained:
            try:
                return super().train(*words, **options)
            except Exception as error:
                errors.append(type(error))
                raise

    def fail(*_: object) -> None:
        raise MemoryError("none left")

    monkeypatch.setattr(LocalWorker, "train", fail)
    with pytest.raises(MemoryError, match="none left"):
        as_replicas(Watched(VARIANTS["average"], SGD, mlp, partitions=UNEVEN), 1)
    assert errors == [MemoryError, Abandoned, Abandoned, Abandoned]


def test_a_single_process_that_mixes_for_all_mixes_for_the_replicas_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does so where cores are short: replicas then neither mix again nor wait for it once more."""
    arena, mixed = Arena.create(3), list[tuple[int, bool]]()
    placement = Placement(arena, (0, 1), range(3), None, ["cpu"] * 3, lambda _: None, lambda _: {}, 0, exact=True)

    def meet(transport: Transport, rank: int) -> None:
        transport.meet(list, lambda *, whole: mixed.append((rank, whole)), 8)
        transport.local_barrier()

    def work(rank: int, enter: Enter) -> None:
        meet(enter(), rank)

    monkeypatch.setattr(SharedTransport, "_look_at_cores", lambda self, now: None)  # this machine may be short of them
    replicas = Thread(target=ReplicaTransport.run_workers, args=(placement, work), daemon=True)
    replicas.start()
    eventually(lambda: list(arena.arrivals) == [1, 1, 0], "the replicas at the meeting")
    single = SharedTransport(arena, 2, range(3))
    single._cores_short = True
    Thread(target=meet, args=(single, 2), daemon=True).start()
    replicas.join(100)
    assert not replicas.is_alive()
    assert mixed == [(2, True)]
    assert list(arena.arrivals) == [2, 2, 2]
    os.close(arena.descriptor)
