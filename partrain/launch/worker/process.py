"""The code inside a worker process: build the network over its row, train, report. Imported once, by the forkserver.

`launch/processes.py` is the coordinator's side of these processes.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import lru_cache, partial

import torch

from partrain.comm.arena import Arena
from partrain.comm.center import CenterClient
from partrain.comm.group import ArenaGroup, NonFinite, Transport
from partrain.comm.transport import Abandoned, Deadlock, Placement
from partrain.errors import Diverged, Failure, UserCodeFailed
from partrain.job.workers import WorkerSpec
from partrain.launch.folder.other_workers import begins_anew
from partrain.launch.worker.channel import Channel, explain, report
from partrain.launch.worker.coordinator_hooks import CoordinatorHooks, Slots, probed
from partrain.launch.worker.messages import (
    Done,
    Failed,
    Ready,
    RunRemark,
)
from partrain.launch.worker.setup import ProcessSetup, WorkerSetup
from partrain.launch.worker.spec import ProcessSpec
from partrain.launch.worker.task_checks import InvalidTaskOutput, TaskChecks
from partrain.record.events import BesideTrivial
from partrain.system.accelerator import Accelerator
from partrain.tasks import UserTask
from partrain.tasks.task import kind_of_answers
from partrain.training.average import NetworkAverage
from partrain.training.loop import Ending, LoopConfig, WorkerRun
from partrain.training.replica import RowLayout
from partrain.training.round_caps import Balance, TimeLimit
from partrain.training.snapshot import restore, slot_map
from partrain.training.stop import Progress
from partrain.training.stream_batches import StreamBatches
from partrain.training.trivial import Scores, TrivialComparison
from partrain.training.worker import Callbacks


def main(spec: ProcessSpec, channel: Channel) -> None:
    """Run the workers of this process, or a part of the center."""
    if spec.center_part:
        _serve_center(spec.center_part.number, spec, channel)
        return
    job, workers = spec.job, spec.plan.shares
    arena = Arena(spec.arena_fd.detach(), len(workers), len(job.metrics(spec.dataset.task)))
    placement = Placement(
        arena=arena,
        ranks=spec.ranks,
        members=spec.members,
        machine=spec.machine,
        devices=[worker.spec.device for worker in workers],
        on_turn=partial(_prepare, [worker.spec for worker in workers]),
        settings=job.transport.settings_of,
        seed=job.seed,
        exact=job.engine.exact,
        network=job.transport.network,
    )
    transport = job.transport.implementation(spec.machine, replicas=len(spec.ranks) > 1)
    shared = ProcessSetup(spec)
    transport.run_workers(placement, lambda rank, join: _run_worker(rank, shared, arena, join, channel))


def _prepare(workers: Sequence[WorkerSpec], rank: int) -> None:
    """Prepare the process for a simulated worker: torch and MKL have one number of threads per process, torch one current device."""
    torch.set_num_threads(workers[rank].threads)
    if accelerator := Accelerator.of(torch.device(workers[rank].device)):
        accelerator.use()


def _serve_center(number: int, spec: ProcessSpec, channel: Channel) -> None:
    """Serve a part of an asynchronous rule's center on several machines."""
    from partrain.comm.center_server import serve

    assert spec.machine is not None
    try:
        serve(number, spec.machine, spec.members, len(spec.plan.shares), spec.job.sync)
    except BaseException as error:
        report(None, spec.machine.center(number), error, error if isinstance(error, Failure) else None, channel)


def _run_worker(
    rank: int, shared: ProcessSetup, arena: Arena, join: Callable[[], Transport], channel: Channel
) -> BaseException | None:
    """Join the others and run a worker to its end. Report an error as a failure with a code and one line, and return it."""
    process: WorkerProcess | None = None
    try:
        process = WorkerProcess(rank, shared, arena, join(), channel)
        ending = process.train()
        test = ending.test and [*ending.test]
        channel.send(Done(rank, ending.reason, ending.reached, ending.seconds, test, *process.beside_trivial()))
        return None
    except Abandoned as abandoned:
        if isinstance(abandoned.__cause__, Deadlock):
            channel.send(Failed(rank, 70, "internal", str(abandoned.__cause__), ""))
        raise
    except BaseException as error:
        report(rank, f"worker {rank}", error, _explain(error, rank, shared.spec, process), channel)
        return error


