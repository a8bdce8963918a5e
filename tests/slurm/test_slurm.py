"""The scripts of docs/several-machines.md on a real SLURM: two nodes of this machine."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.machines import MANY
from support.runs import Command, events, eventually, summary, train, write_job
from support.slurm import Slurm, cluster

from partrain import checkpoint

pytestmark = pytest.mark.slurm
PAGE = (Path(__file__).parents[2] / "docs" / "several-machines.md").read_text(encoding="utf-8")
SCRIPT, ARRAY = (block for block in re.findall(r"^```bash\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL) if "#SBATCH" in block)
JOBQUEUE = next(block for block in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL) if "jobqueue" in block)
LONG = "stop.rounds=400", "sync.iterations=40", "checkpoint.keep=5"
"""Some seconds of training, in rounds of some milliseconds."""
LONGER = "stop.rounds=3000", *LONG[1:]
"""Longer than the grace time."""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with cluster(tmp_path_factory.mktemp("slurm")) as started:
        yield started


def script(text: str = SCRIPT, **values: str) -> str:
    """A script of the page, for the cores of two nodes on this machine, and with this Python's partrain."""
    for name, value in ({"cpus-per-task": "1"} | values).items():
        text = re.sub(rf"--{name}=\S+", f"--{name}={value}", text)
    head, _, rest = text.partition("srun ")
    return f"{head}export PATH={Path(sys.executable).parent}:$PATH PYTHONPATH={os.environ.get('PYTHONPATH', '')}\nsrun {rest}"


def arrays(run: Path) -> dict[str, np.ndarray]:
    return checkpoint.read(run / "checkpoint.h5").arrays


def same_end(run: Path, other: Path) -> bool:
    """Return whether two runs end in the same bits of network, optimizers and partitions."""
    ours, theirs = arrays(run), arrays(other)
    paths = [path for path in ours if not path.startswith("history/")]
    return all(ours[path].tobytes() == theirs[path].tobytes() for path in paths)


def whole(folder: Path, *sets: str) -> Path:
    """The same training on one machine, with the workers of both."""
    return train(folder / "whole", "workers.0.count=2", *sets, text=MANY)


def prepare(folder: Path, *sets: str) -> Path:
    (folder / "job.toml").write_text(write_job(folder / "text", "workers.0.count=1", *sets, text=MANY).read_text())
    return folder


def begun(run: Path, rounds: int = 20) -> None:
    eventually(lambda: len(events(run, "commit")) > 2 and len(events(run, "round")) > rounds, "some rounds")


def test_two_nodes_have_the_bits_of_one_machine(slurm: Slurm, tmp_path: Path) -> None:
    job = slurm.submit(script(), prepare(tmp_path))
    slurm.wait(job, "COMPLETED", "FAILED")
    out = (tmp_path / "out.txt").read_text()
    assert slurm.field(job, "JobState") == "COMPLETED", out
    assert "machine 1 of 2 trains workers 1 to 1" in out
    assert "on 2 machines, under torchrun or srun" in out
    assert same_end(tmp_path / "runs" / job, whole(tmp_path))
    assert [event["cores"] for event in events(tmp_path / "runs" / job, "start")] == [1]


def test_a_cancelled_job_ends_with_a_checkpoint(slurm: Slurm, tmp_path: Path) -> None:
    job = slurm.submit(script(), prepare(tmp_path, *LONG))
    run = tmp_path / "runs" / job
    begun(run)
    slurm.run("scancel", job)
    eventually(lambda: (run / "summary.json").exists(), "the end")
    done = summary(run)
    assert (done["status"], done["reason"]) == ("stopped", "SIGTERM")
    assert checkpoint.read(run / "checkpoint.h5").round == done["rounds"]


def test_usr1_commits_a_checkpoint_and_ends_nothing(slurm: Slurm, tmp_path: Path) -> None:
    job = slurm.submit(
        script(), prepare(tmp_path, *LONG, 'checkpoint.commit="coalesce"', "checkpoint.every=1000", "stop.judge_every=1000")
    )
    run = tmp_path / "runs" / job
    eventually(lambda: len(events(run, "round")) > 20, "some rounds")
    slurm.run("scancel", "--signal=USR1", job)
    slurm.wait(job, "COMPLETED", "FAILED")
    assert slurm.field(job, "JobState") == "COMPLETED", (tmp_path / "out.txt").read_text()
    assert len({event["round"] for event in events(run, "commit")}) > 1
    assert not events(run, "replay")


def test_a_preempted_job_goes_on_with_the_same_bits(slurm: Slurm, tmp_path: Path) -> None:
    job = slurm.submit(script(), prepare(tmp_path, *LONG))
    run = tmp_path / "runs" / job
    begun(run)
    other = slurm.run(
        "sbatch", "--parsable", "--partition=high", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 1"
    )
    slurm.wait(other, "COMPLETED")
    slurm.hasten(job)
    slurm.wait(job, "COMPLETED", "FAILED")
    out = (tmp_path / "out.txt").read_text()
    assert slurm.field(job, "JobState") == "COMPLETED", out
    assert slurm.field(job, "Restarts") == "1"
    assert "SLURM has started this job again" in out
    assert len(events(run, "start")) == 2
    assert same_end(run, whole(tmp_path, *LONG))


