"""Devices of different speed in one run: `[partition] balance`, and batches of a group's own."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from support.runs import Command, events, write_job

from partrain.training.round_caps import Balance

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
def test_iterations_follow_the_seconds_of_the_devices(tmp_path: Path, ratio: int) -> None:
    """As recorded: what else the machine is at falls on both devices."""
    words = ("run", write_job(tmp_path, text=JOB), "--out", "run", "-q")
    with Command(words, tmp_path, {"EMULATED_SLOWNESS": f"2,{2 * ratio}"}) as command:
        assert command.wait().code == 0
    told = events(tmp_path / "run", "round")
    measured = [[(one["iterations"], one["compute"]) for one in told if one["round"] == number] for number in range(1, 25)]
    balance, decided = Balance([20, 20]), [[]]
    for number, seconds in enumerate(measured[:-1], start=2):
        decided.append(balance.decide(number, decided[-1], seconds))
    iterations = [[count for count, _ in each] for each in measured]
    assert iterations == [now or [20, 20] for now in decided]
    changed = [now for before, now in pairwise(iterations) if now != before]
    assert [event["iterations"] for event in events(tmp_path / "run", "balance")] == changed


def test_a_group_has_batches_of_its_own(tmp_path: Path) -> None:
    job = write_job(tmp_path, "partition.balance='none'", "workers.0.batch_size=64", "stop.rounds=2", text=JOB)
    with Command(("run", job, "--out", "run", "-q"), tmp_path) as command:
        assert command.wait().code == 0
    assert [one["items"] for one in events(tmp_path / "run", "round")] == [1280, 320] * 2
    (start,) = events(tmp_path / "run", "start")
    assert [worker["batch_size"] for worker in start["workers"]] == [64, 16]
