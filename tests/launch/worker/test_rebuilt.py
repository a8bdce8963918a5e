"""The network that later commands build from a checkpoint answers as the one that was judged, or the run ends with 71 before it trains."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.runs import SIMULATED, Said, partrain, summary, write_job

from partrain import checkpoint

NETWORKS = """
import os, pathlib, time
import torch
from torch import nn

HERE = pathlib.Path(__file__).parent


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(2, 4), nn.Linear(2, 4)
        self.head = nn.Linear(4, 3)
        self.made()

    def made(self):
        pass

    def changed(self, x):
        return x

    def forward(self, x):
        x = self.changed(x)
        return self.head(torch.tanh(self.a(x)) * torch.tanh(self.b(x)))
"""

KEPT = {
    "a second Parameter over one memory": "def made(self): self.b.weight = nn.Parameter(self.a.weight)",
    "one memory by data": "def made(self): self.b.weight.data = self.a.weight.data",
    "one Parameter under two names": "def made(self): self.b.weight = self.a.weight",
    "buffers of one memory": """
    def made(self):
        self.register_buffer("s", torch.ones(2)); self.register_buffer("t", self.s.data)
    def changed(self, x):
        if self.training: self.s += 0.1
        return x * self.t""",
    "an attribute views a parameter": """
    def made(self): self.view = self.a.weight.detach().t()
    def changed(self, x): return x + (x @ self.view)[:, :2]""",
    "an attribute with a gradient views a parameter": """
    def made(self): self.view = [self.a.weight[:2]]
    def changed(self, x): return x + x @ self.view[0]""",
    "an attribute views a buffer": """
    def made(self):
        self.register_buffer("s", torch.ones(2)); self.views = {"s": self.s[:]}
    def changed(self, x):
        if self.training: self.s += 0.1
        return x * self.views["s"]""",
    "a drawn attribute": """
    def made(self): self.p = torch.randn(2, 2)
    def changed(self, x): return x @ self.p""",
    "draws of Python and numpy": """
    def made(self):
        import random, numpy
        self.scale = [random.random(), float(numpy.random.rand())]
    def changed(self, x): return x * self.scale[0] + self.scale[1]""",
    "a drawn buffer that no state dict has": """
    def made(self): self.register_buffer("p", torch.randn(2, 2), persistent=False)
    def changed(self, x): return x @ self.p""",
    "layers in a plain list": """
    def made(self): self.layers = [nn.Linear(2, 2)]
    def changed(self, x): return self.layers[0](x)""",
    "a set walked in hash order": """
    def made(self):
        self.order = list({"alpha", "beta", "gamma", "delta", "epsilon"})
        self.layers = nn.ModuleDict({name: nn.Linear(2, 2) for name in self.order})
    def changed(self, x):
        for name in self.order: x = torch.tanh(self.layers[name](x))
        return x""",
    "a file read when it is built": """
    def made(self): self.scale = float((HERE / "scale").read_text())
    def changed(self, x): return x * self.scale""",
    "an environment variable that stays": """
    def made(self): self.scale = float(os.environ.get("SCALE", "2"))
    def changed(self, x): return x * self.scale""",
    "a forward that changes its input in place": "def changed(self, x): return x.mul_(2)",
    "draws in training": "def changed(self, x): return x + 0.1 * torch.randn_like(x) * self.training",
}

IN_OTHER_PROCESSES = "a set walked in hash order"

REFUSED = {
    "draws while it answers": ("def changed(self, x): return x + 0.1 * torch.randn_like(x)", "it draws as it answers"),
    "a transposed view": (
        "def made(self): self.a.weight.data = self.head.weight.data.t()[:2].t()",
        "`head.weight` and `a.weight` share",
    ),
    "a part of a parameter": (
        "def made(self): self.head.weight.data = self.a.weight.data[:3].repeat(1, 2)[:, :4]; self.head.bias.data = self.a.bias.data[:3]",
        "`head.bias` and `a.bias` share",
    ),
    "a buffer over a parameter": ('def made(self): self.register_buffer("w", self.a.weight.data)', "`w` and `a.weight` share"),
    "a parameter over a buffer": (
        'def made(self): self.register_buffer("w", torch.ones(4)); self.a.bias.data = self.w.data',
        "`w` and `a.bias` share",
    ),
    "repeated numbers": ("def made(self): self.s = nn.Parameter(torch.ones(1).expand(4))", "`s` has numbers that share memory"),
    "a counter": (
        """
    def made(self): self.calls = 0
    def changed(self, x):
        self.calls += 1
        return x * (1 + 0.1 * self.calls)""",
        "`calls` (nets.py:",
    ),
    "a running mean in an attribute": (
        """
    def made(self): self.stats = {"mean": torch.zeros(2)}
    def changed(self, x):
        if self.training: self.stats["mean"] = 0.9 * self.stats["mean"] + 0.1 * x.detach().mean(0)
        return x - self.stats["mean"]""",
        "`stats['mean']` (nets.py:",
    ),
    "a buffer that no state dict has changes": (
        """
    def made(self): self.register_buffer("mean", torch.zeros(2), persistent=False)
    def changed(self, x):
        if self.training: self.mean += 0.1 * x.detach().mean(0)
        return x - self.mean""",
        "register this buffer without `persistent=False`",
    ),
    "a layer in a list changes": (
        """
    def made(self): self.layers = [nn.Linear(2, 2)]
    def changed(self, x):
        if self.training: self.layers[0].weight.data += 0.1
        return self.layers[0](x)""",
        "`nn.ModuleList`",
    ),
    "a draw without a seed": (
        """
    def made(self): self.p = torch.randn(2, 2, generator=torch.Generator().manual_seed(time.time_ns() % 2**40))
    def changed(self, x): return x @ self.p""",
        "`p` (nets.py:",
    ),
    "an object that hides it": (
        """
    def made(self): self.state = type("State", (), {"calls": 0})()
    def changed(self, x):
        self.state.calls += 1
        return x * self.state.calls""",
        "gives other answers",
    ),
    "other names the second time": (
        """
    def made(self):
        name = "second" if (HERE / "built").exists() else "first"
        (HERE / "built").touch()
        setattr(self, name, nn.Linear(2, 2))""",
        "could not build this network from a checkpoint",
    ),
}


def write(folder: Path, body: str, *sets: str) -> Path:
    (folder / "nets.py").write_text(f"{NETWORKS}\n\nclass Own(Net):\n    {body.strip()}\n")
    (folder / "scale").write_text("1.5")
    return write_job(folder, 'model={name="nets.py:Own"}', "stop.rounds=2", *sets)


def run(folder: Path, body: str, *sets: str) -> Said:
    return partrain("run", write(folder, body, *sets), "--out", folder / "run", "--quiet")


def evaluated(folder: Path) -> Said:
    return partrain("evaluate", folder / "run", "--json", "--trust-code")


def loss(said: Said) -> float:
    return float(json.loads(said.out)["validation"]["loss"])


@pytest.mark.parametrize("what", [what for what in KEPT if what != IN_OTHER_PROCESSES])
def test_kept(tmp_path: Path, what: str) -> None:
    said = run(tmp_path, KEPT[what], SIMULATED)
    assert said.code == 0, said
    assert loss(evaluated(tmp_path)) == pytest.approx(summary(tmp_path / "run")["loss"], rel=1e-6)
    arrays = checkpoint.read(tmp_path / "run/checkpoint.h5").arrays
    if "one memory" in what and "buffers" not in what:
        assert np.array_equal(arrays["model/a.weight"], arrays["model/b.weight"])


@pytest.mark.parametrize("what", REFUSED)
def test_refused(tmp_path: Path, what: str) -> None:
    body, words = REFUSED[what]
    said = run(tmp_path, body)
    assert (said.code, said.errors) == (71, ["user-code"]), said
    assert words in said.err
    assert not (tmp_path / "run/checkpoint.h5").exists()


LATER = {
    "a file": ("a file read when it is built", "scale"),
    "its code": ("a drawn attribute", "nets.py"),
}


@pytest.mark.parametrize("what", LATER)
def test_what_changes_later_is_found(tmp_path: Path, what: str) -> None:
    """A checkpoint holds the network's answers to drawn items: who builds another network from it is refused."""
    body, file = LATER[what]
    assert run(tmp_path, KEPT[body]).code == 0
    assert evaluated(tmp_path).code == 0
    (tmp_path / file).write_text("1.6" if file == "scale" else (tmp_path / file).read_text().replace("@ self.p", "@ self.p.t()"))
    sys.modules.pop("partrain_user_nets", None)
    said = evaluated(tmp_path)
    assert (said.code, said.errors) == (71, ["user-code"]), said
    assert "gives other answers than the one that was trained" in said.err
    assert partrain("predict", tmp_path / "run", "--input", tmp_path / "nowhere.csv", "--trust-code").code == 71


