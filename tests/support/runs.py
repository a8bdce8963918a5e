"""Whole runs for the tests: a small job, trained in this process or by the real command line."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support import warm
from support.children import process_tree

from partrain.cli.main import main

JOB = """# Three clouds of points, told apart by two workers.
name = "clouds"
seed = 3

[model]
name = "mlp"
hidden = [16]

[dataset]
kind = "synthetic"
function = "blobs"
items = 230
test_items = 40
validation = 30
noise = 0.7

[optimizer]
name = "sgd"
lr = 0.05
momentum = 0.9
batch_size = 8

[sync]
rule = "average"
iterations = 3

[[workers]]
count = 2

[stop]
rounds = 4
judge_every = 1

[checkpoint]
commit = "every"
keep = 1000
"""

SIMULATED = 'transport.kind="simulated"'
"""For runs that are only a means: their workers take turns in one process, which costs less than processes and gives the same bits."""

SABOTEUR = '''"""A network whose `deed` is done once, by one worker at one of its training iterations (0: when it is built)."""

import multiprocessing
import os
import pathlib
import signal
import sys
import time

import torch
from torch import nn

DONE = pathlib.Path(__file__).with_name("done")
COUNTS = {}


class Net(nn.Sequential):
    # beside the network: a run warns of numbers in attributes that change
    calls = property(lambda self: COUNTS.get(id(self), 0), lambda self, count: COUNTS.update({id(self): count}))

    def __init__(self, deed="", worker=1, call=1):
        super().__init__(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 3))
        self.deed = deed if multiprocessing.current_process().name == f"partrain worker {worker}" else ""
        self.call, self.calls = call, 0
        self.act()

    def forward(self, x):
        self.calls += self.training
        if self.training:
            self.act()
        return super().forward(x)

    def act(self):
        if self.deed and self.calls == self.call and not DONE.exists():
            DONE.touch()
            exec(self.deed)
'''


# Jobs


def write_job(folder: Path, *sets: str, text: str = JOB) -> Path:
    """The job's file in a folder of its own."""
    from partrain.config.overrides import override
    from partrain.config.toml_source import TomlSource

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "job.toml"
    path.write_text(override(TomlSource.parse(text, "job"), sets).text, encoding="utf-8")
    return path


def sabotage(folder: Path, deed: str, *sets: str, worker: int = 1, call: int = 1) -> Path:
    """A job whose network does something bad, once. `self` is the network; rounds have three calls each."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "saboteur.py").write_text(SABOTEUR, encoding="utf-8")
    model = f'model={{name="saboteur.py:Net", deed={json.dumps(deed)}, worker={worker}, call={call}}}'
    return write_job(folder, model, *sets)


# Here


@dataclass(frozen=True)
class Said:
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        """The names in the error lines."""
        heads = [line.split("]")[0] for line in self.err.splitlines() if line.startswith("partrain: error[")]
        return [head.removeprefix("partrain: error[") for head in heads]


def partrain(*words: object) -> Said:
    """A command line, executed in this process: its workers come from the forkserver that all tests share."""
    argv, sys.argv = sys.argv, ["partrain", *map(str, words)]
    out, err, code = io.StringIO(), io.StringIO(), 0
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main()
    except SystemExit as ending:
        code = int(ending.code or 0)
    finally:
        sys.argv = argv
    return Said(code, out.getvalue(), err.getvalue())


def train(folder: Path, *sets: str, text: str = JOB, code: int = 0) -> Path:
    """The run folder of a job trained as it should be."""
    said = partrain("run", write_job(folder, *sets, text=text), "--out", folder / "run", "--quiet")
    assert said.code == code, said
    return folder / "run"


def resume(checkpoint: Path, *words: object, code: int = 0) -> Said:
    said = partrain("resume", checkpoint, "--quiet", *words)
    assert said.code == code, said
    return said


# Run folders


def round_file(run: Path, number: int) -> Path:
    return run / "checkpoints" / f"round-{number:06d}.h5"


def newest(run: Path) -> bytes:
    return (run / "checkpoint.h5").read_bytes()


def events(run: Path, kind: str = "") -> list[dict[str, Any]]:
    """The events so far, or those of one kind."""
    lines = (run / "events.jsonl").read_text().splitlines(keepends=True) if (run / "events.jsonl").exists() else []
    told = [json.loads(line) for line in lines if line.endswith("\n")]
    return [event for event in told if event["event"] == kind or not kind]


def summary(run: Path) -> dict[str, Any]:
    return dict(json.loads((run / "summary.json").read_text()))


# Elsewhere


@dataclass
class Command:
    """A `partrain` command in a session of its own, as a terminal would start it."""

    words: tuple[object, ...]
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    ignored: tuple[signal.Signals, ...] = ()
    launcher: tuple[object, ...] = (sys.executable,)
    """What starts `-m partrain`. By default the command is a fork: see `support.warm`."""

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        number = len(list(self.folder.glob("*.out")))
        self._out, self._err = self.folder / f"{number}.out", self.folder / f"{number}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = self._start(out.fileno(), err.fileno())

    def _start(self, out: int, err: int) -> warm.WarmProcess:
        anew = self.launcher != (sys.executable,) or any(name.startswith(warm.AT_START) for name in self.environment)
        words, launcher = ([str(word) for word in words] for words in (self.words, self.launcher if anew else ()))
        environment = {**os.environ, **{name: str(value) for name, value in self.environment.items()}}
        return warm.server().start(words, str(self.folder), environment, self.ignored, [out, err], launcher)

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self.members():
            with suppress(ProcessLookupError):  # it ends by itself
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def wait(self, seconds: float = 110) -> Said:
        """Its end; nothing of it may be left soon afterwards."""
        code = self.process.wait(seconds)
        eventually(lambda: not self.members(), "its processes to be gone")
        return Said(code, self._out.read_text(), self._err.read_text())

    def interrupt(self, number: int = signal.SIGINT) -> None:
        """Send a signal to all its processes, as a terminal does."""
        os.killpg(self.process.pid, number)

    def members(self) -> set[int]:
        """Its processes, those of dead parents too: a session is never left."""
        found = set()
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                try:
                    state, _, _, session = Path(entry.path, "stat").read_text().rpartition(")")[2].split()[:4]
                except OSError:
                    continue
                if int(session) == self.process.pid and state != "Z":
                    found.add(int(entry.name))
        return found


def descendants(pid: int) -> set[int]:
    """Processes that this one started, and those that they started."""
    return process_tree(pid).keys() - {pid}


def writer(command: Command) -> int:
    """The coordinator's child that is a fork of it."""
    (found,) = (
        pid for pid in command.members() if parent(pid) == command.process.pid and program(pid) == program(command.process.pid)
    )
    return found


def is_forkserver(pid: int) -> bool:
    """Whether a process is a forkserver or a fork of one."""
    return any("forkserver" in text for text in program(pid))


def program(pid: int) -> tuple[str, str]:
    """The words and the name of a process; a forkserver of `support.warm` has a name of its own."""
    return commandline(pid), Path(f"/proc/{pid}/comm").read_text()


def commandline(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def eventually(holds: Callable[[], Any], what: str, seconds: float = 100) -> Any:
    """Return the result of `holds` once it is true. The limit allows for a busy machine."""
    end = time.monotonic() + seconds
    while not (found := holds()):
        if time.monotonic() > end:
            raise AssertionError(f"waited {seconds:g} s for {what}")
        time.sleep(0.01)
    return found
