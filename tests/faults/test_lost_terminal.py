"""A terminal that goes away (a closed window, a lost connection) costs its output, never the run."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest
from support.runs import events, eventually, summary, write_job

from partrain import checkpoint

SCRIPT = """
import sys
import partrain
partrain.train(sys.argv[1], out=sys.argv[2], show=True)
"""


class Terminal:
    """A terminal, read until it closes."""

    def __init__(self) -> None:
        self.ours, self.theirs = pty.openpty()
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))

    def run(self, words: list[object], folder: Path, where: str, control: bool) -> subprocess.Popen[bytes]:
        """Start a session on it; `where` names the streams that are files."""

        def take_over() -> None:
            os.setsid()
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
            if control:
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        with (folder / "file").open("wb") as file:
            out, err = (file if name in where else self.theirs for name in ("stdout", "stderr"))
            process = subprocess.Popen(
                [sys.executable, *map(str, words)], stdin=self.theirs, stdout=out, stderr=err, preexec_fn=take_over,
                env=os.environ | {"TERM": "xterm"},
            )  # fmt: skip
        os.close(self.theirs)
        return process

    def read_until(self, condition: Callable[[], bool]) -> None:
        def read() -> bool:
            while select.select([self.ours], [], [], 0)[0]:
                os.read(self.ours, 1 << 16)
            return condition()

        eventually(read, "rounds on the terminal")


@pytest.mark.representative
@pytest.mark.parametrize("where", ["all on the terminal", "stderr is a file"])
def test_closing_the_terminal_ends_the_run_after_a_checkpoint(tmp_path: Path, where: str) -> None:
    job, run, terminal = (
        write_job(tmp_path, "stop.rounds=1000000", "checkpoint={commit='coalesce'}"),
        tmp_path / "run",
        Terminal(),
    )
    process = terminal.run(["-m", "partrain", "run", job, "--out", run], tmp_path, where, control=True)
    terminal.read_until(lambda: len(events(run, "round")) > 60)
    os.close(terminal.ours)
    assert process.wait(110) == 143, (tmp_path / "file").read_text()
    assert (summary(run)["status"], summary(run)["reason"]) == ("stopped", "SIGHUP")
    assert checkpoint.read(run / "checkpoint.h5").round == summary(run)["rounds"]


@pytest.mark.parametrize(
    ("where", "script"), [("stdout is a file", False), pytest.param("all on the terminal", True, marks=pytest.mark.slow)]
)
def test_a_terminal_that_leaves_without_a_signal_does_not_end_the_run(tmp_path: Path, where: str, script: bool) -> None:
    sets = "stop={rounds=200, judge_every=20}", "checkpoint={commit='coalesce', every=20}"
    job, run, terminal = write_job(tmp_path, *sets), tmp_path / "run", Terminal()
    words = ["-c", SCRIPT, job, run] if script else ["-m", "partrain", "run", job, "--out", run]
    process = terminal.run(words, tmp_path, where, control=False)
    terminal.read_until(lambda: len(events(run, "round")) > 60)
    os.close(terminal.ours)
    assert process.wait(110) == 0, (tmp_path / "file").read_text()
    assert (summary(run)["status"], summary(run)["rounds"]) == ("finished", 200)
