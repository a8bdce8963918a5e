"""The clock of the machine is set while a run trains: durations and the order of events stay right."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from support.runs import events, partrain, resume, sabotage, summary

DAY_S = 86_400
KILL = "os.kill(os.getpid(), signal.SIGKILL)"
WORKFLOW = """
name = "one-step"

[[steps]]
name = "train"
job = "job.toml"
"""


def set_clock(monkeypatch: pytest.MonkeyPatch, flag: Path, days: float) -> None:
    """Have the clock show another time in this process once the file is there."""
    true_time = time.time
    monkeypatch.setattr(time, "time", lambda: true_time() + days * DAY_S * flag.exists())


@pytest.mark.parametrize("days", [-30, 30])
@pytest.mark.parametrize("deed", ["pass", KILL], ids=["no fault", "a worker is lost"])
def test_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deed: str, days: float) -> None:
    """Also of the replay that follows, and of a session that goes on later."""
    set_clock(monkeypatch, tmp_path / "done", days)
    began, run = time.time(), tmp_path / "run"
    said = partrain("run", sabotage(tmp_path, deed, call=8), "--out", run, "-q")
    assert said.code == 0, said
    assert (tmp_path / "done").exists(), "the clock was not set"
    moments = [event["t"] for event in events(run)]
    assert moments == sorted(moments)
    assert began - DAY_S < moments[0] <= moments[-1] < began + DAY_S
    judged = [event["seconds"] for event in events(run, "judgement")]
    assert judged == sorted(judged)
    assert judged[0] > 0
    assert all(0 <= event["seconds"] < DAY_S for event in events(run, "replay"))
    assert len(events(run, "replay")) == (deed == KILL)
    seconds = summary(run)["seconds"]
    assert 0 < seconds["startup"] < seconds["total"] < DAY_S
    assert 0 < seconds["train"] < seconds["total"]
    resume(run, "--trust-code", "--until", "rounds=6")
    assert seconds["total"] < summary(run)["seconds"]["total"] < DAY_S


def test_a_step_of_a_workflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, tmp_path / "done", -30)
    sabotage(tmp_path, "pass")
    (tmp_path / "workflow.toml").write_text(WORKFLOW)
    said = partrain("run", tmp_path / "workflow.toml", "--out", tmp_path / "flow", "--json")
    assert said.code == 0, said
    assert (tmp_path / "done").exists(), "the clock was not set"
    (step,) = json.loads(said.out)["steps"]
    assert 0 < step["seconds"] < DAY_S
