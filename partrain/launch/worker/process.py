"""The code inside a worker process: build the network over its row, train, report. Imported once, by the forkserver.

`launch/processes.py` is the coordinator's side of these processes.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import lru_cache, partial
from typing import Any

import torch

from partrain import checkpoint
from partrain.comm.arena import ASKED, IF_LONG, LONG_S, RING, Arena
from partrain.comm.center import CenterClient
from partrain.comm.group import ArenaGroup, NonFinite, Transport, bytes_by_rank
from partrain.comm.transport import Abandoned, Deadlock, Placement
from partrain.data.codec import Codec
from partrain.errors import Diverged, Failure, UserCodeFailed
from partrain.job.workers import WorkerSpec
from partrain.launch.other_workers import begins_anew
from partrain.launch.worker.channel import Channel, explain, report
from partrain.launch.worker.messages import (
    Done,
    Failed,
    NumbersAdded,
    Ready,
    RunRemark,
    SnapshotFilled,
    TrainingFinished,
    TrainingStarted,
)
from partrain.launch.worker.setup import ProcessSetup, WorkerSetup
from partrain.launch.worker.spec import ProcessSpec
from partrain.launch.worker.task_checks import InvalidTaskOutput, TaskChecks
from partrain.models.answers import probe
from partrain.models.attributes import ChangedValues, line_of
from partrain.record.events import BesideTrivial
from partrain.record.round_record import NAN, RoundRecord
from partrain.system.accelerator import Accelerator
from partrain.system.environment import boot_seconds
from partrain.tasks import UserTask
from partrain.tasks.task import kind_of_answers
from partrain.training.after_judgement import AfterJudgement
from partrain.training.average import NetworkAverage
from partrain.training.buffers import take_first
from partrain.training.gathering import gather
from partrain.training.loop import Ending, LoopConfig, Signal, WorkerRun
from partrain.training.replica import RowLayout
from partrain.training.round_caps import Balance, TimeLimit
from partrain.training.snapshot import load_network, restore, save, slot_map
from partrain.training.snapshot_layout import PROBE
from partrain.training.stop import Progress
from partrain.training.stream_batches import StreamBatches
from partrain.training.trivial import Scores, compared, comparisons, trivial_scores
from partrain.training.worker import LocalWorker


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


COPY_SHARE = 0.01
"""Share of the time for copies of the state, unless a round ends the run, is the best, or requires its checkpoint."""
COPY_EVERY_S = 0.1
"""Least seconds between two copies that only guard against the loss of a worker: each wakes the coordinator."""


class WorkerProcess:
    """A worker of a run in its process, and its hooks to the coordinator (`loop.RunHooks`)."""

    def __init__(self, rank: int, shared: ProcessSetup, arena: Arena, transport: Transport, channel: Channel) -> None:
        """Build the worker, join the group, and restore the state if the run resumes."""
        self.spec = spec = shared.spec
        self.rank, self.arena, self.transport, self.channel = rank, arena, transport, channel
        self.progress = Progress(**asdict(spec.point.progress))
        self._metrics = tuple(spec.job.metrics(spec.dataset.task))
        self._previous_poll_s = 0.0
        """Seconds of training at the end of the previous round."""
        self._copied_s = self._recorded_s = time.perf_counter()
        """Moments of the newest copy of the state and of the newest record."""
        self._delay = int(self.arena.delays[self.rank])
        """Nanoseconds without a core that records have reported."""
        self._copy_s = 0.0
        """Duration of the newest copy in seconds."""
        setup, self._planned_items = WorkerSetup(rank, shared, self._heartbeat), shared.planned_items
        if rank == spec.members[0]:
            for text in filter(None, setup.warnings):
                channel.send(RunRemark(text))
        if isinstance(spec.job.task, UserTask):
            TaskChecks(setup.task, spec.job.task.name)
        self._after_judgement = AfterJudgement(spec.job.hooks, spec.folder) if rank == 0 and spec.job.hooks.code else None
        self._interface = setup.interface
        rule, layout = spec.job.sync, setup.layout
        rows_end = self._build_worker(setup)
        if rank == spec.members[0] and self.worker.uncompiled:
            channel.send(
                RunRemark(
                    f"the network trains without compiled code, which takes up to 100 times as long: {self.worker.uncompiled}"
                )
            )
        self._values = ChangedValues(setup.module) if rank == 0 and spec.job.network_code else None
        self.held_out, self.test = setup.held_out(), setup.test
        self._trained_targets, self._judged_metrics = setup.trained_targets, setup.metrics
        data = spec.dataset.task if isinstance(spec.job.task, UserTask) else None
        self._kind, items = kind_of_answers(setup.task, self._interface.task, data), self.test or self.held_out
        self._compared = compared(self._kind, setup.task, spec.dataset.outputs, items) if items else None
        self.worker.heartbeat, self.worker.on_iterations = self._heartbeat, self._on_iterations
        self.worker.clock = transport.clock
        self._other_machines = [*range(spec.members.start), *range(spec.members.stop, len(spec.plan.shares))]
        """Workers of other machines, by rank."""
        self._cap_rounds()
        self.group.broadcast(self.worker.params)
        self.state = rule.init(self.worker, self.group)
        self.group.barrier()
        self.map = slot_map(
            setup.module,
            layout,
            rule,
            len(spec.plan.shares),
            self.state,
            self.group.center_client,
            streams=spec.dataset.stream is not None,
            probed=len(self._probe()) if spec.job.network_code else 0,
        )
        self._slots = arena.map_slots(rows_end, self.map.size)
        layout_of_slots = self.worker.parameters, rows_end, self.map.to_json(), _digests_of_fixed(setup.module)
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
        self.worker.round_caps = Balance(*form) if seconds is None else TimeLimit(*form, seconds=seconds)
        progress.caps = self.worker.round_caps.restored(
            point.caps[0] if point.caps else [] if point.other_workers else progress.caps
        )

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
        slot = self._slots[self.arena.slot("restored")]
        self.transport.broadcast_bytes(slot)
        arrays = self.map.view(slot, self.rank)
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
            planned_items=self._planned_items,
            snapshot_every=job.checkpoint.every,
            wait_for_files=job.checkpoint.commit == "every",
            ended=self.spec.point.ended,
            after_judgement=job.hooks.after_judgement is not None,
            compares=self._compared is not None,
            best_by=job.best_by(self.spec.dataset.task),
        )
        own_run = WorkerRun(self.worker, self.group, job.sync, self.state, config, self.progress, self.held_out, self.test, self)
        ending = own_run.train()
        if self._compared:
            self._compared.gather(partial(gather, self.group))
        self.group.center_client.leave()
        if isinstance(self.worker.batches, StreamBatches):
            self.worker.batches.close()
        return ending

    def beside_trivial(self) -> tuple[Scores, dict[str, BesideTrivial]]:
        """Evaluate trivial answers to the test items, or to the held-out items, and compare the network with them; only on worker 0."""
        data, items = self.spec.dataset, self.test or self.held_out
        if self.rank or items is None:
            return {}, {}
        task, codec, trained = self.worker.task, Codec(data.codec), self._trained_targets()
        self._judged_metrics.observe = None
        return (
            trivial_scores(self._kind, task, self._judged_metrics, codec, data.outputs, trained, items),
            comparisons(self._compared, self._kind, task, codec, data.outputs, trained, items, self.spec.job.seed),
        )

    def _heartbeat(self) -> None:
        self.arena.beats[self.rank] += 1

    def _on_iterations(self, count: int) -> None:
        self.arena.trained[self.rank] = self.worker.total_items + self.worker.items
        self.transport.advance_clock(self.worker.total_iterations + self.worker.done, count)

    def training_started(self) -> None:
        if self.rank == 0:
            self.channel.send(TrainingStarted(boot_seconds()))

    def training_finished(self) -> None:
        if self._compared:
            self._judged_metrics.observe = self._compared.add
        if self.rank == 0:
            self.channel.send(TrainingFinished())

    def poll(self, seconds: float) -> Signal:
        replayed = self.progress.round < self.spec.point.known_rounds
        signal = Signal.STOP if self.arena.get("command") and not replayed else Signal(0)
        if self.rank:
            return signal
        limit = self.spec.job.stop.seconds
        if limit is not None and seconds + self.spec.point.elapsed >= limit and not replayed:
            signal |= Signal.OUT_OF_TIME
        lasted, self._previous_poll_s = seconds - self._previous_poll_s, seconds
        wanted = self.arena.get("wanted") if self.arena.get("granted") else 0
        if wanted == ASKED:
            signal |= Signal.CHECKPOINT_ASKED
        if (since := time.perf_counter() - self._copied_s) > self._copy_s / COPY_SHARE:
            if wanted and wanted != ASKED and (wanted != IF_LONG or lasted >= LONG_S):
                signal |= Signal.SNAPSHOT_WANTED
            if since > COPY_EVERY_S and self.arena.get("granted") and self.spec.job.faults.on_loss != "stop":
                signal |= Signal.COPY_WANTED
        return signal

    def after_judgement(self, progress: Progress, *, best: bool, worker: LocalWorker) -> bool:
        asked = False
        if self._after_judgement and progress.round >= self.spec.point.known_rounds:
            numbers, asked = self._after_judgement.call(progress, best=best, module=worker.module)
            self.channel.send(NumbersAdded(progress.round, numbers))
        return bool(self.group.scores(asked)[0][0])

    def show_round(self, number: int, worker: LocalWorker) -> bool:
        arrays: dict[str, Any] = {}
        if self.rank == 0 and self.spec.run_folder:
            self.transport.wait_until(lambda: self.arena.get("committed") >= number, "the checkpoint of the best round")
            with suppress(Failure):  # the file is gone: the summary names the tested round
                best = checkpoint.read_best(self.spec.run_folder, number)
                arrays = best.arrays if best else {}
        if not self.group.scores(bool(arrays))[0][0]:
            return False
        if self.rank == 0:
            load_network(worker.module, arrays)
        self.group.broadcast(worker.params)
        take_first(worker.module, self.group)
        return True

    def record(self, progress: Progress, record: RoundRecord) -> None:
        self.transport.wait_until(
            lambda: progress.round - self.arena.get("drained") < RING, "the coordinator to read the records"
        )
        records = self.arena.ring[progress.round % RING]
        if delay := int(self.arena.delays[self.rank]) - self._delay:
            self._delay += delay
            record.core_wait = delay / 1e9
        metrics = progress.metrics if progress.judged_round == progress.round else {}
        records[self.rank, 1:] = (*record.row()[1:], *(metrics.get(name, NAN) for name in self._metrics))
        self.transport.replicate(lambda: [bytes_by_rank(records[:, 1:])])
        records[[self.rank, *self._other_machines], 0] = progress.round  # last: it makes the record complete
        self._recorded_s = time.perf_counter()

    def snapshot(
        self, progress: Progress, worker: LocalWorker, state: Any, seconds: float, *, durable: bool, reason: str | None
    ) -> None:
        slot = 0
        if self.rank == 0:
            self.transport.wait_until(lambda: self.arena.get("granted") > 0, "a free snapshot")
            slot = self.arena.slot("granted")
            self.arena.put_slot("granted", None)
        slot = int(self.group.board(slot)[0, 0])
        self.group.center_client.pull_state()
        arrays = self.map.view(self._slots[slot], self.rank)
        save(worker, arrays, state, self.group.center_client)
        if self.rank == 0 and PROBE in arrays:
            arrays[PROBE][:] = self._probe()
        self.group.barrier(lambda: [self._parts(slot)])  # every worker has written its part and its record of the round
        if self.rank == 0:
            self._warn_of_changed_values(progress.round)
            self.channel.send(SnapshotFilled(slot, progress.stored(), durable, self.spec.point.elapsed + seconds, reason))
            self._copied_s = time.perf_counter()
            self._copy_s = self._copied_s - self._recorded_s
        wait = durable and self.spec.job.checkpoint.commit == "every"
        if wait and self.rank == 0:
            self.transport.wait_until(lambda: self.arena.get("committed") >= progress.round, "the checkpoint")
        if wait:
            self.group.barrier()  # no worker continues before: its next iteration might fail

    def _probe(self) -> torch.Tensor:
        """Return answers (n,) of the network in the module; an empty tensor if it cannot answer drawn items."""
        try:
            return probe(self.worker.module, self._interface)
        except Exception:  # the dry run has warned of it
            return torch.empty(0)

    def _warn_of_changed_values(self, number: int) -> None:
        """Warn of changed values of a user's network that no checkpoint holds."""
        for path in self._values.take() if self._values else ():
            where = f" ({line})" if (line := line_of(self.worker.module, path)) else ""
            text = f"[model] name: `{path}`{where} has changed in training, and no checkpoint holds it"
            self.channel.send(RunRemark(f"{text}; if answers depend on it, keep it in a buffer (round {number})"))

    def _parts(self, slot: int) -> list[torch.Tensor]:
        """Return the bytes that each worker wrote into a snapshot."""
        spans = map(self.map.part, range(self.worker.size))
        return [torch.frombuffer(self._slots[slot][span], dtype=torch.uint8) for span in spans]


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
