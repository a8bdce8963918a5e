"""Numbers that are not finite: 76 before they are mixed, and no checkpoint holds any."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.aftermath import Aftermath
from support.runs import JOB, partrain, sabotage, write_job

from partrain import checkpoint

SPOIL = "self[2].bias.data[1] = float('{}')"


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("kind", ["shared", "simulated"])
def test_parameters(tmp_path: Path, number: str, kind: str) -> None:
    worker = 1 if kind == "shared" else 0
    job = sabotage(tmp_path, SPOIL.format(number), f'transport.kind="{kind}"', worker=worker, call=9)
    after = Aftermath(job)
    said = after.train()
    after.check(said, 76, "diverged", f"worker {worker}, round 3", "non-finite", "parameter `")


def test_one_worker_alone(tmp_path: Path) -> None:
    after = Aftermath(sabotage(tmp_path, SPOIL.format("nan"), "workers.0.count=1", worker=0, call=9))
    after.check(after.train(), 76, "diverged", "worker 0, round 3")


def test_gradients(tmp_path: Path) -> None:
    deed = "self[0].weight.register_hook(lambda g: g * float('inf'))"
    after = Aftermath(sabotage(tmp_path, deed, "sync.rule='bsp'", call=5))
    after.check(after.train(), 76, "diverged", "worker 1, round 2", "the gradient of `0.weight`")


@pytest.mark.parametrize("buffers", ["average", "local"])
def test_buffers(tmp_path: Path, buffers: str) -> None:
    """What is mixed is checked before, and nothing at all gets into a file."""
    job = sabotage(tmp_path, "self.spoilt.fill_(float('nan'))", f"sync.buffers='{buffers}'", call=5)
    text = (tmp_path / "saboteur.py").read_text()
    spoilt = "        self.register_buffer('spoilt', torch.zeros(3))\n        self.deed ="
    (tmp_path / "saboteur.py").write_text(text.replace("        self.deed =", spoilt))
    after = Aftermath(job)
    after.check(after.train(), 76, "diverged", "worker 1, round 2" if buffers == "average" else "round 2", "spoilt")


@pytest.mark.parametrize("state", ["average", "local"])
def test_moments(tmp_path: Path, state: str) -> None:
    """Squares of gradients overflow while parameters are finite."""
    adam = 'optimizer={name="adam", lr=0.01, batch_size=8}'
    deed = "self[0].weight.register_hook(lambda g: g + 1e25)"
    said = partrain(
        "run", sabotage(tmp_path, deed, adam, f"sync.optimizer_state='{state}'", call=5), "--out", tmp_path / "run", "-q"
    )
    assert (said.code, said.errors) == (76, ["diverged"]), said
    assert "exp_avg_sq" in said.err or "the optimizer state of `0.weight`" in said.err
    assert checkpoint.read(tmp_path / "run" / "checkpoint.h5").round == 1


def test_a_judged_loss(tmp_path: Path) -> None:
    """Parameters on their way to infinity are still finite when the loss no longer is."""
    job = write_job(
        tmp_path,
        "dataset={kind='synthetic', function='sine', items=230, validation=30}",
        "model={name='mlp', hidden=[], init_range=1e-3}",
        "optimizer={name='sgd', lr=1e7, batch_size=8}",
        "sync.iterations=1",
        "stop.rounds=200",
    )
    said = partrain("run", job, "--out", tmp_path / "run", "-q")
    assert (said.code, said.errors) == (76, ["diverged"]), said
    assert "judged loss" in said.err
    assert partrain("verify", tmp_path / "run").code == 0


def test_a_finite_run_is_left_alone(tmp_path: Path) -> None:
    """Large numbers are no fault: their sum overflows, they do not."""
    said = partrain(
        "run",
        sabotage(tmp_path, "self[0].bias.data += 3e38", "stop.rounds=2", "workers.0.count=2", call=6),
        "--out",
        tmp_path / "run",
        "-q",
    )
    assert said.code == 0, said
    assert JOB
