"""The forkserver that waits for another training: its stop harms nobody who uses it meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection

import pytest

from partrain.launch import forkserver


def wait_for_end(pipe: Connection) -> None:
    pipe.recv()


@pytest.fixture
def stop(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Timer]:
    """The stop that waits; it acts as if its time had come when it is run."""
    forkserver.start()
    forkserver.stop_later(10**6)
    timer = forkserver._pending
    assert timer is not None
    monkeypatch.setattr(threading, "current_thread", lambda: timer)
    yield timer
    monkeypatch.undo()
    forkserver._cancel()


def test_a_forkserver_that_is_idle_stops(stop: threading.Timer) -> None:
    stop.function()
    assert forkserver.pid() == 0


def test_one_that_was_started_again_goes_on(stop: threading.Timer) -> None:
    before = forkserver.pid()
    forkserver.start()
    stop.function()
    assert forkserver.pid() == before != 0


def test_one_with_a_child_goes_on(stop: threading.Timer) -> None:
    ours, theirs = Pipe()
    with pytest.MonkeyPatch.context() as real:
        real.setattr(threading, "current_thread", threading.main_thread)
        context = forkserver.get_context("forkserver")
        with forkserver.without_main():
            (child := context.Process(target=wait_for_end, args=(theirs,))).start()
    before = forkserver.pid()
    stop.function()
    assert forkserver.pid() == before != 0
    ours.send(None)
    child.join()
    assert child.exitcode == 0
