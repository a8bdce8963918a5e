"""MLflow's own client finds a run, its numbers, parameters and tags."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.runs import events, partrain, resume, round_file, sabotage, summary, write_job

pytestmark = pytest.mark.slow

READ = """
import json, sys
from mlflow import MlflowClient
for line in sys.stdin:
    client = MlflowClient(line.strip())
    (experiment,) = [each for each in client.search_experiments() if each.name == "clouds"]
    run, *_ = client.search_runs([experiment.experiment_id])
    history = {name: [(each.step, each.value) for each in client.get_metric_history(run.info.run_id, name)] for name in run.data.metrics}
    times = [run.info.start_time, run.info.end_time]
    print(json.dumps([history, run.data.params, run.data.tags, run.info.status, run.info.run_name, times]), flush=True)
"""
"""In a process of its own: MLflow starts threads, and warns."""


@pytest.fixture
def logged() -> Iterator[Callable[[Path], Any]]:
    """A function that gives the one run in a store; its process imports MLflow once."""
    environment = {**os.environ, "MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_DISABLE_TELEMETRY": "true"}
    argv = [sys.executable, "-c", READ]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as reader:
        assert reader.stdin
        assert reader.stdout
        stores, told = reader.stdin, reader.stdout

        def read(store: Path) -> Any:
            print(store.as_uri(), file=stores, flush=True)
            return json.loads(told.readline())

        yield read
        stores.close()
    assert reader.returncode == 0


def test_a_run_and_its_resumption(tmp_path: Path, logged: Callable[[Path], Any]) -> None:
    run = tmp_path / "run"
    assert partrain("run", write_job(tmp_path), "--out", run, "-q", "--log", "mlflow").code == 0
    history, params, tags, status, name, (began, ended) = logged(run / "mlruns")
    judged = events(run, "judgement")
    assert history["judged/loss"] == [[each["item_iterations"], each["loss"]] for each in judged]
    assert history["round"][-1] == [summary(run)["item_iterations"], 4]
    assert history["test/accuracy"][-1][1] == summary(run)["test"]["accuracy"]
    assert params["optimizer.lr"] == "0.05"
    assert params["model.hidden"] == "[16]"
    assert (tags["rule"], tags["workers"], tags["status"], tags["reason"]) == ("average", "2 cpu", "finished", "rounds")
    assert (status, name) == ("FINISHED", "run")
    assert began < ended
    resume(run, "--until", "rounds=6", "--log", "mlflow")
    history, params, tags, status, *_ = logged(run / "mlruns")
    assert history["judged/loss"] == [[each["item_iterations"], each["loss"]] for each in events(run, "judgement")]
    assert (params["stop.rounds"], tags["stop.rounds"], tags["rounds"]) == ("4", "6", "6")  # parameters never change


def test_rounds_that_a_resumption_abandons_are_not_its_numbers(tmp_path: Path, logged: Callable[[Path], Any]) -> None:
    """MLflow shows the row of the highest step: the further run has none of the old one's."""
    run = tmp_path / "run"
    assert partrain("run", write_job(tmp_path), "--out", run, "-q", "--log", "mlflow").code == 0
    assert "mlflow.parentRunId" not in logged(run / "mlruns")[2]
    for rounds in (3, 5):  # from before its end, then from its end
        resume(*([round_file(run, 2)] if rounds == 3 else [run]), "--until", f"rounds={rounds}", "--log", "mlflow")
        history, _, tags, *_ = logged(run / "mlruns")
        assert history["round"][-1] == [summary(run)["item_iterations"], rounds]
        assert history["judged/loss"] == [[row["item_iterations"], row["loss"]] for row in events(run, "judgement")]
        assert "mlflow.parentRunId" in tags


def test_a_store_of_the_environment_and_a_run_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: Callable[[Path], Any]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "ours").as_uri())
    job = sabotage(tmp_path, "raise ValueError", call=7)
    assert partrain("run", job, "--out", tmp_path / "run", "-q", "--log", "mlflow").code == 71
    _, _, tags, status, *_ = logged(tmp_path / "ours")
    assert (tags["status"], status) == ("failed", "FAILED")
    assert not (tmp_path / "run" / "mlruns").exists()
