"""Training from Python, in this process and in scripts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest
import torch
from support.runs import JOB, descendants, events, eventually, summary
from support.runs import partrain as command_line

import partrain
from partrain.api.training import _with_defaults
from partrain.config.overrides import as_toml
from partrain.errors import Failure
from partrain.job.schema import Job, given_in
from partrain.rules.average import Average

SCRIPT = f"""
import json, os, sys
import partrain

JOB = {tomllib.loads(JOB)!r}

def show(trained):
    shapes = [list(parameter.shape) for parameter in trained.module.parameters()]
    print(json.dumps({{"shapes": shapes, "training": trained.module.training, "reached": trained.reached, "history": trained.history,
                      "folder": str(trained.folder), "checkpoint": str(trained.checkpoint), "status": trained.summary["status"]}}))
"""


def run(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", SCRIPT + text], cwd=folder, capture_output=True, text=True, timeout=110)


@pytest.mark.representative
def test_a_job_is_trained(tmp_path: Path) -> None:
    before = dict(os.environ)
    trained = partrain.train(Job(**tomllib.loads(JOB)), out=tmp_path / "run")
    assert os.environ == before
    assert [list(parameter.shape) for parameter in trained.module.parameters()] == [[16, 2], [16], [3, 16], [3]]
    assert not trained.module.training
    assert not trained.reached
    assert trained.summary["status"] == "finished"
    assert trained.history["round"] == [1, 2, 3, 4]
    assert repr(trained).startswith("Trained(finished after 4 rounds in ")
    assert len(repr(trained)) < 300
    assert trained.history["item_iterations"] == [48, 96, 144, 192]
    assert summary(tmp_path / "run")["loss"] == trained.history["judged_loss"][-1]
    assert Path(trained.checkpoint) == tmp_path / "run/best.h5"


def test_a_forkserver_serves_the_trainings_of_one_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers inherit its environment."""

    def train(name: str) -> int | None:
        partrain.train(Job(**tomllib.loads(JOB)), out=tmp_path / name)
        return forkserver._forkserver._forkserver_pid

    first = train("first")
    assert train("second") == first
    monkeypatch.setenv("PARTRAIN_TEST", "another environment")
    assert train("third") not in (first, None)


@pytest.mark.slow
def test_a_job_file_gives_the_bits_of_the_command_line(tmp_path: Path) -> None:
    """A script trains in processes of its own forkserver; it names its folders relative to where it runs."""
    (tmp_path / "job.toml").write_text(JOB)
    done = run(tmp_path, "show(partrain.train('job.toml', out='run'))")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["status"], said["folder"], said["checkpoint"]) == ("finished", "run", "run/best.h5")
    assert command_line("run", tmp_path / "job.toml", "--out", tmp_path / "other", "-q").code == 0
    assert (tmp_path / "run/checkpoint.h5").read_bytes() == (tmp_path / "other/checkpoint.h5").read_bytes()


@pytest.mark.parametrize(("change", "code", "words"), [
    ({"stop": {"accuracy": 0.9}}, 78, "a target alone may never be reached"),
    ({"dataset": {"kind": "idx", "inputs": "nowhere", "targets": "nowhere"}}, 66, "nowhere: No such file"),
], ids=["job", "data"])  # fmt: skip
def test_what_goes_wrong_is_an_exception(tmp_path: Path, change: dict[str, Any], code: int, words: str) -> None:
    with pytest.raises(Failure) as caught:
        partrain.train(Job(**tomllib.loads(JOB) | change), out=tmp_path / "run")
    assert caught.value.code == code
    assert caught.value.message.startswith("Job: ")
    assert words in caught.value.message
    assert not events(tmp_path / "run")


@pytest.mark.parametrize("optimizer", ["lbfgs", {"name": "rprop", "lr": 0.01}])
def test_optimizers_of_full_batches_get_no_batch_size(optimizer: Any) -> None:
    tables = {"name": "t", "model": {"name": "linear"}, "dataset": {"name": "mnist"}, "optimizer": optimizer, "workers": 2}
    assert "batch_size" not in _with_defaults(tables, 60_000).optimizer.model_fields_set


