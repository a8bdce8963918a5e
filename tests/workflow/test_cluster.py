"""Steps on a Dask cluster: a scheduler and two workers on this machine, one of which is killed in mid-step."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.machines import free_port
from support.runs import JOB, Command, partrain, summary, write_job

LONG = JOB.replace("rounds = 4", "rounds = 400").replace("judge_every = 1", "judge_every = 50").replace("keep = 1000", "keep = 2")
STUDY = """
name = "study"

[[steps]]
name = "train"
job = "job.toml"

[[steps]]
name = "other"
command = ["sh", "-c", "echo $PARTRAIN_STEP_FOLDER > here.txt"]
outputs = ["here.txt"]

[[steps]]
name = "judge"
evaluate = {checkpoint = "{train.checkpoint}"}
"""


def until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 100
    while not holds():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.02)


def start(*words: str, **options: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """Start a scheduler and two workers; return the scheduler's address."""
    file = tmp_path / "scheduler.json"
    beside = {"cwd": tmp_path, "env": os.environ | {"DASK_LOGGING__DISTRIBUTED": "error"}}
    common = ["--scheduler-file", str(file), "--no-dashboard"]
    processes = [start("distributed.cli.dask_scheduler", *common, "--host", "127.0.0.1", "--port", "0", **beside)]
    try:
        until(lambda: file.exists() and file.read_bytes().rstrip().endswith(b"}"), "a scheduler")
        for name in ("one", "two"):
            worker = ["--no-nanny", "--nthreads", "4", "--resources", "cores=2", "--local-directory", str(tmp_path / name)]
            processes.append(start("distributed.cli.dask_worker", *common, *worker, **beside))
        yield json.loads(file.read_bytes())["address"]
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "job.toml").write_text(LONG)
    (tmp_path / "study.toml").write_text(STUDY)
    assert partrain("run", tmp_path / "job.toml", "--out", tmp_path / "undisturbed", "-q").code == 0
    return tmp_path


def runner(place: Path, address: str) -> subprocess.Popen[bytes]:
    return start("partrain", "run", "study.toml", "--out", "out", "--cluster", address, cwd=place)


def rounds(place: Path) -> int:
    """Return the number of committed rounds of the training."""
    try:
        return (place / "out/train/events.jsonl").read_text().count('"commit"')
    except OSError:
        return 0


def started(place: Path) -> list[str]:
    """Return the command lines of the training's attempts."""
    return [line for line in (place / "out/train/log.txt").read_text().splitlines() if line.startswith("$ ")]


def same_bits(place: Path) -> bool:
    return partrain("diff", place / "undisturbed", place / "out/train").code == 0


@pytest.mark.slow
def test_a_killed_worker_costs_no_bit(place: Path, cluster: str) -> None:
    study = runner(place, cluster)
    until(lambda: rounds(place) > 20, "a training on the cluster")
    os.kill(json.loads((place / "out/train/worker.json").read_bytes())["pid"], signal.SIGKILL)
    assert study.wait(100) == 0
    first, second = started(place)
    assert ("run " in first, "resume " in second) == (True, True)
    assert same_bits(place)
    assert json.loads((place / "out/judge/output.json").read_bytes())["test"]["accuracy"] > 0.5
    assert (place / "here.txt").read_text() == f"{place}/out/other\n"


@pytest.mark.soak
def test_the_same_command_goes_on_after_ctrl_c_and_after_a_kill(place: Path, cluster: str) -> None:
    study = runner(place, cluster)
    until(lambda: rounds(place) > 20, "a training on the cluster")
    study.send_signal(signal.SIGINT)
    assert study.wait(100) == 130
    stopped = rounds(place)
    assert json.loads((place / "out/train/step.json").read_bytes())["status"] == "stopped"
    study = runner(place, cluster)
    until(lambda: rounds(place) > stopped + 20, "the training to go on")
    study.kill()
    study.wait()
    events = place / "out/train/events.jsonl"
    until(lambda: '"stopped"' in events.read_text().splitlines()[-1], "the step to end without its runner")
    assert runner(place, cluster).wait(100) == 0
    assert len(started(place)) == 3
    assert same_bits(place)


@pytest.mark.soak
def test_a_step_that_no_worker_can_take_says_so_and_is_withdrawn(place: Path, cluster: str) -> None:
    (place / "job.toml").write_text(LONG.replace("count = 2", "count = 3"))
    study = start("partrain", "run", "study.toml", "--out", "out", "--cluster", cluster, "--only", "train", cwd=place)
    until(lambda: (place / "out/train/step.json").exists(), "the step to be handed over")
    time.sleep(1)
    study.send_signal(signal.SIGINT)
    assert study.wait(100) == 130
    assert not (place / "out/train/worker.json").exists()
    from partrain.workflow.cluster import ClusterExecutor
    from partrain.workflow.executor import StepTask
    from partrain.workflow.resources import Resources

    executor = ClusterExecutor(cluster)
    task = StepTask("x", ["true"], True, place, place, Resources(3, devices=frozenset({"cuda:0"})))
    step = executor.start(task)
    assert step.where == "queued; no worker announces 3 cores and 1 GPU"
    step.signal(signal.SIGINT)
    assert step.exit_code() == 130
    executor.close()


