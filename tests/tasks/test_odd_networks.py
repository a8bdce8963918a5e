"""Networks that do more in training than take gradients: what was judged answers, and an interrupted run ends in the same bits."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from support import odd_networks
from support.runs import events, partrain, resume, write_job
from torch.nn import functional

from partrain.inference.network import load_dataset, load_network
from partrain.inference.open import load_job, open_checkpoint

NETWORKS = [
    name
    for name, kind in vars(odd_networks).items()
    if isinstance(kind, type) and issubclass(kind, odd_networks.Net) and name != "Net"
]
RULES = (
    ("sync.rule='average'",),
    ("sync.rule='average'", "sync.ema=0.8"),
    ("sync.rule='average'", 'optimizer={name="adam", lr=0.01, batch_size=8}', "sync.optimizer_state='local'"),
    ("sync.rule='diloco'",),
    ("sync.rule='bsp'",),
    ("sync.rule='average'", "sync.buffers='local'"),
    ("sync.rule='slowmo'",),
)
"""Each network is trained by one of them."""


def job_of(folder: Path, name: str, *sets: str) -> Path:
    rule = RULES[NETWORKS.index(name) % len(RULES)]
    path = write_job(folder, f'model={{name="net.py:{name}"}}', 'hooks.after_judgement="net.py:die_once"', *rule, *sets)
    shutil.copy(odd_networks.__file__, folder / "net.py")
    return path


def run(folder: Path, name: str, *sets: str) -> Path:
    said = partrain("run", job_of(folder, name), "--out", folder / "run", "--quiet", *sets)
    assert said.code == 0, said
    return folder / "run"


@pytest.mark.parametrize("name", NETWORKS)
def test_an_odd_network_answers_as_judged_and_ends_in_the_same_bits(tmp_path: Path, name: str) -> None:
    whole = run(tmp_path / "whole", name)
    judged = events(whole, "judgement")[-1]

    evaluated = json.loads(partrain("evaluate", whole, "--newest", "--split", "validation", "--json").out)["validation"]
    assert evaluated["loss"] == pytest.approx(judged["loss"], rel=1e-6)
    assert evaluated["accuracy"] == judged["metrics"]["accuracy"]

    path, content = open_checkpoint(whole, newest=True)
    network = load_network(load_job(content, path, trusted=True), content)
    items = network.items_of(load_dataset(network.loaded, content), "validation")
    assert items
    with torch.no_grad():
        answers = network.module(network.batch(items.inputs))
    assert float(functional.cross_entropy(answers.double(), items.targets)) == pytest.approx(judged["loss"], rel=1e-6)

    exported = partrain("export", whole, "--newest", "-f", "torch-export", "-o", tmp_path / "net.pt2")
    assert exported.code == 0, exported  # it compares the answers
    graph = torch.export.load(tmp_path / "net.pt2").module()
    assert torch.allclose(graph(network.batch(items.inputs)), answers, atol=1e-6)

    half = tmp_path / "half"
    job_of(half, name)
    assert partrain("run", half / "job.toml", "--out", half / "run", "--quiet", "--set", "stop.rounds=2").code == 0
    resume(half / "run", "--until", "rounds=4")
    (tmp_path / "killed").mkdir()
    (tmp_path / "killed" / "armed").touch()
    killed = run(tmp_path / "killed", name)
    assert len(events(killed, "replay")) == 1
    for other in half / "run", killed:
        assert arrays(other) == arrays(whole)


def arrays(folder: Path) -> dict[str, bytes]:
    """The state of a run, in bytes."""
    _, content = open_checkpoint(folder, newest=True)
    state = {path: np.asarray(array) for path, array in content.arrays.items()}
    return {
        path: array.tobytes() for path, array in state.items() if path.startswith(("model/", "workers/", "rule/", "training/"))
    }