def test_the_loss_of_a_node_is_survived(slurm: Slurm, tmp_path: Path) -> None:
    job = slurm.submit(script(), prepare(tmp_path, *LONG))
    run = tmp_path / "runs" / job
    begun(run)
    slurm.kill_node("n2")
    slurm.wait(job, "PENDING")
    slurm.start_node("n2")
    slurm.hasten(job)
    slurm.wait(job, "COMPLETED", "FAILED")
    out = (tmp_path / "out.txt").read_text()
    assert slurm.field(job, "JobState") == "COMPLETED", out
    assert same_end(run, whole(tmp_path, *LONG))


def test_the_end_of_an_allocation_is_seen_ahead(slurm: Slurm, tmp_path: Path) -> None:
    """This SLURM may be too old to tell it, so the script does."""
    text = script().replace("srun ", "export SLURM_JOB_END_TIME=$(($(date +%s) + 70))\nsrun ")
    job = slurm.submit(text, prepare(tmp_path, *LONG, "stop.rounds=1000000"))
    eventually(lambda: (tmp_path / "runs" / job / "summary.json").exists(), "the end")
    slurm.wait(job, "PENDING")  # for the next allocation
    slurm.run("scancel", job)
    done = summary(tmp_path / "runs" / job)
    assert (done["status"], done["reason"]) == ("stopped", "end of the allocation")
    assert "the allocation ends in" in (tmp_path / "out.txt").read_text()
    assert checkpoint.read(tmp_path / "runs" / job / "checkpoint.h5").round == done["rounds"]


def test_an_array_of_jobs(slurm: Slurm, tmp_path: Path) -> None:
    job = slurm.submit(script(ARRAY), prepare(tmp_path))
    runs = [tmp_path / "runs" / f"{job}-{number}" for number in range(4)]
    eventually(lambda: all((run / "summary.json").exists() for run in runs), "all jobs", 120)
    assert {summary(run)["status"] for run in runs} == {"finished"}
    rates = [next(line for line in (run / "job.toml").read_text().splitlines() if line.startswith("lr =")) for run in runs]
    assert rates == ["lr = 0.01", "lr = 0.03", "lr = 0.1", "lr = 0.3"]


def test_several_processes_on_a_node_are_refused(slurm: Slurm, tmp_path: Path) -> None:
    job = slurm.submit(script().replace("srun ", "srun --overcommit --ntasks-per-node=2 --ntasks=4 "), prepare(tmp_path))
    slurm.wait(job, "FAILED", "COMPLETED")
    assert "use --ntasks-per-node=1: partrain starts the job's workers" in (tmp_path / "out.txt").read_text()


STUDY = """
name = "study"
[[steps]]
name = "one"
job = "job.toml"
[[steps]]
name = "two"
job = "job.toml"
set = {seed = 4, stop.rounds = 10}
"""


@pytest.fixture
def queue(slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a workflow of two steps, and what Dask asks SLURM for."""
    pytest.importorskip("dask_jobqueue")
    (tmp_path / "jobqueue.yaml").write_text(re.sub(r"(cores|memory): \d+", r"\1: 1", JOBQUEUE))
    asked = {
        "JOB_SCRIPT_PROLOGUE": [f"cd {tmp_path}", f"export PYTHONPATH={os.environ.get('PYTHONPATH', '')}"],
        "LOCAL_DIRECTORY": repr(str(tmp_path)),
        "LOG_DIRECTORY": repr(str(tmp_path)),
    }
    own = {f"DASK_JOBQUEUE__SLURM__{key}": str(value) for key, value in asked.items()}
    for name, value in (slurm.environment | own | {"DASK_CONFIG": str(tmp_path)}).items():
        monkeypatch.setenv(name, value)
    prepare(tmp_path, *LONGER)
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path


@pytest.mark.timeout(400)
@pytest.mark.parametrize("end", ["preempted", "killed"])
def test_steps_of_a_workflow_in_allocations_of_their_own(slurm: Slurm, queue: Path, end: str) -> None:
    """One of two steps loses its allocation: it goes on in another one, with the same bits."""
    with Command(("run", queue / "study.toml", "--out", queue / "study", "--cluster", "slurm"), queue) as command:
        first = queue / "study" / "one"
        eventually(lambda: len(events(first, "commit")) > 5, "the first step")
        job = environment_of(events(first, "start")[0]["workers"][0]["pid"])["SLURM_JOB_ID"]
        if end == "killed":
            slurm.run("scancel", "--signal=KILL", "--full", job)
        else:
            node = slurm.field(job, "NodeList")
            words = "--parsable", "--partition=high", f"--nodelist={node}", "--exclusive", "--output=/dev/null"
            slurm.wait(slurm.run("sbatch", *words, "--wrap=sleep 1"), "COMPLETED")
        said = command.wait(150)
    assert said.code == 0, said
    assert len(events(first, "start")) == 2, "the step went on elsewhere"
    assert same_end(first, train(queue / "alone", "workers.0.count=1", *LONGER, text=MANY))
    eventually(lambda: not slurm.run("squeue", "--noheader", "--states=RUNNING,PENDING"), "no allocation left")


def test_what_slurm_lacks_is_told(slurm: Slurm, queue: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("run", queue / "study.toml", "--out", queue / "study", "--cluster", "slurm")
    with monkeypatch.context() as patch:
        patch.setenv("DASK_CONFIG", str(queue / "nothing"))
        with Command(words, queue) as command:
            said = command.wait()
    assert said.code == 66
    assert "jobqueue.yaml" in said.err


def environment_of(process: int) -> dict[str, str]:
    """Return the environment of a process."""
    lines = Path(f"/proc/{process}/environ").read_bytes().decode().split("\0")
    return dict(line.split("=", 1) for line in lines if "=" in line)