@pytest.mark.representative
def test_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With certificates in Dask's configuration a step runs; without them one line says so."""
    if not shutil.which("openssl"):
        pytest.skip("openssl makes the certificate")
    words = [
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        "key.pem",
        "-out",
        "cert.pem",
        "-days",
        "2",
        "-subj",
        "/CN=partrain",
    ]
    subprocess.run(["openssl", *words], cwd=tmp_path, check=True, capture_output=True)
    address = f"tls://127.0.0.1:{free_port()}"
    prefix, place = "DASK_DISTRIBUTED__COMM__", str(tmp_path)
    settings = {f"{prefix}REQUIRE_ENCRYPTION": "True", f"{prefix}TLS__CA_FILE": f"{place}/cert.pem"}
    for part in ("CLIENT", "SCHEDULER", "WORKER"):
        settings |= {f"{prefix}TLS__{part}__CERT": f"{place}/cert.pem", f"{prefix}TLS__{part}__KEY": f"{place}/key.pem"}
    write_job(tmp_path, "stop.rounds=2")
    (tmp_path / "study.toml").write_text('name = "study"\n[[steps]]\nname = "one"\njob = "job.toml"\n')
    beside: dict[str, Any] = {"cwd": tmp_path, "env": os.environ | settings}
    scheduler = ("--protocol", "tls", "--host", "127.0.0.1", "--port", address.rpartition(":")[2], "--no-dashboard")
    worker = ("--nthreads", "2", "--no-dashboard", "--no-nanny", "--resources", "cores=2")
    processes = [
        start("distributed.cli.dask_scheduler", *scheduler, **beside),
        start("distributed.cli.dask_worker", address, *worker, **beside),
    ]
    try:
        with Command(("run", "study.toml", "--cluster", address, "--out", "out"), tmp_path, settings) as command:
            said = command.wait(100)
        assert said.code == 0, said
        assert summary(tmp_path / "out" / "one")["rounds"] == 2
        with Command(("run", "study.toml", "--cluster", address, "--out", "bare"), tmp_path) as command:
            said = command.wait(100)
        assert "name your certificates in Dask's configuration" in said.err, said
        assert "Traceback" not in said.err
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_no_scheduler_and_no_dask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "study.toml").write_text(STUDY.replace("job.toml", "other.toml"))
    (tmp_path / "other.toml").write_text(JOB.replace("count = 2", "count = 1"))
    from partrain.workflow import cluster

    monkeypatch.setattr(cluster, "CONNECT_S", 0.5)
    said = partrain("run", tmp_path / "study.toml", "--out", tmp_path / "out", "--cluster", "tcp://127.0.0.1:9")
    assert (said.code, said.err.count("\n")) == (69, 1), said
    assert "no Dask scheduler answers at tcp://127.0.0.1:9" in said.err
    monkeypatch.setitem(sys.modules, "distributed", None)
    said = partrain("run", tmp_path / "study.toml", "--out", tmp_path / "out", "--cluster", "tcp://127.0.0.1:9")
    assert (said.code, "pip install 'partrain[cluster]'" in said.err) == (66, True), said


def test_without_its_scheduler_a_step_ends_with_a_checkpoint(cluster: str, place: Path) -> None:
    """In one line, and with the exit code of a resource that is gone."""
    with Command(("run", "study.toml", "--out", "out", "--cluster", cluster), place) as command:
        train = place / "out/train"
        until(lambda: (train / "events.jsonl").exists() and '"commit"' in (train / "events.jsonl").read_text(), "a checkpoint")
        os.kill(scheduler_of(cluster), signal.SIGKILL)
        said = command.wait()
    assert said.code == 69, said
    lines = said.err.splitlines()
    assert len(lines) == 1, said.err
    assert "train: the scheduler is gone" in lines[0]
    pid = json.loads((train / "events.jsonl").read_text().splitlines()[0])["workers"][0]["pid"]
    until(lambda: not Path(f"/proc/{pid}").exists(), "the end of the training")
    assert (train / "checkpoint.h5").exists()


def scheduler_of(address: str) -> int:
    """Return the process that listens at an address."""
    port = int(address.rpartition(":")[2])
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    inode = next(line.split()[9] for line in lines if line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A")
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(str(link.readlink()) == f"socket:[{inode}]" for link in (process / "fd").iterdir()):
                return int(process.name)
        except OSError:
            continue
    raise AssertionError("no process listens")
