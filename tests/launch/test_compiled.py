"""`[engine] compiled` in whole runs: what the start event and the screen tell."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.runs import Command, events, partrain, summary, write_job

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@pytest.mark.parametrize("compiled", [True, False])
def test_the_start_event_tells_whether_the_network_is_compiled(compiled: bool, tmp_path: Path) -> None:
    said = partrain("run", write_job(tmp_path), "--out", tmp_path / "run", "--set", f"engine.compiled={str(compiled).lower()}")
    assert said.code == 0, said
    assert [worker["compiled"] for worker in events(tmp_path / "run", "start")[0]["workers"]] == [compiled] * 2
    assert "compiler" not in said.err


def test_without_a_compiler_a_run_warns_once_and_trains(tmp_path: Path) -> None:
    job = write_job(tmp_path)
    said = Command(("run", job, "--out", "run"), tmp_path, {"CC": "no-such-cc"}).wait()
    assert said.code == 0, said
    assert said.err.count("there is no C compiler `no-such-cc`; install gcc") == 1
    assert [worker["compiled"] for worker in events(tmp_path / "run", "start")[0]["workers"]] == [False] * 2
    assert summary(tmp_path / "run")["status"] == "finished"