def test_advice_is_python() -> None:
    with pytest.raises(Failure, match=r'expected a table \[stop\], got 3; give stop=\{"rounds": 100\}'):
        partrain.train(model={"name": "linear"}, dataset={"name": "mnist"}, stop=3)


def test_none_is_no_date() -> None:
    with pytest.raises(Failure, match="expected an integer, got None"):
        partrain.train(model={"name": "linear"}, dataset={"name": "mnist"}, seed=None, stop={"rounds": 1})


@pytest.mark.slow
def test_an_interrupt_leaves_a_checkpoint_and_is_an_interrupt(tmp_path: Path) -> None:
    text = "JOB['stop'] = {'rounds': 10**6}\ntry:\n    partrain.train(partrain.Job(**JOB), out='run')\nexcept KeyboardInterrupt as stop:\n    print(stop)"
    with subprocess.Popen([sys.executable, "-c", SCRIPT + text], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as script:
        assert eventually(lambda: events(tmp_path / "run", "commit"), "a checkpoint")
        workers = descendants(script.pid)
        script.send_signal(signal.SIGINT)
        said, _ = script.communicate(timeout=100)
    assert said == "stopped; to continue: partrain resume run\n"
    assert (tmp_path / "run/checkpoint.h5").exists()
    assert workers
    assert eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), "the workers to end")


@pytest.mark.slow
def test_an_interrupt_before_the_first_round_names_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("""
import multiprocessing, pathlib, time
from torch import nn

def net():
    if "worker" in multiprocessing.current_process().name:
        pathlib.Path(__file__).with_name("building").touch()
        time.sleep(1000)
    return nn.Linear(2, 3)
""")
    text = "JOB['model'] = {'name': 'net.py:net'}\ntry:\n    partrain.train(partrain.Job(**JOB), out='run')\nexcept KeyboardInterrupt as stop:\n    print(stop)"
    with subprocess.Popen([sys.executable, "-c", SCRIPT + text], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as script:
        eventually((tmp_path / "building").exists, "a worker")
        script.send_signal(signal.SIGINT)
        said, _ = script.communicate(timeout=100)
    assert said == "stopped before the first round\n"


@pytest.mark.slow
def test_a_script_may_have_a_forkserver_of_its_own(tmp_path: Path) -> None:
    """Which does not end with the training."""
    (tmp_path / "script.py").write_text(f"""
import multiprocessing
from multiprocessing import forkserver
import partrain

if __name__ == "__main__":
    context = multiprocessing.get_context("forkserver")
    (first := context.Process(target=print)).start()
    server = forkserver._forkserver._forkserver_pid
    trained = partrain.train(partrain.Job(**{tomllib.loads(JOB)!r}), out="run")
    assert forkserver._forkserver._forkserver_pid == server
    (second := context.Process(target=print)).start()
    first.join(), second.join()
    assert (first.exitcode, second.exitcode) == (0, 0)
    print(trained.summary["status"])
""")
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=110)
    assert (done.returncode, done.stdout.split()) == (0, ["finished"]), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "table",
    [{"model": {"name": "script.py:Net"}}, pytest.param({"dataset": {"name": "script.py:Points"}}, marks=pytest.mark.soak)],
    ids=str,
)
def test_a_script_that_its_own_run_imports_needs_a_guard(tmp_path: Path, table: dict[str, object]) -> None:
    """Else the run would train in each of its processes, and the runs of these in theirs."""
    (tmp_path / "script.py").write_text(f"""
import partrain
from torch import nn

class Net(nn.Linear):
    def __init__(self):
        super().__init__(2, 3)

class Points:
    def __len__(self):
        return 300

    def __getitem__(self, number):
        return [number / 300, 0.5], number % 3

partrain.train(partrain.Job(**{tomllib.loads(JOB) | table!r}), out="run")
""")
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=110)
    assert done.returncode == 1
    assert "UserCodeFailed" in done.stderr.splitlines()[-1]
    assert "put the call under `if __name__ == '__main__':`" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("change", [
    {}, {"model": {"name": "net.py:Net", "width": 3, "parts": [1, 2]}},
    {"sync": {"rule": "topk", "iterations": 2, "compressor": {"kind": "topk", "density": 0.2}}},
    {"task": {"kind": "autoencoder"}, "seed": 4},
])  # fmt: skip
def test_a_job_is_written_as_it_was_given(change: dict[str, object]) -> None:
    given = tomllib.loads(JOB) | change
    assert tomllib.loads(as_toml(given_in(Job.model_validate(given)))) == given


