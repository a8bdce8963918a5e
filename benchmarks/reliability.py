"""A training that meets a fault every few seconds, against the same training left alone: time, lost work and the bits of the end.

    python benchmarks/reliability.py --seconds 600 --every 10

Both trainings run in turns, a part of the rounds each, so that what else the machine does falls on both. The kinds of faults come in
drawn order (seeded): a worker killed, a worker frozen, the process that starts workers killed, the disk of the checkpoints full, the
command itself killed. Whatever ends the command, `partrain resume` goes on, as a supervisor would. Prints tables. Exits with 1 if the last checkpoints differ or a fault had no effect.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import runs

from partrain import checkpoint

NET = '''from torch import nn


class Net(nn.Sequential):
    """BatchNorm and dropout: buffers and generators are part of what must come back."""

    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(784, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 10))
'''
JOB = """name = "soak"
seed = 1
model = {name = "net.py:Net"}
dataset = {name = "mnist", validation = 5000}
optimizer = {name = "sgd", lr = 0.02, momentum = 0.9, batch_size = 64}
sync = {rule = "average", iterations = 10}
workers = [{count = 2}]
transport = {stall_seconds = 1}
faults = {max_replays = 1000}
stop = {rounds = 1000000, judge_every = 100}
checkpoint = {keep = 2}
"""
KINDS = "worker killed", "worker frozen", "starter killed", "disk full", "command killed"
ENDED_BY_FAULT = (-signal.SIGKILL, 69, 74, 75)


@dataclass
class Fault:
    """One fault that was made."""

    kind: str
    at: float
    """Unix time."""
    detection: float | None = None
    """Seconds until the coordinator had noticed it and had ended all workers; None if the command ended."""
    restart: float | None = None
    """Seconds from there, or from the end of the command, until the workers trained again (a resume: until they had trained a round)."""
    newest: int = 0
    """The newest round before it, or before the command ended."""
    again: int | None = None
    """Rounds that ran again."""


class Training:
    """A run in parts, each by one or more commands."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        (folder / "net.py").write_text(NET, encoding="utf-8")
        (folder / "job.toml").write_text(JOB, encoding="utf-8")
        self.folder, self.run = folder, folder / "run"
        self.seconds: list[float] = []
        """Seconds of each part, from the first round of its first command to the end of its last."""
        self.faults: list[Fault] = []
        self.lost: list[float] = []
        """Seconds of detection and restart in each part."""
        self.again: list[int] = []
        """Rounds that ran again in each part."""

    def part(self, until: int, disturb: Callable[[Training, subprocess.Popen[bytes]], None] | None = None) -> None:
        """Train up to a round; start the command again as often as it ends before."""
        began, known = None, len(self.faults)
        while True:
            with (self.folder / "log").open("ab") as log:
                process = subprocess.Popen(self._words(until), stdout=log, stderr=log, cwd=self.folder, start_new_session=True)
                self._wait_for_training(process)
                if began is None:
                    began = time.monotonic()
                if disturb:
                    disturb(self, process)
                code = process.wait()
            if code == 0:
                self.seconds.append(time.monotonic() - began)
                faults = self.faults[known:]
                self.lost.append(sum((fault.detection or 0) + (fault.restart or 0) for fault in faults))
                self.again.append(sum(fault.again or 0 for fault in faults))
                return
            if disturb is None or code not in ENDED_BY_FAULT:
                raise SystemExit(f"the command ended with {code}:\n{(self.folder / 'log').read_text()[-2000:]}")

    def _words(self, until: int) -> list[str]:
        command = [sys.executable, "-m", "partrain"]
        if (self.run / "checkpoint.h5").exists():
            return [*command, "resume", str(self.run), "--trust-code", "--until", f"rounds={until}", "-q"]
        return [*command, "run", "job.toml", "--out", "run", "--set", f"stop.rounds={until}", "-q"]

    def _wait_for_training(self, process: subprocess.Popen[bytes]) -> None:
        """Return once this command has finished a round, or has ended."""
        began = time.time()
        while process.poll() is None:
            if told := [event for event in self.events("round") if event["t"] > began]:
                if self.faults and self.faults[-1].restart is None:
                    fault = self.faults[-1]
                    fault.restart, fault.again = time.time() - fault.at, max(0, fault.newest + 1 - told[0]["round"])
                return
            time.sleep(0.02)

    def events(self, kind: str) -> list[dict[str, Any]]:
        """The whole lines of one kind at the end of the run's log."""
        try:
            with (self.run / "events.jsonl").open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - 20_000))
                lines = log.read().splitlines(keepends=True)
        except FileNotFoundError:
            return []
        found = []
        for line in lines:
            with suppress(ValueError):
                event = json.loads(line)
                if line.endswith(b"\n") and event["event"] == kind:
                    found.append(event)
        return found

    def all_events(self) -> list[dict[str, Any]]:
        """All events of the run."""
        return [json.loads(line) for line in (self.run / "events.jsonl").read_text(encoding="utf-8").splitlines()]