def _explain(error: BaseException, rank: int, spec: ProcessSpec, process: WorkerProcess | None) -> Failure | None:
    """Turn an exception into a failure that the user can act on, or None for a defect of partrain."""
    round_number = process.progress.round if process else 0
    where = f"worker {rank}, round {round_number}" if round_number else f"worker {rank}, before the first round"
    if isinstance(error, NonFinite) and process is not None:
        layout = process.worker.replica.layout
        part = layout.part_at(error.offset + error.index)
        if (
            error.mixed or error.offset >= layout.scratch
        ):  # the worker checked its own numbers before the rule computed this vector
            return Diverged(f"{where}: mixing made non-finite numbers in {part} from finite ones; lower the learning rate")
        return Diverged(f"{where}: non-finite numbers in {part}; lower the learning rate, or look at the data")
    iteration = f", iteration {process.worker.done + 1}" if process and round_number else ""
    if isinstance(error, InvalidTaskOutput):
        return UserCodeFailed(f"{where}{iteration}: {error.message}")
    if spec.job.network_code and process:
        try:
            # the network's use of its parameters may have made torch fail
            process.worker.replica.check_module(where + iteration)
        except UserCodeFailed as failure:
            return failure
    user_code = ", ".join(f"`{name}`" for name in spec.job.user_code)
    return explain(error, where + iteration, user_code, built=process is not None)


class WorkerProcess:
    """A worker of a run in its process: it builds the worker, joins the others, and trains."""

    def __init__(self, rank: int, shared: ProcessSetup, arena: Arena, transport: Transport, channel: Channel) -> None:
        """Build the worker, join the group, and restore the state if the run resumes."""
        self.spec = spec = shared.spec
        self.rank, self.arena, self.transport, self.channel = rank, arena, transport, channel
        self.progress = Progress(**asdict(spec.point.progress))
        setup = WorkerSetup(rank, shared, self._heartbeat)
        if rank == spec.members[0]:
            for text in filter(None, setup.warnings):
                channel.send(RunRemark(text))
        if isinstance(spec.job.task, UserTask):
            TaskChecks(setup.task, spec.job.task.name)
        rule, layout = spec.job.sync, setup.layout
        rows_end = self._build_worker(setup)
        if rank == spec.members[0] and self.worker.uncompiled:
            channel.send(
                RunRemark(
                    f"the network trains without compiled code, which takes up to 100 times as long: {self.worker.uncompiled}"
                )
            )
        self.held_out, self.test = setup.held_out(), setup.test
        self._trained_targets = setup.trained_targets
        data = spec.dataset.task if isinstance(spec.job.task, UserTask) else None
        kind, items = kind_of_answers(setup.task, setup.interface.task, data), self.test or self.held_out
        self._comparison = TrivialComparison(kind, setup.task, setup.metrics, spec.dataset, items)
        self.worker.callbacks = Callbacks(self._heartbeat, self._on_iterations, transport.clock)
        self._cap_rounds()
        self.group.broadcast(self.worker.params)
        self.state = rule.init(self.worker, self.group)
        self.group.barrier()
        slots = slot_map(
            setup.module,
            layout,
            rule,
            len(spec.plan.shares),
            self.state,
            self.group.center_client,
            streams=spec.dataset.stream is not None,
            probed=len(probed(setup.module, setup.interface)) if spec.job.network_code else 0,
        )
        self._slots = Slots(slots, arena.map_slots(rows_end, slots.size))
        self._hooks = CoordinatorHooks(
            spec, self.group, channel, self.progress, self._slots, setup.module, setup.interface, self._comparison
        )
        layout_of_slots = self.worker.parameters, rows_end, slots.to_json(), _digests_of_fixed(setup.module)
        channel.send(Ready(rank, os.getpid(), self.worker.compiled, *layout_of_slots))
        if spec.point.resuming:
            self._restore()

    def _build_worker(self, setup: WorkerSetup) -> int:
        """Map the rows of the arena and build worker and group over them. Return the byte of the arena after the rows."""
        spec, rule, layout = self.spec, self.spec.job.sync, setup.layout
        rows, scratch, vectors, end = _mapped_rows(self.arena, layout, rule.shared_vectors)
        on_cpu = setup.device.type == "cpu"
        row = rows[self.rank] if on_cpu else torch.zeros(layout.numbers, dtype=layout.params.dtype, device=setup.device)
        center = self._center(vectors, scratch)
        exact = spec.job.engine.exact
        self.group = ArenaGroup(
            self.arena, self.rank, row, rows, layout.scratch, self.transport, center, spec.members, exact=exact
        )
        alike = len({(table.device, table.threads) for table in spec.job.workers}) == 1 and on_cpu
        one_machine = spec.machine is None and spec.job.transport.network is None
        self.group.uniform = alike and one_machine and not spec.job.network_code  # network code may change parameters itself
        self.worker = setup.worker(row, self.group.center[0] if rule.shares_params else None)
        if rule.averages_networks:
            self.worker.average = NetworkAverage(self.worker.replica, rule, spec.plan.average_from)
        return end

    def _cap_rounds(self) -> None:
        """Let the worker cap its rounds, if the job asks for it; otherwise ignore a checkpoint's caps."""
        spec, progress, rule = self.spec, self.progress, self.spec.job.sync
        if not spec.job.caps_rounds:
            progress.caps = []
            return
        point, iterations = spec.point, [share.iterations for share in spec.plan.shares]
        form, seconds = (iterations, rule.visits_per_worker or 1, point.caps, progress.round + 1), spec.job.faults.round_seconds
        caps = self.worker.plan.round_caps = Balance(*form) if seconds is None else TimeLimit(*form, seconds=seconds)
        progress.caps = caps.restored(point.caps[0] if point.caps else [] if point.other_workers else progress.caps)

    def _center(self, vectors: torch.Tensor, scratch: list[torch.Tensor]) -> CenterClient:
        """Reach the center, which all workers share: in memory, or with several machines in its own processes."""
        rule, machine = self.spec.job.sync, self.spec.machine
        if machine and not rule.synchronous:
            from partrain.comm.center_server import RemoteCenterClient

            return RemoteCenterClient(self.arena, self.rank, vectors, self.transport, machine, rule.slices)
        # Messages accumulate in the scratch parts, which no other verb uses within a round of an asynchronous rule.
        slices = min(rule.slices, vectors.shape[1])
        return CenterClient(self.arena, self.rank, vectors, self.transport, rule.merge, slices, scratch)

    def _restore(self) -> None:
        """Wait for the checkpoint's arrays and restore the worker."""
        self.group.barrier()  # simulated workers take turns: all are ready before one waits for the coordinator
        self.transport.wait_until(lambda: self.arena.get("restored") > 0, "the state to resume from")
        slot = self._slots.memory[self.arena.slot("restored")]
        self.transport.broadcast_bytes(slot)
        arrays = self._slots.map.view(slot, self.rank)
        if self.spec.point.other_workers:
            arrays = {path: array for path, array in arrays.items() if not begins_anew(path)}
        restore(self.worker, arrays, self.state, self.group.center_client)

    def train(self) -> Ending:
        """Run the loop to its end."""
        job, plan = self.spec.job, self.spec.plan
        self.group.center_client.push_state()
        config = LoopConfig(
            stop=job.stop,
            judge_every=plan.judge_every,
            snapshot_every=job.checkpoint.every,
            wait_for_files=job.checkpoint.commit == "every",
            ended=self.spec.point.ended,
            after_judgement=job.hooks.after_judgement is not None,
            compares=self._comparison.of_single_answers,
            best_by=job.best_by(self.spec.dataset.task),
        )
        hooks, held_out, test = self._hooks, self.held_out, self.test
        ending = WorkerRun(self.worker, self.group, job.sync, self.state, config, self.progress, held_out, test, hooks).train()
        self._comparison.gather(self.group)
        self.group.center_client.leave()
        if isinstance(self.worker.batches, StreamBatches):
            self.worker.batches.close()
        return ending

    def beside_trivial(self) -> tuple[Scores, dict[str, BesideTrivial]]:
        """Compare the network with trivial answers; only on worker 0."""
        if self.rank or self._comparison.items is None:
            return {}, {}
        return self._comparison.result(self._trained_targets(), self.spec.job.seed)

    def _heartbeat(self) -> None:
        self.arena.beats[self.rank] += 1

    def _on_iterations(self, count: int) -> None:
        tally = self.worker.tally
        self.arena.trained[self.rank] = tally.total_items + tally.items
        self.transport.advance_clock(tally.iterations, count)


