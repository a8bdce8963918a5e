"""The center as servers behind gloo, here in threads on loopback: all operations have the results of shared memory."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pytest
import torch
from torch import Tensor
from torch.distributed import TCPStore

from partrain.comm import center_server
from partrain.comm.arena import Arena
from partrain.comm.center import CenterClient
from partrain.comm.center_server import CenterConnection, RemoteCenterClient, serve
from partrain.comm.machine import Machine
from partrain.comm.shared import SharedTransport
from partrain.errors import WorkersLost
from partrain.protocols import Rule
from partrain.protocols.asynchronous import Center, Update
from partrain.rules.async_ import Async

D = 7


class Adding(Rule):
    """A rule whose center is the sum of all updates. It also counts them."""

    rule: Literal["adding"] = "adding"
    cuts: int = 1
    vectors: int = 2

    @property
    def shared_vectors(self) -> int:
        return self.vectors

    @property
    def slices(self) -> int:
        return self.cuts

    def merge(self, center: Center, update: Update) -> None:
        if update.delta.isinf().any():
            raise ArithmeticError("no sum")
        center.vectors[0].add_(update.delta)
        center.numbers[0] += update.staleness
        center.numbers[1] += update.lr
        if update.base is not None:
            center.vectors[1].add_(update.base)
        center.version += 1


@dataclass
class Site:
    """Two machines: a store like torchrun's, a center, and workers as threads, those of machine 0 first."""

    timeout_s: float = 60.0
    store: TCPStore = field(default_factory=lambda: TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False))
    ended: list[BaseException | None] = field(default_factory=list)
    """Errors that would have ended the center processes."""

    def machine(self, number: int = 0) -> Machine:
        return Machine(number, 2, "127.0.0.1", self.store.port, timeout_s=self.timeout_s)

    def start(self, size: int, rule: Rule, members: int = 0, machines: Sequence[int] = (0, 1)) -> list[threading.Thread]:
        """Start the center processes of these machines for `size` workers; the first `members` of them run on machine 0."""

        def center(number: int, machine: Machine) -> None:
            try:
                serve(number, machine, range(members), size, rule)
                self.ended.append(None)
            except BaseException as error:
                self.ended.append(error)

        threads = [
            threading.Thread(target=center, args=(number, machine), daemon=True)
            for machine in map(self.machine, machines)
            for number in machine.centers(rule.slices)
        ]
        for thread in threads:
            thread.start()
        return threads

    def join(self, arena: Arena, rank: int, rule: Rule, dtype: torch.dtype = torch.float32) -> RemoteCenterClient:
        vectors, turns = torch.zeros(rule.shared_vectors, D, dtype=dtype), SharedTransport(arena, rank)
        return RemoteCenterClient(arena, rank, vectors, turns, self.machine(rank % 2), rule.slices)

    def run(
        self,
        size: int,
        program: Callable[[CenterClient, threading.Barrier], Any],
        rule: Rule | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> list[Any]:
        """Run a program on each worker and return the results. The center processes end when all workers have left."""
        rule = rule or Adding()
        centers, arena, results = self.start(size, rule), Arena.create(size), [None] * size
        barrier, failures = threading.Barrier(size), []

        def worker(rank: int) -> None:
            try:
                commons = self.join(arena, rank, rule, dtype)
                commons.begin()
                barrier.wait()
                results[rank] = program(commons, barrier)
                commons.leave()
            except BaseException as error:
                failures.append(error)
                barrier.abort()

        threads = [threading.Thread(target=worker, args=(rank,)) for rank in range(size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        for center in centers:
            center.join()
        assert self.ended == [None] * rule.slices
        return results


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    return Site()


among = pytest.mark.parametrize("size", [1, 2, 4])


@among
@pytest.mark.parametrize("visits", [1, 10])
def test_each_round_has_its_number_of_visits(site: Site, size: int, visits: int) -> None:
    def program(commons: CenterClient, barrier: threading.Barrier) -> list[int]:
        counts = [0, 0, 0]
        for number in range(3):
            if number:
                commons.begin()
            while commons.claim(visits):
                counts[number] += 1
            assert not commons.claim(visits), "used up stays used up"
            barrier.wait()
        return counts

    counts = site.run(size, program)
    assert [sum(of_round) for of_round in zip(*counts, strict=True)] == [visits] * 3


@among
@pytest.mark.parametrize("slices", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_update_is_lost_and_staleness_is_returned(site: Site, size: int, slices: int, dtype: torch.dtype) -> None:
    """Worker 0 pulls the state of the whole center, with its versions and the rule's numbers."""
    count = 30

    def program(commons: CenterClient, barrier: threading.Barrier) -> tuple[int, dict[str, Tensor]]:
        own = torch.arange(D, dtype=dtype)
        for _ in range(count):
            base = commons.pull()
            assert base.dtype == dtype
            commons.push(own, base, 0.5)
        barrier.wait()
        commons.pull_state()
        return sum(commons.staleness), commons.tensors()

    ends = site.run(size, program, Adding(cuts=slices), dtype)
    kept = ends[0][1]
    assert kept["center"][0].tolist() == [size * count * j for j in range(D)]
    assert kept["versions"].tolist() == [size * count] * slices + [0] * (16 - slices)
    assert kept["numbers"][:slices, 1].tolist() == [size * count / 2] * slices
    if slices == 1:
        assert kept["numbers"][0, 0] == sum(stale for stale, _ in ends)
    assert (sum(stale for stale, _ in ends) == 0) if size == 1 else True
    assert all(not tensors["center"].any() for _, tensors in ends[1:]), "only worker 0 has a use for it"


def test_staleness_counts_the_updates_of_others_since_the_pull(site: Site) -> None:
    """Both pull, then worker 1 pushes after worker 0. Then worker 0 pushes twice after one pull."""

    def program(commons: CenterClient, barrier: threading.Barrier) -> list[int]:
        rank = barrier.wait()  # the thread that gets 0 goes first
        commons.pull()
        barrier.wait()
        stale = []
        if rank == 0:
            stale = [commons.push(torch.ones(D), None, 0.0)]
        barrier.wait()
        if rank == 1:
            stale = [commons.push(torch.ones(D), None, 0.0)]
        barrier.wait()
        if rank == 0:
            commons.pull()
            stale += [commons.push(torch.ones(D), None, 0.0) for _ in range(2)]
        assert commons.staleness == stale
        commons.begin()
        assert commons.staleness == []
        return stale

    assert sorted(site.run(2, program)) == [[0, 0, 1], [1]]


@pytest.mark.parametrize("slices", [1, 2])
def test_all_workers_pull_the_pushed_state(site: Site, slices: int) -> None:
    """As after a resume: each slice of the center continues from its stored version and numbers."""

    def program(commons: CenterClient, barrier: threading.Barrier) -> list[float]:
        held = commons.tensors()
        held["center"][:] = torch.arange(2 * D).view(2, D)
        held["versions"][:slices] = torch.arange(41, 41 + slices)
        held["numbers"][:slices, 0] = 2.5 + torch.arange(slices)
        commons.push_state()  # only worker 0 sends; the state of the others is equal
        barrier.wait()
        seen = commons.pull().tolist()
        barrier.wait()
        commons.push(torch.ones(D), None, 0.0)
        barrier.wait()
        commons.pull_state()
        barrier.wait()
        assert held["versions"][:slices].tolist() == [43, 44][:slices]
        assert held["numbers"][:slices, 0].tolist() == [3.5, 4.5][:slices]
        assert held["center"][1].tolist() == list(range(D, 2 * D))
        return seen

    assert site.run(2, program, Adding(cuts=slices)) == [list(map(float, range(D)))] * 2


@pytest.mark.parametrize("slices", [1, 3])
@pytest.mark.parametrize("settings", [{"soft_sync": 2, "compensation": 0.5}, {"momentum": 0.5, "staleness_weight": "inverse"}])
def test_updates_in_the_same_order_give_the_numbers_of_one_memory(site: Site, slices: int, settings: dict[str, Any]) -> None:
    """The tensors of a checkpoint are equal for a whole center and for slices, in memory and in processes."""
    whole = Async.model_validate({"rule": "async", "iterations": 1} | settings)
    rule = whole.model_copy(update={"parts": slices})
    moods = random.Random(5)
    order = [moods.randrange(3) for _ in range(41)]

    def course(workers: Sequence[CenterClient]) -> tuple[list[int], dict[str, Tensor]]:
        """Push updates in a fixed order, each from the center that its worker pulled at its turn before."""
        seen = [worker.pull() for worker in workers]
        for turn, rank in enumerate(order):
            delta = (seen[rank] - torch.sin(torch.arange(D) + turn)) * 0.3
            workers[rank].push(delta, seen[rank] if rule.compensation else None, 0.1)
            seen[rank] = workers[rank].pull()
        workers[0].pull_state()
        return [stale for worker in workers for stale in worker.staleness], workers[0].tensors()

    def in_memory(rule: Rule) -> tuple[list[int], dict[str, Tensor]]:
        arena, vectors = Arena.create(3), torch.zeros(rule.shared_vectors, D)
        return course(
            [CenterClient(arena, rank, vectors, SharedTransport(arena, rank), rule.merge, rule.slices) for rank in range(3)]
        )

    centers, arena = site.start(3, rule), Arena.create(3)
    workers = [site.join(arena, rank, rule) for rank in range(3)]
    stale, kept = course(workers)
    for worker in workers:
        worker.leave()
    for center in centers:
        center.join()
    assert site.ended == [None] * slices
    assert max(stale) > 1
    assert kept["center"].all()
    for same, names in (rule, ("center", "versions", "numbers")), (whole, ("center",)):
        expected = in_memory(same)
        assert stale == expected[0]
        assert all(torch.equal(kept[name], expected[1][name]) for name in names)


def test_a_center_may_have_fewer_numbers_than_processes(site: Site) -> None:
    def program(commons: CenterClient, barrier: threading.Barrier) -> list[float]:
        commons.push(torch.arange(float(D)), None, 0.0)
        barrier.wait()
        return commons.pull().tolist()

    assert site.run(2, program, Adding(cuts=D + 2)) == [list(range(0, 2 * D, 2))] * 2


def test_a_worker_sends_its_requests_to_all_center_processes_before_it_waits(site: Site) -> None:
    """Each process merges its slice only once all others merge, too."""
    meeting = threading.Barrier(3)

    class Meeting(Adding):
        def merge(self, center: Center, update: Update) -> None:
            meeting.wait(60)
            super().merge(center, update)

    def program(commons: CenterClient, barrier: threading.Barrier) -> list[float]:
        commons.push(torch.arange(float(D)), None, 0.0)
        return commons.pull().tolist()

    assert site.run(1, program, Meeting(cuts=3)) == [list(range(D))]


@pytest.mark.parametrize("fresh", [0, 2])
def test_no_worker_exceeds_the_allowed_lead(site: Site, fresh: int) -> None:
    """The lead may exceed the limit by one: the newest visit, which the worker has claimed but not made."""
    made, lock, order = [0, 0, 0], threading.Lock(), iter(range(3))

    def program(commons: CenterClient, barrier: threading.Barrier) -> int:
        with lock:
            me = next(order)
        moods, most = random.Random(me), 0
        while commons.claim(60):
            with lock:
                made[me] += 1
            commons.wait_for_slowest(fresh)
            with lock:
                most = max(most, made[me] - min(made))  # since the claim the slowest worker can only have caught up
            if moods.random() < 0.2 * (me == 0):
                threading.Event().wait(0.01)
        return most

    # Each worker counts a claim here only after the center has granted it, so the lead may look larger by one.
    assert max(site.run(3, program)) <= fresh + 2
    assert sum(made) == 60


@pytest.mark.slow
def test_waiting_for_a_slow_worker_may_take_longer_than_the_timeout(site: Site) -> None:
    site.timeout_s = 10.0  # also the timeout of the connection at the start: 4 s were once too few on a busy machine

    def program(commons: CenterClient, barrier: threading.Barrier) -> None:
        slow = barrier.wait() == 0
        assert commons.claim(100)
        assert commons.claim(100) or slow
        if slow:
            threading.Event().wait(site.timeout_s + 1)
        while commons.claim(0 if slow else 100):
            commons.wait_for_slowest(0)

    site.run(2, program)


def test_no_worker_waits_for_one_without_visits_left(site: Site) -> None:
    def program(commons: CenterClient, barrier: threading.Barrier) -> int:
        count, idle = 0, barrier.wait() == 0
        while commons.claim(0 if idle else 8):
            commons.wait_for_slowest(0)
            count += 1
        return count

    assert sorted(site.run(2, program)) == [0, 8]


@pytest.mark.parametrize(("size", "slices"), [(2, 1), (4, 1), (2, 3)])
def test_no_message_is_lost_or_counted_twice(site: Site, size: int, slices: int) -> None:
    """Each worker starts with share 1 of its own vector and sends halves around. The rule has no center."""
    numbers = iter(range(size))

    def program(commons: CenterClient, barrier: threading.Barrier) -> tuple[float, Tensor]:
        rank, share = next(numbers), 1.0
        moods, total = random.Random(rank), torch.full((D,), float(2**rank), dtype=torch.float64)

        def take_in() -> float:
            came, weight = commons.receive()
            assert came.shape == ((D,) if weight else (0,))
            if weight:
                total.add_(came)
            return weight

        for _ in range(40):
            share += take_in()
            share /= 2
            total.div_(2)
            commons.send(total / share, share, moods.randrange(size))
        barrier.wait()
        share += take_in()
        barrier.wait()
        assert commons.receive()[1] == 0
        return share, total

    ends = site.run(size, program, Adding(vectors=0, cuts=slices), torch.float64)
    assert sum(share for share, _ in ends) == pytest.approx(size)
    assert sum(total for _, total in ends).tolist() == pytest.approx([2**size - 1] * D)


# Failures


def impatient(monkeypatch: pytest.MonkeyPatch, lost: int) -> None:
    """Let workers wait for this center process for half a second. A busy machine takes longer for those that are there."""

    class Impatient(CenterConnection):
        def __init__(self, machine: Machine, store: Any, number: int, rank: int, end: int) -> None:
            super().__init__(replace(machine, timeout_s=0.5) if number == lost else machine, store, number, rank, end)

    monkeypatch.setattr(center_server, "CenterConnection", Impatient)


def test_a_lost_center_fails_the_run(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """No process answers within the worker's timeout."""
    impatient(monkeypatch, 0)
    with pytest.raises(WorkersLost, match=r"the center's process 0 \(of machine 0\) does not answer"):
        site.join(Arena.create(1), 0, Adding())


def test_the_error_names_a_lost_center_process(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    impatient(monkeypatch, 1)
    site.start(1, Adding(cuts=2), machines=[0])
    with pytest.raises(WorkersLost, match=r"the center's process 1 \(of machine 1\) does not answer"):
        site.join(Arena.create(1), 0, Adding(cuts=2))


def test_the_loss_of_a_worker_of_another_machine_ends_the_center(site: Site) -> None:
    (center,), arena = site.start(2, Adding()), Arena.create(2)
    kept, lost = site.join(arena, 0, Adding()), site.join(arena, 1, Adding())
    del lost
    center.join()
    (error,) = site.ended
    assert isinstance(error, WorkersLost)
    assert "another machine (worker 1) does not answer" in error.message
    kept.leave()


def test_the_center_leaves_a_lost_worker_of_its_machine_to_the_coordinator(site: Site) -> None:
    (center,), arena = site.start(2, Adding(), members=2), Arena.create(2)
    kept, lost = site.join(arena, 0, Adding()), site.join(arena, 1, Adding())
    del lost
    kept.leave()
    center.join()
    assert site.ended == [None]


@pytest.mark.slow
def test_an_error_at_the_center_is_raised_unchanged(site: Site) -> None:
    site.timeout_s = 10.0  # also that of the connection at the start
    (center,), arena = site.start(1, Adding()), Arena.create(1)
    worker = site.join(arena, 0, Adding())
    with pytest.raises(WorkersLost):
        worker.push(torch.full((D,), torch.inf), None, 0.0)
    center.join()
    assert [repr(error) for error in site.ended] == ["ArithmeticError('no sum')"]