class Disturber:
    """Makes a fault every `every` seconds of training."""

    def __init__(self, every: float, kinds: Sequence[str], seed: int) -> None:
        self._every, self._random = every, random.Random(seed)
        self._kinds = self._drawn(list(kinds))
        self._left = every

    def __call__(self, training: Training, process: subprocess.Popen[bytes]) -> None:
        """Make faults until the command has ended."""
        while process.poll() is None:
            time.sleep(0.02)
            self._left -= 0.02
            if self._left <= 0 and self._make(next(self._kinds), training, process):
                self._left = self._every

    def _drawn(self, kinds: list[str]) -> Iterator[str]:
        while True:
            self._random.shuffle(kinds)
            yield from kinds

    def _make(self, kind: str, training: Training, process: subprocess.Popen[bytes]) -> bool:
        """Make a fault and wait for its effect; False if there was nobody to hit."""
        starter, workers, writers = relatives(process.pid)
        victims = {"worker killed": workers, "worker frozen": workers, "starter killed": starter, "disk full": writers}
        pids = victims.get(kind, [process.pid])
        if not pids:
            return False
        fault = Fault(kind, time.time(), newest=self._newest(training))
        with suppress(ProcessLookupError):
            if kind == "disk full":
                resource.prlimit(pids[0], resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
            else:
                os.kill(self._random.choice(pids), signal.SIGSTOP if kind == "worker frozen" else signal.SIGKILL)
        training.faults.append(fault)
        while process.poll() is None:
            told = [event for event in training.events("replay") if event["t"] > fault.at]
            if told:
                fault.detection = told[-1]["t"] - told[-1]["seconds"] - fault.at
                fault.restart, fault.again = told[-1]["seconds"], max(0, fault.newest - told[-1]["after"])
                return True
            if time.time() > fault.at + 60:
                raise SystemExit(f"{kind}: nothing came of it within 60 seconds")
            time.sleep(0.005)
        fault.at, fault.newest = time.time(), self._newest(training)  # it trained on until it ended
        return True

    def _newest(self, training: Training) -> int:
        return max((event["round"] for event in training.events("round")), default=0)


def relatives(pid: int) -> tuple[list[int], list[int], list[int]]:
    """The processes of a command: the one that starts workers, the workers, the one that writes checkpoints."""
    starter, workers, writers = [], [], []
    for child in children(pid):
        name = commandline(child)
        if "forkserver" in name:
            starter.append(child)
            workers += children(child)
        elif "resource_tracker" not in name:
            writers.append(child)
    return starter, workers, writers


def children(pid: int) -> list[int]:
    """Processes that this one started."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def commandline(pid: int) -> str:
    """The words of a process; none if it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


def shown(values: list[float]) -> str:
    """Median, 99th percentile and most, in seconds."""
    if not values:
        return "- | - | -"
    ordered = sorted(values)
    return (
        f"{statistics.median(ordered):.3f} | {ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]:.3f} | {ordered[-1]:.3f}"
    )


def tell(alone: Training, disturbed: Training, rounds: int) -> bool:
    """Print what came out; True if nothing was lost."""
    final = [(one.run / "checkpoint.h5", checkpoint.read(one.run / "checkpoint.h5")) for one in (alone, disturbed)]
    ours, theirs = (content.arrays for _, content in final)
    training = [path for path in ours if path.startswith(("model/", "workers/", "rule/"))]
    equal = bool(training) and all((ours[path] == theirs[path]).all() for path in training) and final[1][1].round == rounds
    events = disturbed.all_events()
    replays = [event for event in events if event["event"] == "replay"]
    took, without = sum(disturbed.seconds), sum(alone.seconds)
    pace = [seconds / (rounds / len(alone.seconds)) for seconds in alone.seconds]
    less = [
        one / (other - lost - again * each)
        for one, other, lost, again, each in zip(
            alone.seconds, disturbed.seconds, disturbed.lost, disturbed.again, pace, strict=True
        )
    ]
    undisturbed = not [each for each in alone.all_events() if each["event"] in ("replay", "fault")]
    print(
        f"{rounds:,} rounds, {len(disturbed.faults)} faults, {len(replays)} replays, {len({e['t'] for e in events if e['event'] == 'start'}) - 1} resumes"
    )
    print(f"rate / undisturbed rate: {without / took:.3f} ({without:.0f} s alone, {took:.0f} s with faults)")
    again = sum(count * each for count, each in zip(disturbed.again, pace, strict=True))
    print(
        f"the same less detection and restart ({sum(disturbed.lost):.1f} s) and less the rounds that ran again ({again:.1f} s): "
        f"{without / (took - sum(disturbed.lost) - again):.3f}; turn by turn, median (least-most): {runs.shown(less, '.3f')}"
    )
    print(f"arrays of the final checkpoint equal: {equal} ({len(training)} arrays)")
    print(
        "\n| fault | number | answer | detection, s: median | p99 | most | restart, s: median | p99 | most |\n|---|---|---|---|---|---|---|---|---|"
    )
    for kind in sorted({fault.kind for fault in disturbed.faults}):
        ours_of = [fault for fault in disturbed.faults if fault.kind == kind]
        replayed = [fault for fault in ours_of if fault.detection is not None]
        found = shown([fault.detection for fault in replayed if fault.detection is not None])
        restarts = shown([fault.restart for fault in ours_of if fault.restart is not None])
        print(f"| {kind} | {len(ours_of)} | {'replay' if replayed else 'resume'} | {found} | {restarts} |")
    for name, one in (("alone", alone), ("with faults", disturbed)):
        waits = [event["seconds"] for event in one.all_events() if event["event"] == "commit"]
        print(f"| writing a checkpoint, {name} | {len(waits)} | | {shown(waits)} | | | |")
    return equal and undisturbed and bool(disturbed.faults)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=600, help="length of the training with faults")
    options.add_argument("--every", type=float, default=10, help="seconds of training between faults")
    options.add_argument("--parts", type=int, default=20, help="turns of the two trainings")
    options.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="kinds of faults; all by default")
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    print(
        f"`python benchmarks/reliability.py --seconds {given.seconds:g} --every {given.every:g} --seed {given.seed}`; {runs.machine()}\n"
    )
    with tempfile.TemporaryDirectory() as scratch:
        trial = Training(Path(scratch, "trial"))
        trial.part(300)
        trial.part(900)
        rounds = max(100, int(900 / sum(trial.seconds) * given.seconds * 0.8) // given.parts)
        alone, disturbed = Training(Path(scratch, "alone")), Training(Path(scratch, "disturbed"))
        disturber = Disturber(given.every, given.kinds, given.seed)
        for part in range(1, given.parts + 1):
            alone.part(part * rounds)
            disturbed.part(part * rounds, disturber)
        sys.exit(0 if tell(alone, disturbed, given.parts * rounds) else 1)


if __name__ == "__main__":
    main()
