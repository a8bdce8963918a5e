"""Every job that ships is one that runs, and says in its first lines what it shows."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path

import pytest

from partrain.job.load import problems
from partrain.system.accelerator import count

FOLDER = Path(__file__).parents[1] / "jobs"
JOBS = sorted(path for path in FOLDER.rglob("*.toml") if path.parent.name != "workflows")


def test_there_are_jobs() -> None:
    assert {"mnist.toml", "mnist-mixed.toml", "sine.toml"} <= {job.name for job in JOBS}


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_it_is_valid(job: Path) -> None:
    """Where the machine has the devices it asks for, and the run that it starts from has taken place."""
    errors = [problem.message for problem in problems(job) if problem.severity == "error"]
    absent = ("no device cuda", f"no such file: {FOLDER.parent / 'runs'}")
    assert not [message for message in errors if not message.startswith(absent)]


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_it_explains_itself(job: Path) -> None:
    _, *lines = job.read_text(encoding="utf-8").splitlines()
    comment = " ".join(takewhile(lambda line: line.startswith("#"), lines))
    assert len(comment.split()) >= 15


@pytest.mark.parametrize("job", sorted(FOLDER.rglob("*.toml")), ids=lambda job: job.name)
def test_its_first_line_names_the_schema(job: Path) -> None:
    first = job.read_text(encoding="utf-8").partition("\n")[0]
    assert first.startswith("#:schema ")
    name = "workflow" if job.parent.name == "workflows" else "job"
    schema = FOLDER.parent / f"partrain/templates/{name}.schema.json"
    assert (job.parent / first.removeprefix("#:schema ")).resolve() == schema


def test_a_job_for_gpus_says_so_where_there_are_none() -> None:
    errors = [problem.message for problem in problems(FOLDER / "mnist-mixed.toml") if problem.severity == "error"]
    assert len(errors) == (count("cuda") == 0)
    assert all("no device cuda" in message for message in errors)
