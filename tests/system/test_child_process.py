"""A child process: its pipe, its end in words, and its end for certain."""

from __future__ import annotations

import os
import signal
import sys
from multiprocessing.connection import Connection

from partrain.system.child_process import ChildProcess


def main(pipe: Connection, number: int) -> None:
    pipe.send((number, os.getppid(), sys.flags.safe_path, signal.getsignal(signal.SIGINT) == signal.SIG_IGN))
    pipe.recv_bytes()


def test_a_python_gets_its_arguments_and_is_safe_from_the_terminal() -> None:
    child = ChildProcess.python(__name__, 5)
    assert child.pipe.recv() == (5, os.getpid(), True, True)
    assert not child.wait(0.0)
    child.pipe.send_bytes(b"")
    assert child.wait()
    assert child.exit_code == 0
    assert child.stop()


def test_a_fork_ends_with_its_pipe() -> None:
    child = ChildProcess.fork(lambda pipe: main(pipe, 6))
    assert child.pipe.recv()[:2] == (6, os.getpid())
    child.pipe.close()
    assert child.stop(None)
    assert child.exit_code == 0


def test_a_frozen_process_is_killed_with_its_group() -> None:
    child = ChildProcess.program(["sleep", "1000"], process_group=0)
    child.signal(signal.SIGSTOP)
    assert child.stop(0.1)
    assert child.exit_code == -signal.SIGKILL
    assert child.end_in_words().startswith("was killed by SIGKILL")


def test_a_fork_that_exits_is_described() -> None:
    child = ChildProcess.fork(lambda pipe: os._exit(3))
    assert child.end_in_words().startswith("ended with exit status 3 before its work was done")
    assert child.stop()
