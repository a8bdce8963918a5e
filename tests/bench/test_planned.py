"""Plans of jobs, against what runs of them do."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from support.runs import events, partrain, summary, write_job

from partrain import checkpoint
from partrain.bench.planned import _speeds, forecast, gain_pays, plan
from partrain.job.load import load
from partrain.job.plan import make_plan
from partrain.record.round_record import NAN, RoundRecord


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


@pytest.mark.parametrize("members", [1, 3])
def test_planning_imports_no_compiler_of_torch(members: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some operations on the device `meta` import torch._dynamo: a second of the command."""
    monkeypatch.setitem(sys.modules, "torch._dynamo", None)
    (tmp_path / "rows.csv").write_text("kind,x,y\n" + "".join(f"{'abc'[row % 3]},{row},{row % 2}\n" for row in range(40)))
    data = 'dataset={kind="csv", path="rows.csv", target="y", target_kind="class", categories=["kind"], validation=8}'
    job = write_job(tmp_path, f"model={{name='tabular', members={members}}}", data)
    assert plan(load(job))["network"]["name"] == "tabular"


def test_persons_of_a_table_are_clients_of_their_own(tmp_path: Path) -> None:
    rows = [
        f"{person},{number},{'no' if number % (2 + person) else 'yes'}"
        for person in range(7)
        for number in range(10 + 3 * person)
    ]
    (tmp_path / "persons.csv").write_text("person,x,y\n" + "\n".join(rows) + "\n")
    data = 'dataset={kind="csv", path="persons.csv", target="y", target_kind="class", group="person", validation=12}'
    job = write_job(
        tmp_path,
        data,
        'partition.order="by-group"',
        "workers.0.count=5",
        "optimizer.batch_size=64",
        "sync={rule='average', passes=1}",
    )
    plan = planned(job)
    sizes = [worker["partition"] for worker in plan["workers"]]
    assert sum(sizes) == plan["data"]["training_items"]
    assert [sum(worker["class_counts"]) for worker in plan["workers"]] == sizes
    assert [worker["item_iterations"] for worker in plan["workers"]] == sizes, "a small partition is one batch"
    assert partrain("run", job, "--out", tmp_path / "run", "-q").code == 0
    (start,) = events(tmp_path / "run", "start")
    assert [worker["partition"] for worker in start["workers"]] == sizes
    assert summary(tmp_path / "run")["item_iterations"] == plan["end"]["item_iterations"]
    many = partrain("plan", job, "--set", "workers.0.count=8")
    assert many.code == 78
    assert "8 workers are more than the" in many.err
    assert "job.toml:" in many.err
    assert "items of each class" in partrain("plan", job).out


def test_drawn_sizes_that_cannot_be_are_one_clear_line(tmp_path: Path) -> None:
    moments = [f"{station},2024-01-{day + 1:02},{day * at:.1f}" for at, station in enumerate("AB", 1) for day in range(30)]
    (tmp_path / "levels.csv").write_text("station,day,level\n" + "\n".join(moments) + "\n")
    series = 'dataset={kind="series", path="levels.csv", target="level", time="day", group="station", window=4, validation=4}'
    windows = partrain("plan", write_job(tmp_path, series, 'partition.order="by-group"'))
    assert (windows.code, "the windows of a series are not told apart by group" in windows.err) == (78, True), windows
    few = 'dataset={kind="synthetic", function="blobs", items=9, validation=2}', "partition.size_alpha=1", "workers.0.count=8"
    said = partrain("plan", write_job(tmp_path, *few, "optimizer.batch_size=1"))
    assert (said.code, "8 workers are more than the 7 training items" in said.err) == (78, True), said


