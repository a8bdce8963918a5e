"""What runs in a worker's process: build the network over its row, train, report. Imported once, by the forkserver."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from dataclasses import asdict
from typing import Any

import torch

from partrain.comm.arena import IF_LONG, LONG_S, RECORD, RING, Arena
from partrain.comm.center import CenterClient
from partrain.comm.group import ArenaGroup, NonFinite, Transport, bytes_by_rank
from partrain.comm.shared import SharedTransport
from partrain.comm.simulated import Abandoned, Deadlock, SimulatedTransport, TurnScheduler
from partrain.errors import Diverged, Failure, UserCodeFailed
from partrain.launch.worker.channel import Channel, explain, report
from partrain.launch.worker.setup import WorkerSetup, tight
from partrain.launch.worker.spec import ProcessSpec
from partrain.launch.worker.task_checks import InvalidTaskOutput, check_task_calls
from partrain.tasks import UserTask
from partrain.train.loop import LATE, STOP, WELCOME, Ending, LoopConfig, run
from partrain.train.snapshot import restore, save, slot_map
from partrain.train.stop import Progress
from partrain.train.worker import LocalWorker, RowLayout

NAN = float("nan")


def main(order: ProcessSpec, talk: Channel) -> None:
    """Run the workers that live in this process."""
    if order.ranks[0] < 0:
        _keep_center(~order.ranks[0], order, talk)
        return
    arena = Arena(order.arena.detach(), len(order.plan.shares))
    if len(order.ranks) == 1:
        (rank,) = order.ranks
        _answer_for(rank, order, arena, None, talk)
        return
    own = [order.plan.shares[rank].spec.threads for rank in order.ranks]
    baton = TurnScheduler(
        len(own), lambda rank: torch.set_num_threads(own[rank])
    )  # torch and MKL keep one number for the process
    threads = [threading.Thread(target=_simulated, args=(rank, order, arena, baton, talk)) for rank in order.ranks]
    for thread in threads:
        thread.start()
    baton.start()
    for thread in threads:
        thread.join()


def _keep_center(number: int, order: ProcessSpec, talk: Channel) -> None:
    """A process of the center of an asynchronous rule on several machines."""
    from partrain.comm.center_server import serve

    assert order.machine is not None
    try:
        serve(number, order.machine, order.members, len(order.plan.shares), order.job.sync)
    except BaseException as error:
        report(~number, order.machine.center(number), error, error if isinstance(error, Failure) else None, talk)


def _simulated(rank: int, order: ProcessSpec, arena: Arena, baton: TurnScheduler, talk: Channel) -> None:
    """A simulated worker: a thread that runs when it holds the baton."""
    failure: BaseException | None = None
    try:
        baton.wait(rank, lambda: True, "the start")
        failure = _answer_for(rank, order, arena, baton, talk)
    except Abandoned as abandoned:
        if isinstance(abandoned.__cause__, Deadlock):
            talk.send("failed", rank=rank, code=70, name="internal", message=str(abandoned.__cause__), detail="")
    finally:
        baton.leave(rank, failure)


def _answer_for(rank: int, order: ProcessSpec, arena: Arena, baton: TurnScheduler | None, talk: Channel) -> BaseException | None:
    """Run one worker; whatever goes wrong is reported as a failure with a code and one line."""
    replica: WorkerProcess | None = None
    try:
        replica = WorkerProcess(rank, order, arena, _join(rank, order, arena, baton), talk)
        ending = replica.train()
        talk.send("done", rank=rank, **asdict(ending))
        return None
    except Abandoned:
        raise
    except BaseException as error:
        report(rank, f"worker {rank}", error, _explain(error, rank, order, replica), talk)
        return error


def _join(rank: int, order: ProcessSpec, arena: Arena, baton: TurnScheduler | None) -> Transport:
    """How a worker waits for the others: by the baton, in memory, or also for other machines."""
    if baton:
        return SimulatedTransport(baton, rank, order.job.transport.pace(rank), order.job.seed)
    if not order.machine:
        return SharedTransport(arena, rank, order.members)
    from partrain.comm.distributed import DistributedTransport

    devices = [share.spec.device for share in order.plan.shares]
    added_on_cuda = not order.job.engine.exact and all(device.startswith("cuda") for device in devices)
    return DistributedTransport(arena, rank, order.members, order.machine, devices[rank] if added_on_cuda else "cpu")


def _explain(error: BaseException, rank: int, order: ProcessSpec, replica: WorkerProcess | None) -> Failure | None:
    """The failure the user can act on, or None if the defect is ours."""
    number = replica.progress.round if replica else 0
    where = f"worker {rank}, round {number}" if number else f"worker {rank}, before the first round"
    if isinstance(error, NonFinite) and replica is not None:
        what = _name_of(replica.worker.spans, error)
        return Diverged(f"{where}: non-finite numbers in {what}; lower the learning rate, or look at the data")
    iteration = f", iteration {replica.worker.done + 1}" if replica and number else ""
    if isinstance(error, InvalidTaskOutput):
        return UserCodeFailed(f"{where}{iteration}: {error.message}")
    users = ", ".join(f"`{name}`" for name in order.job.user_code)
    return explain(error, where + iteration, users, built=replica is not None)


def _name_of(spans: RowLayout, error: NonFinite) -> str:
    """The tensor in which a number was not finite."""
    d, part = spans.layout.size, error.offset // spans.layout.size
    name = spans.layout.name_at((error.offset + error.index) % d)
    if error.offset >= spans.wire:
        return "a vector under way"
    if part == 0:
        return f"parameter `{name}`"
    return f"the gradient of `{name}`" if part == 1 else f"the optimizer state of `{name}`"


class WorkerProcess:
    """One worker of a run, and its desk (`loop.Desk`)."""

    def __init__(self, rank: int, order: ProcessSpec, arena: Arena, waiting: Transport, talk: Channel) -> None:
        self.rank, self.order, self.arena, self.waiting, self.talk = rank, order, arena, waiting, talk
        job, plan = order.job, order.plan
        self.progress = Progress(**asdict(order.progress))
        self._elapsed = order.elapsed
        self._asked_at = 0.0
        """Seconds of training when the round before ended."""
        outfit = WorkerSetup(rank, order)
        if rank == order.members[0] and (text := tight(order, outfit)):
            talk.send("tight", text=text)
        if isinstance(job.task, UserTask):
            check_task_calls(outfit.task, job.task.name)
        module, spans, device = outfit.module, outfit.spans, outfit.device
        dtype, d = spans.layout.dtype, spans.layout.size
        lines, common, end = arena.map_rows(spans.numbers * dtype.itemsize, job.sync.shared_vectors * d * dtype.itemsize)
        rows = [torch.frombuffer(line, dtype=dtype) for line in lines]
        row = rows[rank] if device.type == "cpu" else torch.zeros(spans.numbers, dtype=dtype, device=device)
        vectors = torch.frombuffer(common, dtype=dtype) if len(common) else torch.empty(0, dtype=dtype)
        commons = self._commons(vectors.view(-1, d), [row[spans.wire :] for row in rows])
        self.group = ArenaGroup(arena, rank, row, rows, spans.wire, waiting, commons, order.members, job.engine.exact)

        self.worker = outfit.worker(row, self.group.center[0] if job.sync.shares_params else None)
        self.held_out, self.test = outfit.held_out(), outfit.test
        self.worker.beat, self.worker.alive, self.worker.clock = self._beat, self._alive, waiting.clock
        self._elsewhere = [peer for peer in range(len(plan.shares)) if peer not in order.members]
        """Workers of other machines."""
        if job.stop.judge == "any-worker":
            self.worker.stop_below = job.stop.loss
        self.group.broadcast(self.worker.params)
        self.state = job.sync.init(self.worker, self.group)
        self.group.barrier()
        self.map = slot_map(module, spans, job.sync, len(plan.shares), self.state, commons)
        self._slots = arena.map_slots(end, self.map.size)
        talk.send(
            "ready",
            rank=rank,
            pid=os.getpid(),
            parameters=sum(p.size for p in spans.layout.pieces),
            slots_at=end,
            map=self.map.to_json(),
            fixed=_fixed(module),
        )
        if order.resuming:
            self.group.barrier()  # simulated workers take turns: all are ready before one waits for the coordinator
            waiting.wait_until(lambda: arena.get("restored") == 1, "the state to resume from")
            waiting.broadcast_bytes(self._slots[0])
            restore(self.worker, self.map.view(self._slots[0]), self.state, commons)

    def train(self) -> Ending:
        """Run the loop to its end."""
        job, plan = self.order.job, self.order.plan
        self.group.commons.push_state()
        terms = LoopConfig(
            job.stop,
            plan.judge_every,
            [share.items for share in plan.shares],
            job.checkpoint.every,
            job.checkpoint.commit == "every",
        )
        ending = run(self.worker, self.group, job.sync, self.state, terms, self.progress, self.held_out, self.test, self)
        self.group.commons.leave()
        return ending

    def _alive(self) -> None:
        self.arena.beats[self.rank] += 1

    def _beat(self) -> None:
        self._alive()
        self.waiting.advance_clock(self.worker.total_iterations + self.worker.done)

    def began(self) -> None:
        if self.rank == 0:
            self.talk.send("began", t=time.time())

    def over(self) -> None:
        if self.rank == 0:
            self.talk.send("over")

    def word(self, seconds: float) -> int:
        if self.rank:
            return STOP if self.arena.get("command") else 0
        limit = self.order.job.stop.seconds
        late = limit is not None and seconds + self._elapsed >= limit
        lasted, self._asked_at = seconds - self._asked_at, seconds
        wanted = self.arena.get("wanted")
        welcome = wanted and self.arena.get("granted") and (wanted != IF_LONG or lasted >= LONG_S)
        return (STOP if self.arena.get("command") else 0) | (LATE if late else 0) | (WELCOME if welcome else 0)

    def record(self, progress: Progress, worker: LocalWorker, times: dict[str, float]) -> None:
        self.waiting.wait_until(lambda: progress.round - self.arena.get("drained") < RING, "the coordinator to read the records")
        judged = progress.judged_round == progress.round
        line = times | {
            "round": progress.round,
            "iterations": worker.done,
            "items": worker.items,
            "loss": worker.loss(),
            "lr": worker.lr,
            "judged_loss": _number(progress.loss if judged else None),
            "accuracy": _number(progress.accuracy if judged else None),
        }
        records = self.arena.ring[progress.round % RING]
        records[self.rank, 1:] = [line[field] for field in RECORD[1:]]
        self.waiting.replicate(lambda: [bytes_by_rank(records[:, 1:])])
        records[[self.rank, *self._elsewhere], 0] = progress.round  # last: the coordinator takes it for the whole record

    def snapshot(self, progress: Progress, worker: LocalWorker, state: Any, wait: bool) -> None:
        slot = 0
        if self.rank == 0:
            self.waiting.wait_until(lambda: self.arena.get("granted") > 0, "a free snapshot")
            slot = self.arena.get("granted") - 1
            self.arena.put("granted", 0)
        slot = int(self.group.scores(slot)[0][0])
        self.group.commons.pull_state()
        save(worker, self.map.view(self._slots[slot]), state, self.group.commons)
        self.group.barrier(lambda: [self._parts(slot)])  # whole: every worker has written its part, and its record of the round
        if self.rank == 0:
            self.talk.send("snapshot", slot=slot, progress=asdict(progress))
            if wait:
                self.waiting.wait_until(lambda: self.arena.get("committed") >= progress.round, "the checkpoint")
        if wait:
            self.group.barrier()  # nobody goes on before: what he did next might fail

    def _parts(self, slot: int) -> list[torch.Tensor]:
        """What each worker has written into a snapshot."""
        spans = [self.map.span(f"workers/{rank}/") for rank in range(self.worker.size)]
        return [torch.frombuffer(self._slots[slot][span], dtype=torch.uint8) for span in spans]

    def _commons(self, vectors: torch.Tensor, wires: list[torch.Tensor]) -> CenterClient:
        """What belongs to all workers: in memory, or with processes of its own where there are several machines."""
        rule, machine = self.order.job.sync, self.order.machine
        if machine and not rule.synchronous:
            from partrain.comm.center_server import Remote

            return Remote(self.arena, self.rank, vectors, self.waiting, machine, rule.slices)
        # Messages add up on the wires, which no other verb uses within a round of an asynchronous rule.
        return CenterClient(self.arena, self.rank, vectors, self.waiting, rule.merge, min(rule.slices, vectors.shape[1]), wires)


def _fixed(module: torch.nn.Module) -> dict[str, str]:
    """Digests of the tensors that training does not change and nobody sends around: replicas must agree on them from the start."""
    tensors = {name: tensor for name, tensor in module.state_dict(keep_vars=True).items() if not tensor.requires_grad}
    return {name: hashlib.sha256(tensor.detach().cpu().numpy().tobytes()).hexdigest() for name, tensor in tensors.items()}


def _number(value: float | None) -> float:
    return NAN if value is None else value
