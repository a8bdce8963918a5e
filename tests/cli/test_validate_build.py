"""`validate --build` tries what a run does before its workers start: same message, same exit code, and no folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from support.runs import partrain, write_job

NET = """from torch import nn

class Net(nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.head = nn.Linear(2, outputs)

    def forward(self, items):
        return self.head(items)
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)


@pytest.mark.parametrize(("sets", "code", "message"), [
    ((), 0, ""),
    (('model={name="net.py:Net", outputs=3}',), 0, ""),
    (('model={name="net.py:Net", outputs=2}',), 71, "`net.py:Net` gives a tensor"),
    (('model={name="mlp", hidden=[4], freeze=["nope.*"]}',), 78, ': no parameter is called "nope.*"'),
])  # fmt: skip
def test_a_job_is_tried_as_run_does(tmp_path: Path, sets: tuple[str, ...], code: int, message: str) -> None:
    job = write_job(tmp_path, *sets)
    before = sorted(tmp_path.rglob("*"))
    assert partrain("validate", job).code == 0, "without running code nothing is found"
    said = partrain("validate", "--build", job)
    assert said.code == code, said
    assert message in said.err
    assert said.out.splitlines()[-1] == f"{job}: " + ("failed" if code else "ok, built and tried on a batch") + (
        {71: " (user-code)", 78: " (bad-job)"}.get(code, "")
    )
    left = [path for path in sorted(tmp_path.rglob("*")) if path not in before and "__pycache__" not in path.parts]
    assert left == [], "no run folder"
    if code:
        run = partrain("run", job, "-q")
        assert run.code == code
        assert message in run.err


FOUND_LATE = [
    ("hidden = [16]", 'hidden = [16]\nfreeze = ["0.*", "nope.*"]', '8:18: no parameter is called "nope.*"'),
    ("batch_size = 8", 'batch_size = 8\ngroups = [{match = ["nope.*"], lr = 1}]', '22:21: no parameter is called "nope.*"'),
    ("hidden = [16]", 'hidden = [16]\nfrom = "old.pt"\nrename = {x = "y"}', "9:11: no name in "),
]
"""A text of the job, its replacement, and the place and the beginning of the message."""


@pytest.mark.parametrize(("old", "new", "message"), FOUND_LATE)
@pytest.mark.parametrize("command", [("validate", "--build"), ("run", "-q")])
def test_a_value_found_wrong_after_loading_has_its_place(
    tmp_path: Path, old: str, new: str, message: str, command: tuple[str]
) -> None:
    """The network, and a data set of which only loading tells, are built before they contradict the job."""
    torch.save({"0.weight": torch.zeros(16, 2)}, "old.pt")
    job = write_job(tmp_path).rename(tmp_path / "mine.toml")
    job.write_text(job.read_text().replace(old, new, 1))
    said = partrain(*command, "mine.toml")
    assert said.code == 78, said
    assert f"error[bad-job]: mine.toml:{message}" in said.err
    assert "^" in said.err


def test_several_jobs_and_json(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    good, bad = write_job(tmp_path), write_job(tmp_path / "a", 'model={name="net.py:Net", outputs=2}')
    (tmp_path / "a" / "net.py").write_text(NET)
    said = partrain("validate", "--build", "--json", bad, good)
    assert said.code == 71
    told = json.loads(said.out)
    assert [one.get("failed") for one in told["built"]] == ["user-code", None]
    assert [one["file"] for one in told["built"]] == [str(bad), str(good)]


def test_a_job_with_errors_is_not_built(tmp_path: Path) -> None:
    job = write_job(tmp_path)
    job.write_text(job.read_text().replace("rounds", "roundz"))
    said = partrain("validate", "--build", job)
    assert said.code == 78
    assert "did you mean `rounds`?" in said.out


def test_a_workflow_is_not_built(tmp_path: Path) -> None:
    (tmp_path / "w.toml").write_text('[steps.a]\njob = "job.toml"\n')
    said = partrain("validate", "--build", tmp_path / "w.toml")
    assert said.code == 2
    assert "name the jobs of its steps" in said.err


def test_a_sweep_is_built_without_its_trials(tmp_path: Path) -> None:
    job = write_job(tmp_path)
    job.write_text(job.read_text() + '\n[sweep]\n"optimizer.lr" = [0.1, 0.2]\n')
    said = partrain("validate", "--build", job)
    assert (said.code, said.out.splitlines()[-1]) == (0, f"{job}: ok, built and tried on a batch"), said
