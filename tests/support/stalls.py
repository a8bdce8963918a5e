"""Stalls in tests: on a busy machine any process may be late for a second."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from partrain.launch.attempt import Attempt
from partrain.system.child_process import ChildProcess


def count_stopped_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs of this process count a standstill only while all workers that the others wait for are stopped by SIGSTOP."""
    signs = Attempt.signs_of_life

    def signs_of_life(attempt: Attempt) -> object:
        late = set(attempt.stalled_workers())
        awaited = [attempt.processes.get(ranks[0]) for ranks in attempt._ranks_by_process() if late & set(ranks)]
        return signs(attempt) if awaited and all(map(_stopped, awaited)) else None  # None: the time begins anew

    monkeypatch.setattr(Attempt, "signs_of_life", signs_of_life)


def _stopped(child: ChildProcess | None) -> bool:
    return child is not None and state(child.pid) == "T"


def state(pid: int) -> str:
    """The letter of a process's state; "" if it is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""
