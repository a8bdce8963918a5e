"""The hooks of a worker's loop to the coordinator: signals, records of rounds, snapshots."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from partrain import checkpoint
from partrain.comm.arena import ASKED, IF_LONG, LONG_S, RING
from partrain.comm.group import ArenaGroup, bytes_by_rank
from partrain.errors import Failure
from partrain.launch.worker.channel import Channel
from partrain.launch.worker.messages import NumbersAdded, RunRemark, SnapshotFilled, TrainingFinished, TrainingStarted
from partrain.launch.worker.spec import ProcessSpec
from partrain.models import Interface
from partrain.models.answers import probe
from partrain.models.attributes import ChangedValues, line_of
from partrain.record.round_record import NAN, RoundRecord
from partrain.system.environment import boot_seconds
from partrain.training.after_judgement import AfterJudgement
from partrain.training.buffers import take_first
from partrain.training.loop import Signal
from partrain.training.snapshot import load_network, save
from partrain.training.snapshot_layout import PROBE, SlotMap
from partrain.training.stop import Progress
from partrain.training.trivial import TrivialComparison
from partrain.training.worker import LocalWorker

COPY_SHARE = 0.01
"""Share of the time for copies of the state, unless a round ends the run, is the best, or requires its checkpoint."""
COPY_EVERY_S = 0.1
"""Least seconds between two copies that only guard against the loss of a worker: each wakes the coordinator."""


@dataclass(frozen=True)
class Slots:
    """The places of snapshots in the arena."""

    map: SlotMap
    """Their arrays."""
    memory: Sequence[memoryview]
    """Their bytes."""


class CoordinatorHooks:
    """A worker's hooks to the coordinator (`loop.RunHooks`)."""

    def __init__(
        self,
        spec: ProcessSpec,
        group: ArenaGroup,
        channel: Channel,
        progress: Progress,
        slots: Slots,
        module: nn.Module,
        interface: Interface,
        comparison: TrivialComparison,
    ) -> None:
        """Prepare the hooks.

        Args:
            spec: The specification of the process.
            group: The worker's group.
            channel: The way to the coordinator.
            progress: The worker's progress, which its loop keeps up to date.
            slots: The places of snapshots.
            module: The worker's module.
            interface: The network's interface.
            comparison: The comparison with trivial answers, which observes the network's answers to the test items.
        """
        self.spec, self.group, self.channel, self.progress, self._slots = spec, group, channel, progress, slots
        self.rank, self.arena, self.transport = group.rank, group.arena, group.transport
        self._module, self._interface, self._comparison = module, interface, comparison
        self._metrics = tuple(spec.job.metrics(spec.dataset.task))
        self._after_judgement = AfterJudgement(spec.job.hooks, spec.folder) if self.rank == 0 and spec.job.hooks.code else None
        self._values = ChangedValues(module) if self.rank == 0 and spec.job.network_code else None
        self._other_machines = [*range(spec.members.start), *range(spec.members.stop, len(spec.plan.shares))]
        """Workers of other machines, by rank."""
        self._previous_poll_s = 0.0
        """Seconds of training at the end of the previous round."""
        self._copied_s = self._recorded_s = time.perf_counter()
        """Moments of the newest copy of the state and of the newest record."""
        self._copy_s = 0.0
        """Duration of the newest copy in seconds."""
        self._delay = int(self.arena.delays[self.rank])
        """Nanoseconds without a core that records have reported."""

    def training_started(self) -> None:
        if self.rank == 0:
            self.channel.send(TrainingStarted(boot_seconds()))

    def training_finished(self) -> None:
        self._comparison.observe()
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
            record.core_wait = delay / 1e9 / len(self.spec.ranks)  # of the process: each of its workers has its share
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
        arrays = self._slots.map.view(self._slots.memory[slot], self.rank)
        save(worker, arrays, state, self.group.center_client)
        if self.rank == 0 and PROBE in arrays:
            arrays[PROBE][:] = probed(self._module, self._interface)
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

    def _warn_of_changed_values(self, number: int) -> None:
        """Warn of changed values of a user's network that no checkpoint holds."""
        for path in self._values.take() if self._values else ():
            where = f" ({line})" if (line := line_of(self._module, path)) else ""
            text = f"[model] name: `{path}`{where} has changed in training, and no checkpoint holds it"
            self.channel.send(RunRemark(f"{text}; if answers depend on it, keep it in a buffer (round {number})"))

    def _parts(self, slot: int) -> list[torch.Tensor]:
        """Return the bytes that each worker wrote into a snapshot."""
        spans = map(self._slots.map.part, range(self.group.size))
        return [torch.frombuffer(self._slots.memory[slot][span], dtype=torch.uint8) for span in spans]


def probed(module: nn.Module, interface: Interface) -> torch.Tensor:
    """Return answers (n,) of a network to drawn items; an empty tensor if it cannot answer them."""
    try:
        return probe(module, interface)
    except Exception:  # the dry run has warned of it
        return torch.empty(0)