def test_sections_of_the_callers_own_making_are_named() -> None:
    job = Job.model_validate(tomllib.loads(JOB) | {"sync": Average(iterations=2)})
    assert given_in(job)["sync"] == {"rule": "average", "iterations": 2}


@pytest.mark.slow
def test_a_script_gets_back_a_network_of_its_own_class(tmp_path: Path) -> None:
    """And is not run a second time in the process that asks."""
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "class Net(torch.nn.Sequential):\n"
        "    def __init__(self): super().__init__(torch.nn.Linear(2, 3))\n"
        f"{SCRIPT}"
        "if __name__ == '__main__':\n"
        "    trained = partrain.train(partrain.Job(**JOB | {'model': {'name': 'mine.py:Net'}}), out='run')\n"
        "    assert isinstance(trained.module, Net), type(trained.module)\n"
        "    assert not [name for name in sys.modules if name.startswith('partrain_user')]\n"
    )
    done = subprocess.run([sys.executable, "mine.py"], cwd=tmp_path, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr


@pytest.mark.soak
def test_a_thread_may_train(tmp_path: Path) -> None:
    text = "import threading\nthread = threading.Thread(target=lambda: show(partrain.train(partrain.Job(**JOB), out='run')))\nthread.start()\nthread.join()"
    done = run(tmp_path, text)
    assert json.loads(done.stdout)["status"] == "finished", done.stderr


@pytest.mark.slow
def test_threads_train_one_after_the_other(tmp_path: Path) -> None:
    """The end of a short training does not end a longer one."""
    done = run(
        tmp_path,
        """
import threading
before, main = dict(os.environ), sys.modules["__main__"]
def one(rounds):
    print(partrain.train(partrain.Job(**JOB | {"stop": {"rounds": rounds}, "checkpoint": {}}), out=f"run{rounds}").summary["rounds"])
threads = [threading.Thread(target=one, args=(rounds,)) for rounds in (300, 2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert (before, main) == (os.environ, sys.modules["__main__"])
""",
    )
    assert (done.returncode, sorted(done.stdout.split())) == (0, ["2", "300"]), done.stderr


@pytest.fixture(params=["meta device", "float64"])
def torch_settings(request: pytest.FixtureRequest) -> Iterator[None]:
    """Another default device or type of torch, which the user chose."""
    device, dtype = torch.get_default_device(), torch.get_default_dtype()
    torch.set_default_device("meta") if request.param == "meta device" else torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_device(None if device.type == "cpu" else device)
        torch.set_default_dtype(dtype)


@pytest.mark.slow
@pytest.mark.usefixtures("torch_settings")
def test_the_network_is_the_trained_one_whatever_torch_was_set_to(tmp_path: Path) -> None:
    before = torch.get_default_device(), torch.get_default_dtype()
    drawn = torch.get_rng_state()
    weight = next(partrain.train(Job(**tomllib.loads(JOB)), out=tmp_path / "run").module.parameters())
    assert before == (torch.get_default_device(), torch.get_default_dtype())
    assert torch.equal(drawn, torch.get_rng_state())
    assert (weight.device.type, weight.dtype) == ("cpu", torch.float32)


@pytest.mark.slow
def test_failures_are_caught_by_their_name(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
try:
    partrain.train("nowhere.toml")
except partrain.Failure as failure:
    print(failure.code, failure)
""",
    )
    assert (done.returncode, done.stdout[:3]) == (0, "66 "), done


@pytest.mark.soak
def test_shown_on_a_stream_that_can_only_write(tmp_path: Path) -> None:
    """As some hosts of scripts replace stdout."""
    done = run(
        tmp_path,
        """
class Shown:
    def __init__(self, stream): self.write, self.flush = stream.write, stream.flush

sys.stdout = Shown(sys.stdout)
partrain.train(partrain.Job(**JOB), out="run", show=True)
""",
    )
    assert (done.returncode, "  round 4  " in done.stdout) == (0, True), done
