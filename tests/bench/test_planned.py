"""Plans of jobs, against what runs of them do."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from support.runs import events, partrain, summary, write_job


def planned(job: Path, *words: str) -> dict[str, Any]:
    said = partrain("plan", job, "--json", *words)
    assert said.code == 0, said.err
    return dict(json.loads(said.out))


def test_it_is_what_a_run_does(tmp_path: Path) -> None:
    job = write_job(tmp_path, "workers=[{partition_size=50},{iterations=7}]", "optimizer.momentum=0.9")
    plan = planned(job)
    assert partrain("run", job, "--out", tmp_path / "run", "-q").code == 0
    (start,) = events(tmp_path / "run", "start")
    for worker, begun in zip(plan["workers"], start["workers"], strict=True):
        assert (worker["rank"], worker["device"], worker["threads"]) == (begun["rank"], begun["device"], begun["threads"])
        assert (worker["partition"], worker["iterations"]) == (begun["partition"], begun["iterations"])
    assert plan["network"]["parameters"] == start["parameters"] == 2 * 16 + 16 + 16 * 3 + 3
    assert plan["network"]["optimizer_vectors"] == 1
    assert plan["data"]["held_out"] == start["held_out"]
    assert plan["round"]["judge_every"] == start["judge_every"]
    assert plan["end"]["item_iterations"] == summary(tmp_path / "run")["item_iterations"]
    assert plan["end"]["rounds"] == summary(tmp_path / "run")["rounds"]


def test_for_people(tmp_path: Path) -> None:
    said = partrain("plan", write_job(tmp_path))
    assert said.out.splitlines()[0] == "plan: clouds, 2 workers, rule average, transport shared"
    assert "data: 200 items to train with, 30 to judge with, 40 to test with; " in said.out
    assert "round: 48 item-iterations; judged every round" in said.out
    assert "end: at the latest after 4 rounds: 192 item-iterations, 1.0 per item" in said.out
    said = partrain("plan", write_job(tmp_path / "b", "stop={seconds=5}"))
    assert "end: by time, by a target or by patience" in said.out


def test_nothing_is_written(tmp_path: Path) -> None:
    job = write_job(tmp_path)
    planned(job)
    assert [one.name for one in tmp_path.iterdir()] == ["job.toml"]


def test_a_network_of_the_users(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("from torch import nn\n\ndef net():\n    return nn.Linear(2, 3)\n")
    assert planned(write_job(tmp_path, 'model={name="net.py:net"}'))["network"]["parameters"] == 9
    job = write_job(tmp_path / "wrong", 'model={name="wrong.py:net"}')
    (tmp_path / "wrong/wrong.py").write_text("def net():\n    raise ValueError('no')\n")
    said = partrain("plan", job)
    assert said.code == 71
    assert "ValueError: no" in said.err


def test_a_short_measurement(tmp_path: Path) -> None:
    job = write_job(tmp_path, "workers=[{count=1}]", "optimizer.schedule='linear'")
    measured = planned(job, "--probe", "--seconds", "0.5")["probe"]
    assert measured["now"]["rounds"] >= 1
    assert measured["now"]["seconds_per_round"] > 0
    assert measured["seconds_to_end"] == 4 * 24 / measured["now"]["items_per_second"]
    if measured["cores"] > 1:
        assert measured["more"]["bytes_per_round"] > 0
        assert measured["gain"] == measured["more"]["items_per_second"] / measured["now"]["items_per_second"]


def test_where_no_core_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    said = partrain("plan", write_job(tmp_path), "--probe", "--seconds", "0.5")
    assert said.code == 0, said.err
    assert "3 workers would share 2 cores, all in use: one more worker does not pay here" in said.out
    assert "each worker sends " in said.out


def test_one_more_worker_that_the_job_forbids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    job = write_job(tmp_path, "workers=[{count=2, partition_size=100}]", "partition={overlap=0}")
    said = partrain("plan", job, "--probe", "--seconds", "0.5")
    assert said.code == 0, said.err
    assert "3 workers cannot be tried: " in said.out


def test_a_job_that_diverges_has_no_speed(tmp_path: Path) -> None:
    said = partrain("plan", write_job(tmp_path, "optimizer.lr=1e30"), "--probe", "--seconds", "0.5")
    assert said.code == 76, said
    assert "Traceback" not in said.err


def test_simulated_workers_have_no_real_speed(tmp_path: Path) -> None:
    said = partrain("plan", write_job(tmp_path, 'transport.kind="simulated"'), "--probe")
    assert said.code == 78
    assert "this job simulates them" in said.err
