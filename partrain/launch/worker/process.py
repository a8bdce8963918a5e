"""The code inside a worker process: build the network over its row, train, report. Imported once, by the forkserver.

`launch/processes.py` is the coordinator's side of these processes.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch

from partrain.comm.arena import IF_LONG, LONG_S, RING, Arena
from partrain.comm.center import CenterClient
from partrain.comm.group import ArenaGroup, NonFinite, Transport, bytes_by_rank
from partrain.comm.transport import Abandoned, Deadlock, Placement
from partrain.errors import Diverged, Failure, UserCodeFailed
from partrain.launch.worker.channel import Channel, explain, report
from partrain.launch.worker.messages import Done, Failed, MemoryTight, Ready, SnapshotFilled, TrainingFinished, TrainingStarted
from partrain.launch.worker.setup import WorkerSetup
from partrain.launch.worker.spec import ProcessSpec
from partrain.launch.worker.task_checks import InvalidTaskOutput, check_task_calls
from partrain.records import RoundRecord
from partrain.tasks import UserTask
from partrain.training.loop import Ending, LoopConfig, Signal, run
from partrain.training.snapshot import restore, save, slot_map
from partrain.training.stop import Progress
from partrain.training.worker import LocalWorker


def main(spec: ProcessSpec, channel: Channel) -> None:
    """Run the workers of this process, or a part of the center."""
    if spec.ranks[0] < 0:
        _serve_center(~spec.ranks[0], spec, channel)
        return
    job, workers = spec.job, spec.plan.shares
    arena = Arena(spec.arena_fd.detach(), len(workers))
    placement = Placement(
        arena=arena,
        ranks=spec.ranks,
        members=spec.members,
        machine=spec.machine,
        devices=[worker.spec.device for worker in workers],
        on_turn=lambda rank: torch.set_num_threads(workers[rank].spec.threads),  # torch and MKL keep one number for the process
        settings=job.transport.settings_of,
        seed=job.seed,
        exact=job.engine.exact,
    )
    transport = job.transport.implementation(spec.machine)
    transport.run_workers(placement, lambda rank, join: _run_worker(rank, spec, arena, join, channel))


def _serve_center(number: int, spec: ProcessSpec, channel: Channel) -> None:
    """Serve one part of the center of an asynchronous rule on several machines."""
    from partrain.comm.center_server import serve

    assert spec.machine is not None
    try:
        serve(number, spec.machine, spec.members, len(spec.plan.shares), spec.job.sync)
    except BaseException as error:
        report(~number, spec.machine.center(number), error, error if isinstance(error, Failure) else None, channel)


def _run_worker(
    rank: int, spec: ProcessSpec, arena: Arena, join: Callable[[], Transport], channel: Channel
) -> BaseException | None:
    """Join the others and run one worker to its end. Report an error as a failure with a code and one line, and return it."""
    process: WorkerProcess | None = None
    try:
        process = WorkerProcess(rank, spec, arena, join(), channel)
        channel.send(Done(rank, **asdict(process.train())))
        return None
    except Abandoned as abandoned:
        if isinstance(abandoned.__cause__, Deadlock):
            channel.send(Failed(rank, 70, "internal", str(abandoned.__cause__), ""))
        raise
    except BaseException as error:
        report(rank, f"worker {rank}", error, _explain(error, rank, spec, process), channel)
        return error


def _explain(error: BaseException, rank: int, spec: ProcessSpec, process: WorkerProcess | None) -> Failure | None:
    """Turn an exception into a failure the user can act on, or None for a defect of partrain."""
    round = process.progress.round if process else 0
    where = f"worker {rank}, round {round}" if round else f"worker {rank}, before the first round"
    if isinstance(error, NonFinite) and process is not None:
        part = process.worker.replica.layout.part_at(error.offset + error.index)
        return Diverged(f"{where}: non-finite numbers in {part}; lower the learning rate, or look at the data")
    iteration = f", iteration {process.worker.done + 1}" if process and round else ""
    if isinstance(error, InvalidTaskOutput):
        return UserCodeFailed(f"{where}{iteration}: {error.message}")
    user_code = ", ".join(f"`{name}`" for name in spec.job.user_code)
    return explain(error, where + iteration, user_code, built=process is not None)


class WorkerProcess:
    """One worker of a run in its process, and its hooks to the coordinator (`loop.RunHooks`)."""

    def __init__(self, rank: int, spec: ProcessSpec, arena: Arena, transport: Transport, channel: Channel) -> None:
        """Build the worker, join the group, and restore the state if the run resumes."""
        self.rank, self.spec, self.arena, self.transport, self.channel = rank, spec, arena, transport, channel
        self.progress = Progress(**asdict(spec.progress))
        self._previous_poll_s = 0.0
        """Seconds of training when the round before ended."""
        setup = WorkerSetup(rank, spec)
        if rank == spec.members[0] and (text := setup.memory.warning(spec.memory)):
            channel.send(MemoryTight(text))
        if isinstance(spec.job.task, UserTask):
            check_task_calls(setup.task, spec.job.task.name)
        rule, layout = spec.job.sync, setup.layout
        rows_end = self._build_worker(setup)
        self.held_out, self.test = setup.held_out(), setup.test
        self.worker.heartbeat, self.worker.on_iteration = self._heartbeat, self._advance_clock
        self.worker.clock = transport.clock
        self._other_machines = [peer for peer in range(len(spec.plan.shares)) if peer not in spec.members]
        """Workers of other machines, by rank."""
        if spec.job.stop.judge == "any-worker":
            self.worker.stop_below = spec.job.stop.loss
        self.group.broadcast(self.worker.params)
        self.state = rule.init(self.worker, self.group)
        self.group.barrier()
        self.map = slot_map(setup.module, layout, rule, len(spec.plan.shares), self.state, self.group.center_client)
        self._slots = arena.map_slots(rows_end, self.map.size)
        parameters = sum(field.size for field in layout.params.fields)
        channel.send(Ready(rank, os.getpid(), parameters, rows_end, self.map.to_json(), _digests_of_fixed(setup.module)))
        if spec.resuming:
            self._restore()

    def _build_worker(self, setup: WorkerSetup) -> int:
        """Map the rows of the arena and build worker and group over them. Returns the byte of the arena after the rows."""
        spec, rule, layout = self.spec, self.spec.job.sync, setup.layout
        dtype, d = layout.params.dtype, layout.params.size
        lines, common, end = self.arena.map_rows(layout.numbers * dtype.itemsize, rule.shared_vectors * d * dtype.itemsize)
        rows = [torch.frombuffer(line, dtype=dtype) for line in lines]
        on_cpu = setup.device.type == "cpu"
        row = rows[self.rank] if on_cpu else torch.zeros(layout.numbers, dtype=dtype, device=setup.device)
        vectors = torch.frombuffer(common, dtype=dtype) if len(common) else torch.empty(0, dtype=dtype)
        center = self._center(vectors.view(-1, d), [line[layout.scratch :] for line in rows])
        exact = spec.job.engine.exact
        self.group = ArenaGroup(self.arena, self.rank, row, rows, layout.scratch, self.transport, center, spec.members, exact)
        self.worker = setup.worker(row, self.group.center[0] if rule.shares_params else None)
        return end

    def _center(self, vectors: torch.Tensor, scratch: list[torch.Tensor]) -> CenterClient:
        """Reach what all workers share: in memory, or in processes of its own if there are several machines."""
        rule, machine = self.spec.job.sync, self.spec.machine
        if machine and not rule.synchronous:
            from partrain.comm.center_server import RemoteCenterClient

            return RemoteCenterClient(self.arena, self.rank, vectors, self.transport, machine, rule.slices)
        # Messages add up in the scratch parts, which no other verb uses within a round of an asynchronous rule.
        slices = min(rule.slices, vectors.shape[1])
        return CenterClient(self.arena, self.rank, vectors, self.transport, rule.merge, slices, scratch)

    def _restore(self) -> None:
        """Wait for the checkpoint's arrays and become what the worker was."""
        self.group.barrier()  # simulated workers take turns: all are ready before one waits for the coordinator
        self.transport.wait_until(lambda: self.arena.get("restored") == 1, "the state to resume from")
        self.transport.broadcast_bytes(self._slots[0])
        restore(self.worker, self.map.view(self._slots[0]), self.state, self.group.center_client)

    def train(self) -> Ending:
        """Run the loop to its end."""
        job, plan = self.spec.job, self.spec.plan
        self.group.center_client.push_state()
        config = LoopConfig(
            stop=job.stop,
            judge_every=plan.judge_every,
            planned_items=[share.items for share in plan.shares],
            snapshot_every=job.checkpoint.every,
            wait_for_files=job.checkpoint.commit == "every",
        )
        ending = run(self.worker, self.group, job.sync, self.state, config, self.progress, self.held_out, self.test, self)
        self.group.center_client.leave()
        return ending

    def _heartbeat(self) -> None:
        self.arena.beats[self.rank] += 1

    def _advance_clock(self) -> None:
        self.transport.advance_clock(self.worker.total_iterations + self.worker.done)

    def training_started(self) -> None:
        if self.rank == 0:
            self.channel.send(TrainingStarted(time.time()))

    def training_finished(self) -> None:
        if self.rank == 0:
            self.channel.send(TrainingFinished())

    def poll(self, seconds: float) -> Signal:
        signal = Signal.STOP if self.arena.get("command") else Signal(0)
        if self.rank:
            return signal
        limit = self.spec.job.stop.seconds
        if limit is not None and seconds + self.spec.elapsed >= limit:
            signal |= Signal.OUT_OF_TIME
        lasted, self._previous_poll_s = seconds - self._previous_poll_s, seconds
        wanted = self.arena.get("wanted")
        if wanted and self.arena.get("granted") and (wanted != IF_LONG or lasted >= LONG_S):
            signal |= Signal.SNAPSHOT_WANTED
        return signal

    def record(self, progress: Progress, record: RoundRecord) -> None:
        self.transport.wait_until(
            lambda: progress.round - self.arena.get("drained") < RING, "the coordinator to read the records"
        )
        records = self.arena.ring[progress.round % RING]
        records[self.rank, 1:] = record.row()[1:]
        self.transport.replicate(lambda: [bytes_by_rank(records[:, 1:])])
        records[[self.rank, *self._other_machines], 0] = progress.round  # last: it makes the record complete

    def snapshot(self, progress: Progress, worker: LocalWorker, state: Any, wait: bool) -> None:
        slot = 0
        if self.rank == 0:
            self.transport.wait_until(lambda: self.arena.get("granted") > 0, "a free snapshot")
            slot = self.arena.get("granted") - 1
            self.arena.put("granted", 0)
        slot = int(self.group.scores(slot)[0][0])
        self.group.center_client.pull_state()
        save(worker, self.map.view(self._slots[slot]), state, self.group.center_client)
        self.group.barrier(lambda: [self._parts(slot)])  # every worker has written its part, and its record of the round
        if self.rank == 0:
            self.channel.send(SnapshotFilled(slot, asdict(progress)))
            if wait:
                self.transport.wait_until(lambda: self.arena.get("committed") >= progress.round, "the checkpoint")
        if wait:
            self.group.barrier()  # no worker goes on before: its next iteration might fail

    def _parts(self, slot: int) -> list[torch.Tensor]:
        """Give the bytes that each worker has written into a snapshot."""
        spans = [self.map.span(f"workers/{rank}/") for rank in range(self.worker.size)]
        return [torch.frombuffer(self._slots[slot][span], dtype=torch.uint8) for span in spans]


def _digests_of_fixed(module: torch.nn.Module) -> dict[str, str]:
    """Hash the tensors that are neither trained nor broadcast: replicas must agree on them from the start."""
    tensors = {name: tensor for name, tensor in module.state_dict(keep_vars=True).items() if not tensor.requires_grad}
    return {name: hashlib.sha256(tensor.detach().cpu().numpy().tobytes()).hexdigest() for name, tensor in tensors.items()}
