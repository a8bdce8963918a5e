"""`[sync] noise`: what a job needs, and the keys by which a client would be in the network without noise."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from support.runs import SIMULATED, partrain, train, write_job

from partrain.job.load import problems

PRIVATE = [
    SIMULATED,
    "seed=492837465019283746",
    "optimizer.momentum=0",
    "dataset.items=630",
    "workers.0.count=4",
    "sync.clients=2",
    'sync.weights="equal"',
    "sync.noise=0.5",
    "faults.max_update_norm=0.5",
]
UNACCOUNTED = "privacy is not accounted: dp-accounting is not installed"


def said(folder: Path, *sets: str) -> list[tuple[str, str]]:
    """Severities and messages about the job with changes, without the one about the package."""
    found = problems(write_job(folder, *PRIVATE), list(sets))
    return [(problem.severity, problem.message) for problem in found if problem.message != UNACCOUNTED]


def test_a_private_job(tmp_path: Path) -> None:
    assert said(tmp_path) == []
    assert said(tmp_path, "optimizer.momentum=0.9", 'sync.optimizer_state="local"') == []
    assert said(tmp_path, "sync.noise=0", "~faults.max_update_norm", "~sync.clients", "~sync.weights", "seed=1") == []


@pytest.mark.parametrize(("change", "message"), [
    ("sync.noise=-1", "`noise`: expected at least 0, got -1"),
    ("~faults.max_update_norm", "`noise` needs `max_update_norm` in [faults], the bound of a client's update"),
    ("~sync.clients", "`noise` needs `clients`, the number of workers in a round"),
    ('sync.client_sampling="items"', '`noise` needs client_sampling = "uniform"'),
    ("~sync.weights", '`noise` needs weights = "equal"'),
    ("transport.availability=[0.5]", "`noise` needs the same number of workers in each round, and some cannot be reached"),
    ("optimizer.momentum=0.9", "the moments of the optimizers would be averaged without noise"),
    ("model.batch_norm=true", "the statistics of BatchNorm would be in the network without noise"),
    ('sync.schedule="adacomm"', 'schedule = "adacomm" goes by losses or times of all workers, which have no noise'),
    ('sync.schedule="overhead"', 'schedule = "overhead" goes by losses or times of all workers, which have no noise'),
    ("partition.overlap=0.2", "`noise` hides a worker with its items, and `overlap` gives an item to several workers"),
    ('partition.redraw="round"', "`noise` hides a worker with its items, and `redraw` gives an item to several workers"),
    ('partition.balance="rate"', "`noise` hides a worker with its items, and `balance` gives an item to several workers"),
    ('faults.on_nonfinite="exclude"', '`noise` needs the same number of workers in each mean, and "exclude" leaves some out'),
])  # fmt: skip
def test_what_noise_does_not_hide_is_refused(tmp_path: Path, change: str, message: str) -> None:
    assert any(severity == "error" and text.endswith(message) for severity, text in said(tmp_path, change))


def test_a_lost_worker_is_not_dropped(tmp_path: Path) -> None:
    message = '`noise` hides a worker with its items, and "drop" gives them to others'
    assert ("error", message) in said(tmp_path, 'transport.kind="shared"', 'faults.on_loss="drop"')


def test_a_start_from_the_items_is_refused(tmp_path: Path) -> None:
    message = "the network would start from the items of all workers, without noise"
    assert ("error", message) in said(tmp_path, 'model={name="tabular", linear=true}')


def test_a_seed_that_can_be_guessed_is_warned_of(tmp_path: Path) -> None:
    assert said(tmp_path, "seed=3") == [("warning", "others can guess a seed of 3, compute the noise from it, and take it away")]


def test_a_network_with_buffers_is_refused(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(
        "from torch import nn\n\n\nclass Net(nn.Sequential):\n"
        "    def __init__(self):\n        super().__init__(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))\n"
    )
    job = write_job(tmp_path, *PRIVATE, 'model={name="nets.py:Net"}', 'sync.buffers="local"')
    result = partrain("run", job, "--out", tmp_path / "run", "--quiet")
    assert result.code == 78, result
    assert "[sync] noise: the network's buffer `1.running_mean` would be in its checkpoints without noise" in result.err


def test_a_run_tells_its_privacy_and_goes_on_with_the_same_workers_alone(tmp_path: Path) -> None:
    run = train(tmp_path, *PRIVATE)
    privacy = json.loads((run / "summary.json").read_text())["privacy"]
    privacy.pop("epsilon", None)
    assert privacy == {"noise": 0.5, "clients": 2, "workers": 4, "delta": 1e-5, "rounds": 4}
    refused = partrain("resume", run, "--set", "workers.0.count=3", "--until", "rounds=5")
    assert refused.code == 78
    assert "keep the workers" in refused.err
    resumed = partrain("resume", run, "--until", "rounds=6")
    assert resumed.code == 0, resumed
    assert "\nprivacy " in resumed.out + resumed.err
    assert json.loads((run / "summary.json").read_text())["privacy"]["rounds"] == 6
    again = partrain("refit", run, "--out", tmp_path / "again")
    assert again.code == 78, again
    assert "the difference of both networks has none" in again.err
    assert "partrain refit" not in resumed.out + resumed.err
    exported = partrain("export", run, "-f", "safetensors", "-o", tmp_path / "net.safetensors", "--card")
    assert exported.code == 0, exported
    for path in tmp_path.glob("net.*"):
        assert b"492837465019283746" not in path.read_bytes(), path


def test_no_round_runs_again_with_other_code_and_the_same_noise(tmp_path: Path) -> None:
    code = tmp_path / "nets.py"
    code.write_text(
        "from torch import nn\n\n\nclass Net(nn.Sequential):\n"
        "    def __init__(self):\n        super().__init__(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 3))\n"
    )
    run = train(tmp_path, *PRIVATE, 'model={name="nets.py:Net"}')
    before, modified = (run / "checkpoint.h5").read_bytes(), code.stat().st_mtime
    code.write_text(code.read_text().replace("Tanh", "ReLU"))
    os.utime(code, (modified + 2, modified + 2))  # Python compares seconds and sizes with those of its compiled file
    refused = partrain("resume", run, "--until", "rounds=6", "--accept-changes")
    assert refused.code == 78, refused
    assert "the difference of both networks has none" in refused.err
    assert (run / "checkpoint.h5").read_bytes() == before
