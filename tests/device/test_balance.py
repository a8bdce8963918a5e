"""Devices of different speed in one run: `[partition] balance`, and batches of a group's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.runs import Command, events, write_job

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("emulated")]
JOB = """
name = "unequal"
seed = 1
[model]
name = "mlp"
hidden = [16]
[dataset]
kind = "synthetic"
function = "blobs"
items = 2200
features = 8
validation = 200
[optimizer]
name = "sgd"
lr = 0.05
batch_size = 16
[sync]
rule = "average"
iterations = 20
[partition]
balance = "rate"
[[workers]]
device = "emulated:0"
[[workers]]
device = "emulated:1"
[stop]
rounds = 24
judge_every = 24
"""


@pytest.mark.parametrize("ratio", [4, 20])
def test_a_slower_device_gets_fewer_iterations(tmp_path: Path, ratio: int) -> None:
    words = ("run", write_job(tmp_path, text=JOB), "--out", "run", "-q")
    with Command(words, tmp_path, {"EMULATED_SLOWNESS": f"2,{2 * ratio}"}) as command:
        assert command.wait().code == 0
    told = events(tmp_path / "run", "round")
    fast, slow = (one["iterations"] for one in told if one["round"] == 24)
    assert slow <= 14 if ratio == 20 else slow < fast
    assert abs(fast + slow - 40) <= 20 / slow + 1, "whole iterations of the slowest worker, which the others follow"
    assert events(tmp_path / "run", "balance")[-1]["iterations"] == [fast, slow]


def test_a_group_has_batches_of_its_own(tmp_path: Path) -> None:
    job = write_job(tmp_path, "partition.balance='none'", "workers.0.batch_size=64", "stop.rounds=2", text=JOB)
    with Command(("run", job, "--out", "run", "-q"), tmp_path) as command:
        assert command.wait().code == 0
    assert [one["items"] for one in events(tmp_path / "run", "round")] == [1280, 320] * 2
    (start,) = events(tmp_path / "run", "start")
    assert [worker["batch_size"] for worker in start["workers"]] == [64, 16]
