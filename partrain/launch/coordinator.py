"""The coordinator of a run: starts the processes, listens, tells what happens, ends everything cleanly.

It never imports torch, and it is the only process that talks to the user. Between it and a worker there are one pipe and the
arena's board; no lock, queue or barrier that a killed owner could leave taken.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from partrain.comm.arena import Arena
from partrain.data import DatasetInfo
from partrain.errors import Failure, InputOutputFailed, Internal, Stalled, UserCodeFailed, WorkersLost
from partrain.job.load import Job
from partrain.job.plan import Plan
from partrain.launch import forkserver
from partrain.launch.checkpoint_writer import CheckpointContext, prepare
from partrain.launch.checkpointer import Checkpointer
from partrain.launch.processes import Handed, WorkerProcesses
from partrain.launch.ready_check import ReadyWorkers
from partrain.launch.round_records import EventSink, RoundRecords
from partrain.launch.signals import Signals, StoppedNow
from partrain.launch.stall_timer import LEAST_S, TICK_S, StallTimer
from partrain.launch.worker.entry import dry_run_main, worker_main
from partrain.launch.worker.spec import ProcessSpec, user_code_under_test
from partrain.system.memory import memory_limits
from partrain.system.parent_death import describe_exit
from partrain.train.stop import Progress

if TYPE_CHECKING:
    from partrain.comm.machine import Machine

STOPPED = "it was stopped"
"""What other machines are told of a trial that the user ended."""
RESUMABLE = WorkersLost, Stalled, InputOutputFailed
"""Failures after which a user goes on from the newest checkpoint."""

Describe = Callable[[dict[int, int], int], None]
"""Told the process of each worker and the number of parameters, once both are known."""


@dataclass
class Start:
    """Where a run begins: at nothing, or at what a checkpoint holds."""

    progress: Progress = field(default_factory=Progress)
    arrays: dict[str, Any] | None = None
    """The checkpoint's arrays by path; None for a fresh start."""
    history: list[tuple[float, ...]] = field(default_factory=list)
    elapsed: float = 0.0
    """Training seconds before."""
    elsewhere: bool = False
    """What a checkpoint holds comes from another machine."""

    @property
    def resuming(self) -> bool:
        """Whether there is a state to go on from."""
        return self.elsewhere or self.arrays is not None


@dataclass
class Ended:
    """How a run ended."""

    status: str
    """`reached`, `finished`, `not-reached`, `stopped`; or `failed`, `diverged` with the failure that ended it."""
    reason: str
    progress: Progress
    seconds: float
    """Training seconds, earlier starts included."""
    test: tuple[float, float | None] | None
    failure: Failure | None = None
    signal: int | None = None


