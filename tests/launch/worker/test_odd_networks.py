"""Networks that partrain does not train end in the dry run with one line; a network that changes its input is exported."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.runs import partrain, resume, round_file, write_job
from torch import nn

import partrain as api
from partrain.errors import BadJob

HEAD = "import torch\nfrom torch import nn\n\n\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
SPARSE = """        self.table, self.head = nn.Embedding(4, 8, sparse=True), nn.Linear(8, 3)
    def forward(self, x):
        return self.head(self.table((x[:, 0] > 0).long()))
"""
GROWING = """        self.head = nn.Linear(2, 3)
        self.register_buffer("memory", torch.zeros(1))
    def forward(self, x):
        if self.training:
            self.memory = torch.cat([self.memory, torch.zeros(1)])
        return self.head(x)
"""
IN_PLACE = """        self.head = nn.Linear(2, 3)
    def forward(self, x):
        x += 1
        return self.head(x)
"""
HEAD_ONLY = "        self.head = nn.Linear(2, 3)\n"
COUNTING = f"""{HEAD_ONLY}        self.calls = 0
    def forward(self, x):
        self.calls += self.training
        return self.head(x)"""
OWN_GENERATOR = f"""{HEAD_ONLY}        self.draws = torch.Generator().manual_seed(1)
    def forward(self, x):
        return self.head(x + 0.1 * torch.randn(x.shape, generator=self.draws) if self.training else x)
"""
CARRIED = f"""{HEAD_ONLY}        self.hidden = torch.zeros(3)
    def forward(self, x):
        answers = self.head(x) + (0.1 * self.hidden if self.training else 0)
        if self.training:
            self.hidden = answers.detach().mean(0)
        return answers
"""
OUTSIDE = f"""{HEAD_ONLY}        self.calls = 0
    def forward(self, x):
        import os
        self.calls += 1
        return self.head(x) * (1 + os.urandom(1)[0] / 256 * self.training)
"""
UNCALLED_HOOK = f"""{HEAD_ONLY}        self.head.weight.register_post_accumulate_grad_hook(print)
    def forward(self, x):
        return self.head(x)
"""
STEPS = """        self.body, self.head = nn.Linear(2, 2), nn.Linear(2, 3)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.late = False
        {made}
    def forward(self, x):
        self.steps += self.training
        if self.training and self.steps > 4:
            {late}
        return self.head(self.body(x))