LENGTHS = {
    "rounds": ["stop={rounds=7}"],
    "item-iterations": ["stop={item_iterations=500}"],
    "whichever comes first": ["stop={rounds=9, item_iterations=200}"],
    "a ramp": ["sync.ramp_workers=5", "stop={rounds=7}"],
    "a ramp, to item-iterations": ["sync.ramp_workers=6", "stop={item_iterations=300}"],
    "some of the workers": ["workers.0.count=4", "sync.clients=3", "stop={rounds=7}"],
    "some of the workers, to item-iterations": ["workers.0.count=4", "sync.clients=0.5", "stop={item_iterations=300}"],
    "one iteration at first": ['sync.schedule="post-local"', "sync.switch_round=4", "stop={rounds=7}"],
    "both": ['sync.schedule="post-local"', "sync.switch_round=4", "sync.ramp_workers=6", "stop={item_iterations=333}"],
    "passes": ["sync={rule='average', passes=2}", "stop={rounds=3}"],
    "unequal workers": ["workers=[{iterations=2},{iterations=5, partition_size=80},{}]", "stop={rounds=5}"],
    "the whole partition": [
        "sync={rule='rprop', iterations=3}",
        "optimizer={name='sgd', lr=0.1, batch_size=8}",
        "stop={rounds=3}",
    ],
    "meetings in every iteration": ["sync={rule='bsp', iterations=4}", "stop={rounds=3}"],
    "visits": ["sync={rule='async', iterations=2, visits=3}", "stop={rounds=4}"],
    "a fold": [
        "dataset={kind='synthetic', function='blobs', items=233, noise=0.7, fold='2/5'}",
        "sync={rule='average', passes=1}",
        "stop={rounds=2}",
    ],
}


@pytest.mark.parametrize("what", LENGTHS)
def test_the_end_is_the_one_of_the_run(tmp_path: Path, what: str) -> None:
    """Simulated workers, so that the visits of an asynchronous rule are shared out evenly."""
    job = write_job(tmp_path, 'transport={kind="simulated"}', *LENGTHS[what])
    end = planned(job)["end"]
    assert partrain("run", job, "--out", tmp_path / "run", "-q").code == 0
    ran = summary(tmp_path / "run")
    assert (end["rounds"], end["item_iterations"], end["estimate"]) == (ran["rounds"], ran["item_iterations"], False)


ESTIMATES = {
    "qsr": ['sync.schedule="qsr"', "sync.alpha=0.2"],
    "adacomm": ['sync.schedule="adacomm"', "sync.every=2"],
    "seconds": ["faults.round_seconds=0.5"],
    "visits of unequal workers": ["sync={rule='async', iterations=2}", "workers=[{iterations=2},{iterations=5}]"],
    "paced": ["sync={rule='async', iterations=2, paced=true}"],
}


@pytest.mark.parametrize("what", ESTIMATES)
def test_what_the_run_decides_is_an_estimate(tmp_path: Path, what: str) -> None:
    job = write_job(tmp_path, *ESTIMATES[what])
    assert planned(job)["end"]["estimate"]
    assert "rounds vary in length as the run goes" in partrain("plan", job).out


def test_an_average_begins_at_its_share_of_the_rounds_as_they_are(tmp_path: Path) -> None:
    """Of 10 rounds of 1 iteration and 10 of 3 the last half of the item-iterations are the last 7 rounds."""
    job = write_job(tmp_path, 'sync.schedule="post-local"', "sync.switch_round=11", "sync.swa=0.5", "stop={rounds=20}")
    assert partrain("run", job, "--out", tmp_path / "run", "-q").code == 0
    assert int(checkpoint.read(tmp_path / "run/checkpoint.h5").arrays["training/averaged"]) == 7


def test_a_schedule_ends_with_the_rounds_as_they_are(tmp_path: Path) -> None:
    job = write_job(
        tmp_path, 'sync.schedule="post-local"', "sync.switch_round=11", 'optimizer.schedule="linear"', "stop={rounds=20}"
    )
    assert partrain("run", job, "--out", tmp_path / "run", "-q").code == 0
    rates = {event["round"]: event["lr"] for event in events(tmp_path / "run", "round")}
    assert rates[20] == pytest.approx(0.05 * 0.5 / 40)  # the middle of the last of 40 iterations


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
    assert measured["seconds_to_end"] == pytest.approx(4 * 24 / measured["now"]["items_per_second"])
    assert measured["now"]["memory"] > 50e6
    if measured["cores"] > 1:
        assert measured["pays"] == gain_pays(measured["gains"])
        assert measured["more"]["bytes_per_round"] > 0
        assert measured["gain"] == measured["more"]["items_per_second"] / measured["now"]["items_per_second"]