class Coordinator:
    """One run, from the first process to the last file."""

    def __init__(
        self,
        job: Job,
        folder: Path,
        plan: Plan,
        start: Start,
        hear: EventSink,
        tick: Callable[[], None],
        signals: Signals,
        machine: Machine | None = None,
        agree: Callable[[str], None] = lambda complaint: None,
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`agree` is told what keeps this machine from starting, if anything, and raises what keeps another from it; `warn` tells the
        user."""
        self.machine, self.agree = machine, agree
        number, count = (machine.number, machine.count) if machine else (0, 1)
        local = len(plan.shares) // count
        self.members = range(number * local, (number + 1) * local)
        """The workers of this machine."""
        self.job, self.folder, self.plan, self.start = job, folder, plan, start
        self.hear, self.tick, self.signals, self.warn = hear, tick, signals, warn
        self.arena = Arena.create(len(plan.shares))
        self.crew = WorkerProcesses()
        self._trying = ""
        """What is on trial now, in words."""
        self._muster = ReadyWorkers()
        self._done: dict[int, dict[str, Any]] = {}
        judge_every = 1 if job.stop.judge == "any-worker" else plan.judge_every
        self.rounds = RoundRecords(self.arena, start.progress, start.elapsed, job.stop.judge, judge_every, hear)
        coalesce = job.checkpoint.commit == "coalesce"
        self.filing = Checkpointer(self.arena, self.rounds, coalesce, job.transport.stall_seconds, hear, tick)
        self.arena.put("committed", start.progress.round)
        self._training = self._over = False
        self.began_at: float | None = None
        """Unix time of the first local iteration."""
        self._silence = StallTimer()

    def run(
        self, card: DatasetInfo, stock: int, out: Path | None, manifest: dict[str, Any], text: str, describe: Describe
    ) -> Ended:
        """Train to the end. `stock` is the memory file of the data, `out` the run folder (on one machine only); `describe` completes the start event."""
        try:
            forkserver.start()
            prepare()
            self._room = memory_limits()  # the data are in memory by now, the workers are not
            self._try_out(card, stock)
            if not self.signals.count:
                self._spawn(card, stock)
                self._await_ready()
            if self.signals.count:
                return self._ended("stopped", "stopped before the first round", None)
            slots = self.arena.map_slots(self._muster.slots_at, self._muster.map.size)
            if self.start.arrays is not None:
                self._muster.restore(self.start.arrays, slots[0])
            if out:
                history = list(self.start.history)
                self.filing.open(
                    CheckpointContext(out, self.job.checkpoint.keep, text, manifest, self._muster.map, slots, history)
                )
            describe(self._muster.processes, self._muster.parameters)
            self._training = True
            self.filing.begin()
            self._drain()  # where workers were done before we looked, nothing more will be heard
            self.arena.put("restored", 1)
            while len(self._done) < len(self.members):
                self._step()
            self.filing.flush(self.signals, self._say_what_for)
            return self._finished()
        except StoppedNow:
            self._kill()
            self._rescue()
            return self._ended("stopped", self.signals.name, None)
        except Failure as failure:
            self._kill()
            self._rescue()
            if isinstance(failure, RESUMABLE):
                failure.message += f"; {self._way_back()}"
            self.hear({"event": "fault", "t": time.time(), "what": failure.message, "rank": failure.rank})
            status = "diverged" if failure.code == 76 else "failed"
            return Ended(status, failure.name, self.rounds.progress, self.rounds.seconds, None, failure)
        except Internal:
            self._kill()
            self._rescue()
            raise
        finally:
            self._kill()
            self.filing.close()
            os.close(self.arena.descriptor)

    def _try_out(self, card: DatasetInfo, stock: int) -> None:
        """Let one process try what is the user's own; what is wrong with it is raised here, before there are workers."""
        self._trying = user_code_under_test(self.job)
        if not self._trying:
            return
        shares = self.plan.shares
        first = min(self.members, key=lambda rank: (shares[rank].spec.device != "cpu", rank))
        complaint = STOPPED
        try:
            self._start((first,), dry_run_main, "partrain trial", card, stock)
            while self._trying and not self.signals.count:
                self._step()
            complaint = STOPPED if self._trying else ""
        except Failure as failure:
            complaint = failure.message
            raise
        finally:
            self.agree(complaint)

    def _spawn(self, card: DatasetInfo, stock: int) -> None:
        ranks = self.members
        together = self.job.transport.kind == "simulated"
        homes: list[tuple[int, ...]] = [tuple(ranks)] if together else [(rank,) for rank in ranks]
        if self.machine and not self.job.sync.synchronous:
            homes[:0] = [(~number,) for number in self.machine.centers(self.job.sync.slices)]
        for living in homes:
            name = f"partrain worker {living[0]}" if living[0] >= 0 else f"partrain center {~living[0]}"
            self._start(living, worker_main, name, card, stock)

    def _start(
        self, living: tuple[int, ...], work: Callable[[ProcessSpec], None], name: str, card: DatasetInfo, stock: int
    ) -> None:
        """Start one process, for those who are to live in it."""

        def order(pipe: Connection) -> ProcessSpec:
            return ProcessSpec(
                self.job,
                self.folder,
                self.plan,
                living,
                self.members,
                self.machine,
                Handed(self.arena.descriptor),
                Handed(stock),
                card,
                pipe,
                self.rounds.progress,
                self.start.elapsed,
                self.start.resuming,
                forkserver.pid(),
                self._room,
            )

        self.crew.start(living[0], name, work, order)

    def _await_ready(self) -> None:
        while len(self._muster.processes) < len(self.members) and not self.signals.count:
            self._step()

    def _step(self, timeout: float = TICK_S) -> None:
        """Hear what there is to hear, and do what follows from it."""
        ready = wait([self.signals.pipe, *self.crew.waited, *self.filing.waited], timeout)
        if self.signals.pipe in ready:
            self._heed_signals()
        for message in self.crew.said(ready):
            getattr(self, f"_on_{message.pop('kind')}")(**message)
        for rank, code in self.crew.ended(ready):
            self._miss(rank, code)
        self.filing.hear_of(ready)
        self._drain()
        self._check_stall()
        self.filing.go_on()
        self.tick()

    def _drain(self) -> None:
        """Tell of finished rounds, once it is told that the run has started: fast workers may be ahead of that."""
        if self._training:
            self.rounds.drain()

    def _heed_signals(self) -> None:
        self.signals.heed()
        if self.signals.count > 1:
            raise StoppedNow
        if not self._training:
            self._say("stopping before the first round")
        elif self._over:
            self._say("training is over, and the test goes on; once more to leave it out")
        else:
            self._say("stopping after this round; once more to stop now")
        self.arena.put("command", 1)

    def _say(self, what: str) -> None:
        """Answer a signal."""
        self.hear({"event": "stopping", "t": time.time(), "signal": self.signals.name, "what": what})

    def _say_what_for(self) -> None:
        """The end has to wait."""
        self._say(f"waiting for the last checkpoint's file; once more to leave it out: {self._way_back()}")

    def _on_ready(self, **worker: Any) -> None:
        self._muster.enter(**worker)

    def _on_tight(self, text: str) -> None:
        self.warn(text)

    def _on_tried(self) -> None:
        self._trying = ""
        self._kill()  # nobody is to wait for what the user's code may have left running in it

    def _on_began(self, t: float) -> None:
        self.began_at = t

    def _on_over(self) -> None:
        self._over = True

    def _on_snapshot(self, slot: int, progress: dict[str, Any]) -> None:
        self._drain()
        self.filing.offered(slot, progress)

    def _on_done(self, rank: int, **ending: Any) -> None:
        self._done[rank] = ending

    def _on_failed(self, rank: int, code: int, name: str, message: str, detail: str) -> None:
        if code == 70:
            raise Internal(f"{message}\n{detail}")
        if code == WorkersLost.code:
            self._look_next_door(rank)
        kinds = {kind.code: kind for kind in Failure.__subclasses__()}
        raise kinds[code](message, detail, rank if rank >= 0 else None)

    def _look_next_door(self, rank: int) -> None:
        """A worker misses others, or the center: if a process of this machine is dead, say how it died."""
        for other, code in self.crew.dead_beside(rank):
            self._miss(other, code)

    def _miss(self, rank: int, code: int | None) -> None:
        """A process ended. That is well only after its workers were done, or after all had left the center."""
        if self.crew.orphaned(code) and len(self._done) < len(self.members):
            raise WorkersLost("the process that starts workers was killed, and they ended with it")
        if self._trying:
            raise UserCodeFailed(f"{self._trying}, tried before any worker starts: its process {describe_exit(code)}")
        if rank < 0:
            assert self.machine is not None
            if code:
                raise WorkersLost(f"{self.machine.center(~rank)} {describe_exit(code)}")
            return
        living = self.members if self.job.transport.kind == "simulated" else [rank]
        if all(one in self._done for one in living):
            return
        device = self.plan.shares[rank].spec.device
        raise WorkersLost(f"worker {rank} ({device}) {describe_exit(code)}", rank=rank)

    def _way_back(self) -> str:
        if self.machine and self.machine.number:
            return "machine 0 has the checkpoints"
        committed = self.arena.get("committed")
        return f"the checkpoint of round {committed} is intact" if committed else "no checkpoint was committed yet"

    def _rescue(self) -> None:
        """After a failure: rounds that all have finished are told, and whole snapshots that wait still reach the disk."""
        self._drain()
        with suppress(Failure, StoppedNow):
            self.filing.flush(self.signals, self._say_what_for)

    def _check_stall(self) -> None:
        """No sign of life although no file is waited for: a worker is stuck, or what is on trial."""
        self.filing.check()
        limit = self.job.transport.stall_seconds
        begun = self._training or (self._trying and self.arena.beats.any())
        limit = limit if begun else max(limit, LEAST_S)
        arena, waits = self.arena, self._done or self.filing.waited
        signs = (arena.beats.tobytes(), arena.arrivals.tobytes(), *self._muster.processes, *self.crew)
        if self._silence.seconds(None if waits else signs) <= limit:
            return
        late = self._laggards()
        workers = f"worker{'s'[: len(late) > 1]} {', '.join(map(str, late))}"
        who, what = f"{workers} made no progress for {limit:g} s in round {self.rounds.newest + 1}", "iterations"
        if self._trying:
            who = f"{self._trying}, tried before any worker starts, made no progress for {limit:g} s"
        elif not self._training:
            who, what = f"{workers} gave no sign of life for {limit:g} s before the first round", "starting up"
        lone = late[0] if len(late) == 1 and not self._trying else None
        raise Stalled(f"{who}; raise [transport] stall_seconds if {what} may take that long", rank=lone)

    def _laggards(self) -> list[int]:
        """The workers that the others wait for."""
        came = self.arena.arrivals.tolist()
        return [rank for rank, count in enumerate(came) if count == min(came)]

    def _kill(self) -> None:
        """End all processes; workers that are done end by themselves."""
        self.crew.end(at_once=len(self._done) < len(self.members))

    def _finished(self) -> Ended:
        ending = self._done[self.members.start]
        reason, test = ending["reason"], ending["test"]
        self.rounds.seconds = self.start.elapsed + ending["seconds"]
        if ending["reached"]:
            status = "reached"
        elif reason == "asked":
            status, reason = "stopped", self.signals.name or "another machine"
        else:
            status = "not-reached" if self.job.stop.has_target else "finished"
        return self._ended(status, reason, tuple(test) if test else None)

    def _ended(self, status: str, reason: str, test: tuple[float, float | None] | None) -> Ended:
        return Ended(
            status,
            reason,
            self.rounds.progress,
            self.rounds.seconds,
            test,
            signal=self.signals.first if status == "stopped" else None,
        )
