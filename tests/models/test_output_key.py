"""Networks of user code that return a dict or an object: `output_key` names what holds the answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.runs import partrain, summary

NET = """
from torch import nn

class Net(nn.Module):
    def __init__(self, form="dict"):
        super().__init__()
        self.layer, self.form = nn.Linear(3, 2), form

    def forward(self, items):
        answers = {"logits": self.layer(items), "hidden": items}
        return answers if self.form == "dict" else type("Output", (), answers)()
"""
JOB = """
name = "h"
model = {name = "net.py:Net", output_key = "logits"}
dataset = {kind = "npz", path = "a.npz", validation = 30, test_share = 0.1}
optimizer = {name = "adam", lr = 0.05, batch_size = 8}
sync = {rule = "average", passes = 1}
workers = [{count = 2}]
stop = {rounds = 4}
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    inputs = np.random.default_rng(0).normal(size=(200, 3)).astype("f4")
    np.savez("a.npz", inputs=inputs, targets=(inputs.sum(1) > 0).astype("i8"))
    Path("net.py").write_text(NET)
    Path("job.toml").write_text(JOB)


@pytest.mark.parametrize("form", ["dict", "object"])
def test_the_answers_are_taken_by_their_key(form: str) -> None:
    said = partrain("run", "job.toml", "--out", "run", "-q", "--set", f"model.form={form!r}")
    assert said.code == 0, said
    assert summary(Path("run"))["test"]["accuracy"] > 0.9
    assert partrain("predict", "run", "--input", "a.npz").code == 0


def test_another_key_is_refused_before_any_worker_starts() -> None:
    said = partrain("run", "job.toml", "--out", "run", "-q", "--set", "model.output_key='scores'")
    assert said.code == 71, said
    assert "[model] output_key: forward returns no `scores`, but logits, hidden" in said.err