def test_measurements_that_disagree_leave_it_open() -> None:
    assert [gain_pays(gains) for gains in ([1.8, 1.7], [1.02, 0.9], [1.11, 0.9])] == [True, False, None]
    now = {"seconds_per_round": 0.1, "items_per_second": 1000.0, "memory": None}
    measured = {"seconds": 2.0, "now": now, "seconds_to_end": None, "least_worker": None, "more": now, "gain": 1.0}
    told = [*_speeds({"workers": [{}], "probe": measured | {"gains": [1.11, 0.9], "pays": None}})]
    assert (
        "2 workers: 1.00 times the item-iterations per second; the two measurements gave 1.11 and 0.90, so it is unknown whether that pays"
        in told
    )


def test_the_worker_that_adds_least_is_named(tmp_path: Path) -> None:
    """It trains one iteration of 401."""
    job = write_job(tmp_path, "workers=[{count=1, iterations=400}, {count=1, iterations=1}]")
    assert "worker 1 (cpu)" in planned(job, "--probe", "--seconds", "1.5")["probe"]["least_worker"]
    said = partrain("plan", job, "--probe", "--seconds", "1.5")
    assert ": leave it out" in next(line for line in said.out.splitlines() if line.startswith("worker 1 (cpu)"))


def _records(iterations: list[int], judged: set[int]) -> list[RoundRecord]:
    """Rounds of 10 ms an iteration of 8 items, 20 ms a meeting and 300 ms a judgement; the first one takes 500 ms more."""
    records, seconds = [], 0.5
    for number, count in enumerate(iterations, 1):
        seconds += 0.01 * count + 0.02 + 0.3 * (number in judged)
        extra = 0.5 * (number == 1)
        records.append(RoundRecord(number, count, 8 * count, 1.0, 0.1, 0.01 * count + extra, 0.015, 0.005, NAN, 0, NAN, seconds))
    return records


FORECASTS = {
    "a judgement at the end of the short run": (["stop={rounds=20, judge_every=10}"], [3] * 4, {4}, 0.5 + 20 * 0.05 + 2 * 0.3),
    "judged every round": (["stop={rounds=20, judge_every=1}"], [3] * 4, {1, 2, 3, 4}, 0.5 + 20 * 0.05 + 20 * 0.3),
    "longer rounds later": (
        ['sync.schedule="post-local"', "sync.switch_round=11", "stop={rounds=20, judge_every=20}"],
        [1] * 4,
        {4},
        0.5 + 10 * (0.03 + 0.05) + 0.3,
    ),
    "a ramp": (["sync.ramp_workers=10", "stop={rounds=20, judge_every=20}"], [3] * 4, {4}, 0.5 + 20 * 0.05 + 0.3),
}


@pytest.mark.parametrize("what", FORECASTS)
def test_a_whole_run_takes_what_its_parts_take(tmp_path: Path, what: str) -> None:
    sets, iterations, judged, seconds = FORECASTS[what]
    job = load(write_job(tmp_path, *sets)).job
    assert forecast(job, make_plan(job, 230), _records(iterations, judged), judged) == (20, pytest.approx(seconds))


@pytest.mark.representative
def test_one_more_worker_is_one_of_the_last_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    said = partrain("plan", write_job(tmp_path, "workers=[{}, {threads=2}]"), "--probe", "--seconds", "0.5", "--json")
    assert json.loads(said.out)["probe"]["more"] is None  # it would take two cores, and one is free
    assert json.loads(said.out)["probe"]["pays"] is False


def test_time_may_end_a_run_before_its_rounds(tmp_path: Path) -> None:
    job = write_job(tmp_path, "stop={rounds=1000000, seconds=3}")
    assert planned(job, "--probe", "--seconds", "0.5")["probe"]["seconds_to_end"] == 3


def test_where_no_core_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    said = partrain("plan", write_job(tmp_path), "--probe", "--seconds", "0.5")
    assert said.code == 0, said.err
    assert "3 workers would share 2 cores, all in use: one more worker does not pay here" in said.out
    assert "each worker sends " in said.out


def test_one_more_worker_that_the_job_forbids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    job = write_job(tmp_path, "optimizer.batch_size=100")
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