"""
UNFREEZING = STEPS.format(made="self.body.requires_grad_(False)", late="self.body.requires_grad_(True)")
FREEZING = STEPS.format(made="", late="self.body.requires_grad_(False)")
MOVING_LATE = STEPS.format(made="self.body.requires_grad_(False)", late="self.body.weight.data.mul_(0.9)")
FLAG = STEPS.format(made="", late="self.late = True")


def job_of(folder: Path, body: str) -> Path:
    (folder / "net.py").write_text(HEAD + body)
    return write_job(folder, 'model={name="net.py:Net"}', "stop.rounds=1")


@pytest.mark.parametrize(("body", "words"), [
    (SPARSE, "is sparse, and partrain trains on dense ones; leave sparse=True out"),
    (GROWING, "buffer `memory` had shape (1,)"),
    (COUNTING.replace("self.head(x)", "self.head(x) * (self.training * self.calls + 1)"),
     "`calls` (net.py:9) is in no checkpoint, and without it training goes another way (its loss in training differs); "
     'keep it in a buffer: `self.register_buffer("calls", ...)`'),
    (OWN_GENERATOR, "`draws` (net.py:9) is in no checkpoint, and without it training goes another way (its loss in training differs); draw"),
    (CARRIED, "`hidden` (net.py:9) is in no checkpoint, and without it training goes another way"),
    (OUTSIDE, "built again from a checkpoint, training goes another way (its loss in training differs); its code reads something"),
    (UNCALLED_HOOK, "`head.weight` has a hook of `register_post_accumulate_grad_hook`, which partrain does not call; use"),
], ids=["sparse", "growing", "annealed", "own generator", "carried", "outside", "hook"])  # fmt: skip
def test_the_dry_run_names_what_cannot_be_trained(tmp_path: Path, body: str, words: str) -> None:
    said = partrain("run", job_of(tmp_path, body), "--out", tmp_path / "run", "-q")
    assert (said.code, said.errors) == (71, ["user-code"]), said
    assert words in said.err
    assert "INTERNAL ASSERT" not in said.err


def test_a_network_that_changes_its_input_in_place_is_exported(tmp_path: Path) -> None:
    assert partrain("run", job_of(tmp_path, IN_PLACE), "--out", tmp_path / "run", "-q").code == 0
    said = partrain("export", tmp_path / "run", "-f", "safetensors", "-o", tmp_path / "net.safetensors", "--trust-code")
    assert said.code == 0, said


@pytest.mark.parametrize(("body", "words"), [
    (UNFREEZING, "parameter `body.weight` became trainable in training, and partrain trains those that are trainable from the start"),
    (FREEZING, "parameter `body.weight` became frozen in training"),
    (MOVING_LATE, "the network moves the frozen parameter `body.weight`, but did not in the dry run"),
], ids=["unfreezing", "freezing", "moving"])  # fmt: skip
def test_a_later_round_names_what_changes_late(tmp_path: Path, body: str, words: str) -> None:
    said = partrain("run", job_of(tmp_path, body), "--out", tmp_path / "run", "-q", "--set", "stop.rounds=4")
    assert (said.code, said.errors) == (71, ["user-code"]), said
    assert words in said.err


@pytest.mark.parametrize(
    ("body", "place"), [(COUNTING, "`calls` (net.py:9)"), (FLAG, "`late` (net.py:10)")], ids=["calls", "late"]
)
def test_a_value_that_changes_is_told_once(tmp_path: Path, body: str, place: str) -> None:
    """No answer depends on it yet, so the run goes on."""
    said = partrain("run", job_of(tmp_path, body), "--out", tmp_path / "run", "-q", "--set", "stop.rounds=4")
    assert said.code == 0, said
    assert said.err.count(f"{place} has changed in training, and no checkpoint holds it") == 1


def test_hooks_that_a_pickle_loses_are_refused() -> None:
    network = nn.Linear(2, 3)
    network.weight.register_hook(lambda gradient: gradient * 0)
    with pytest.raises(BadJob, match="parameter `weight` has a hook of `register_hook`, which would not reach the workers"):
        api.train(model=network, dataset={"inputs": torch.zeros(8, 2), "targets": torch.zeros(8, dtype=torch.int64)})


def test_a_resumed_round_is_compared_with_its_record(tmp_path: Path) -> None:
    """A flag that no checkpoint holds changes what training does from step 5 on: in round 2 before, in round 3 after a resume."""
    body = FLAG.replace(
        "return self.head(self.body(x))", "return self.head(self.body(x)) * (0.5 if self.training and self.late else 1)"
    )
    job = job_of(
        tmp_path,
        body.replace("self.steps", "self.calls").replace("        self.late = False", "        self.calls, self.late = 0, False"),
    )
    said = partrain("run", job, "--out", tmp_path / "run", "-q", "--set", "stop.rounds=4", "--set", "checkpoint.every=1")
    assert said.code == 0, said
    said = resume(round_file(tmp_path / "run", 2))
    assert "round 3 gave other numbers when it ran again: user code keeps a value that no checkpoint holds" in said.err


def test_a_judgement_only_because_the_run_ended_is_no_difference(tmp_path: Path) -> None:
    """Round 3 was the last and was judged for that; after a resume to round 6 it is not."""
    job = job_of(tmp_path, HEAD_ONLY + "    def forward(self, x):\n        return self.head(x)\n")
    sets = ("--set", "stop={rounds=3, judge_every=2}")
    assert partrain("run", job, "--out", tmp_path / "run", "-q", *sets).code == 0
    said = resume(round_file(tmp_path / "run", 1), "--until", "rounds=6")
    assert "gave other numbers" not in said.err, said