def test_an_environment_variable_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(tmp_path, KEPT["an environment variable that stays"]).code == 0
    monkeypatch.setenv("SCALE", "3")
    assert evaluated(tmp_path).code == 71


@pytest.mark.slow
def test_every_process_walks_a_set_in_one_order(tmp_path: Path) -> None:
    """Commands of other sessions would hash texts otherwise: the seeds stand for the random ones of two sessions."""
    write(tmp_path, KEPT[IN_OTHER_PROCESSES])
    orders = set()
    for number in range(1, 3):
        session = os.environ | {"PYTHONHASHSEED": str(number)}
        words = [sys.executable, "-m", "partrain", "run", "job.toml", "--out", f"run-{number}", "--quiet"]
        subprocess.run(words, cwd=tmp_path, check=True, timeout=110, env=session)
        words = [sys.executable, "-m", "partrain", "evaluate", f"run-{number}", "--json", "--trust-code"]
        done = subprocess.run(words, cwd=tmp_path, check=True, timeout=110, env=session, capture_output=True, text=True)
        orders.add((json.loads(done.stdout)["validation"]["loss"], (tmp_path / f"run-{number}/checkpoint.h5").read_bytes()))
    assert len(orders) == 1


def test_the_generators_of_a_script_stay_as_they_were(tmp_path: Path) -> None:
    import random

    import torch

    import partrain as package

    assert run(tmp_path, KEPT["draws of Python and numpy"]).code == 0
    states = random.getstate(), torch.random.get_rng_state()
    package.load(tmp_path / "run", trust_code=True)
    assert random.getstate() == states[0]
    assert torch.equal(torch.random.get_rng_state(), states[1])