@lru_cache(maxsize=1)  # the workers of a process share the views: else each would make N
def _mapped_rows(
    arena: Arena, layout: RowLayout, shared_vectors: int
) -> tuple[list[torch.Tensor], list[torch.Tensor], torch.Tensor, int]:
    """Map the rows of all workers, their scratch parts, and the vectors (m, d) that all share. Also return the arena's byte after them."""
    dtype, d = layout.params.dtype, layout.params.size
    lines, common, end = arena.map_rows(layout.numbers * dtype.itemsize, shared_vectors * d * dtype.itemsize)
    rows, scratch = torch.from_numpy(lines).view(dtype), layout.scratch
    vectors = torch.frombuffer(common, dtype=dtype) if len(common) else torch.empty(0, dtype=dtype)
    return list(rows), list(rows[:, scratch:]), vectors.view(-1, d), end


def _digests_of_fixed(module: torch.nn.Module) -> dict[str, str]:
    """Hash the tensors that are neither trained nor broadcast: replicas must agree on them from the start."""
    tensors = {name: tensor for name, tensor in module.state_dict(keep_vars=True).items() if not tensor.requires_grad}
    return {name: hashlib.sha256(tensor.detach().cpu().numpy().tobytes()).hexdigest() for name, tensor in tensors.items()}
