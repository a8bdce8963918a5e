"""What is the user's own is tried once before any worker starts: what is wrong with it is one line, and the run that follows is the same."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest
from support.machines import MANY, Site
from support.runs import JOB, Command, descendants, eventually, newest, partrain, train, write_job

from partrain import checkpoint

OWN = '''
import multiprocessing
import os
import pathlib
import signal
import sys
import time

import partrain
import torch
from partrain.models import Interface, build
from partrain.models.sections import Mlp
from torch import nn

HERE = pathlib.Path(__file__).parent


def note():
    """Who builds."""
    with (HERE / "built").open("a") as file:
        file.write(multiprocessing.current_process().name + "\\n")


class Net(nn.Sequential):
    """As the built-in one of the same size, number for number, but for what `deed` does in `mode`."""

    def __init__(self, deed="", mode="train", outputs=3):
        note()
        super().__init__(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, outputs))
        self.deed, self.mode = deed, mode
        if mode == "build":
            exec(deed)

    def forward(self, x):
        y = super().forward(x)
        if self.mode == ("train" if self.training else "eval"):
            scope = {"self": self, "x": x, "y": y}
            exec(self.deed, globals(), scope)
            y = scope["y"]
        return y


def Plain(outputs=3):
    note()
    return nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, outputs))


def Ours():
    return build(Mlp(name="mlp", hidden=[8], dropout=0.1), HERE, Interface((2,), 3, "classification"))


MADE, NUMBER = nn.Identity(), 3


def Normal():
    return nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))


class Loss(partrain.Task):
    def __init__(self, what="loss"):
        self.what = what

    def loss(self, answers, targets):
        loss = nn.functional.cross_entropy(answers, targets)
        return eval(self.what)


class Stacked(Loss):
    def score(self, *batch):
        loss, right = super().score(*batch)
        return torch.tensor([loss, right])


class Score(Loss):
    accuracy = True

    def __init__(self, what):
        super().__init__()
        self.gives = what

    def correct(self, answers, targets):
        return eval(self.gives)


class Backward(Loss):
    def __init__(self, what):
        super().__init__()
        self.gives = what

    def differentiate(self, module, parameters, inputs, targets, iteration):
        loss, gradients = super().differentiate(module, parameters, inputs, targets, iteration)
        return eval(self.gives)
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path


def built(folder: Path) -> list[str]:
    path = folder / "built"
    return sorted(path.read_text().split("\n")[:-1]) if path.exists() else []


def net(deed: str, mode: str = "train", **more: object) -> str:
    others = "".join(f", {key}={value}" for key, value in more.items())
    return f'model={{name="own.py:Net", deed="{deed}", mode="{mode}"{others}}}'


LATE = "nn.init.zeros_(self.late.weight) if hasattr(self, 'late') else self.add_module('late', nn.Linear(3, 3))"
COUNTED = "self.register_buffer('seen', torch.zeros(()), persistent=True)"

NEW_DATA = "self[0].weight.data = self[0].weight.data.clone()"
NEW_PARAMETER = "self[0].weight = nn.Parameter(self[0].weight.data)"
EXCHANGED = "parameter `0.weight` was exchanged for another tensor with the first batch, and would not be trained"

FAULTS = {
    "exchanges a parameter's numbers": (net(NEW_DATA), EXCHANGED),
    "exchanges a parameter": (net(NEW_PARAMETER), EXCHANGED),
    "makes parameters": (net(LATE), "`late.bias` came or went with the first batch; make parameters and buffers in `__init__`"),
    "makes a buffer": (net(COUNTED), "`seen` came or went with the first batch; make parameters and buffers in `__init__`"),
    "raises": (net("raise ValueError('a bad item')"), "training on a batch of 8: ValueError: a bad item"),
    "raises when built": (net("raise ValueError('odd')", "build"), "before any worker starts, building: ValueError: odd"),
    "raises when judged": (net("raise ValueError('odd')", "eval"), "judging a batch of 8: ValueError: odd"),
    "leaves": (net("sys.exit(0)"), "SystemExit: 0"),
    "an infinite buffer": (
        net("self.register_buffer('mask', torch.tensor([0.0, -torch.inf]))", "build"),
        "buffer `mask` holds numbers that are not finite, so replicas of it have no mean; register it with persistent=False",
    ),
    "gives no tensor": (net("y = (y, y)"), "`own.py:Net` gives tuple of 2; expected a tensor (items, ...)"),
    "too few classes": (
        'model={name="own.py:Plain", outputs=2}',
        "own.py:Plain",
    ),
    "too few classes, once in a while": (
        net("", outputs=2),
        "`own.py:Net` gives a tensor (8, 2) of torch.float32; expected (items, 3) for this data set and task",
    ),
    "another shape": (net("y = y[:, :, None]"), "`own.py:Net` gives a tensor (8, 3, 1) of torch.float32; expected (items, 3)"),
    "detached": (net("y = y.detach()"), "`own.py:Net`: the loss does not depend on any parameter that is trained"),
    "elsewhere": (
        net("y = torch.zeros(8, 3, requires_grad=True)"),
        "`own.py:Net`: the loss does not depend on any parameter that is trained",
    ),
    "made already": ("model={name='own.py:MADE'}", "`own.py:MADE` is an object of type Identity; name its class, or a"),
    "a number": ("model={name='own.py:NUMBER'}", "`own.py:NUMBER` is an object of type int; name its class, or a function"),
    "many losses": (
        "task={name='own.py:Loss', what='loss.expand(8)'}",
        "`own.py:Loss`: `loss` gives a tensor (8,) of torch.float32; expected the mean loss",
    ),
    "a float": ("task={name='own.py:Loss', what='float(loss)'}", "`loss` gives float; expected the mean loss of the items"),
    "nothing": ("task={name='own.py:Loss', what='None'}", "`loss` gives NoneType; expected the mean loss of the items"),
    "no gradients": (
        "task={name='own.py:Backward', what='loss'}",
        "`differentiate` gives a tensor () of torch.float32; expected",
    ),
    "few gradients": ("task={name='own.py:Backward', what='(loss, gradients[:3])'}", "as gradients tuple of 3; expected 4"),
    "odd gradients": (
        "task={name='own.py:Backward', what='(loss, [g.flatten() for g in gradients])'}",
        "gives a tensor (32,) of torch.float32 as gradient of parameter 0; expected a tensor (16, 2) or None",
    ),
    "a loss that is none": (
        "task={name='own.py:Backward', what='(3, gradients)'}",
        "`differentiate` gives int; expected the mean",
    ),
    "counts no numbers": (
        "task={name='own.py:Score', what='answers.argmax(1) == targets'}",
        "`correct` gives a tensor (8,) of torch.bool; expected the number of items with a right answer",
    ),
}


@pytest.mark.parametrize(("table", "words"), FAULTS.values(), ids=FAULTS)
def test_faults(folder: Path, table: str, words: str) -> None:
    """Exit 71, one line, and no worker has built anything."""
    said = partrain("run", write_job(folder, table), "--out", folder / "run", "-q")
    assert (said.code, said.errors) == (71, ["user-code"]), said
    line = next(line for line in said.err.splitlines() if line.startswith("partrain: error"))
    assert words in line
    assert "Traceback" not in said.err
    assert not {name for name in built(folder) if "worker" in name}
    assert not (folder / "run").exists(), "a run that never began leaves no folder"
    if "raises" in words or "ValueError" in words:
        assert "own.py" in said.err
        assert "site-packages" not in said.err


NOT_FINITE = {
    "not a number": (net("y = y / 0 * 0"), "`own.py:Net`: the loss of the first batch is nan, not a finite number"),
    "an infinite loss": ("task={name='own.py:Loss', what='loss / 0'}", "`own.py:Loss`: the loss of the first batch is inf"),
}


@pytest.mark.parametrize(("table", "words"), NOT_FINITE.values(), ids=NOT_FINITE)
def test_a_first_loss_that_is_not_finite(folder: Path, table: str, words: str) -> None:
    """76, as if the workers had met it."""
    said = partrain("run", write_job(folder, table), "--out", folder / "run", "-q")
    assert (said.code, said.errors) == (76, ["diverged"]), said
    assert words in said.err
    assert not {name for name in built(folder) if "worker" in name}


def test_a_score_may_be_a_tensor_of_two(folder: Path) -> None:
    train(folder, "task={name='own.py:Stacked', what='loss'}")


def test_what_the_job_is_to_blame_for(folder: Path) -> None:
    said = partrain(
        "run", write_job(folder, "model={name='own.py:Normal'}", "optimizer.batch_size=1"), "--out", folder / "run", "-q"
    )
    assert (said.code, said.errors) == (78, ["bad-job"])
    assert "before any worker starts, training on a batch of 1: BatchNorm needs at least two items" in said.err


def test_a_last_batch_of_one_item_is_tried(folder: Path) -> None:
    """Of a pass over the items of the worker with the fewest: 100 items for each of two, in batches of 9."""
    changes = "model={name='own.py:Normal'}", "optimizer.batch_size=9", "sync={rule='average', passes=1}"
    said = partrain("run", write_job(folder, *changes), "--out", folder / "run", "-q")
    assert (said.code, said.errors) == (78, ["bad-job"]), said
    assert (
        "before any worker starts, training on a batch of 1, the last of a pass: BatchNorm needs at least two items" in said.err
    )
    assert "give rounds `iterations` instead of `passes`" in said.err
    assert not {name for name in built(folder) if "worker" in name}


def test_who_builds(folder: Path) -> None:
    """The dry run, a fork of it that builds the network again, and then each worker."""
    train(folder, net(""))
    assert built(folder) == ["partrain dry run", "partrain dry run", "partrain worker 0", "partrain worker 1"]
    (folder / "built").unlink()
    said = partrain("resume", folder / "run", "-q", "--trust-code", "--until", "rounds=5")
    assert said.code == 0, said
    assert built(folder) == ["partrain dry run", "partrain dry run", "partrain worker 0", "partrain worker 1"]


@pytest.mark.representative
@pytest.mark.parametrize("sets", [[], ["transport.kind='simulated'"], ["partition.redraw='round'", "sync.rule='bsp'"]])
def test_the_run_is_that_of_a_network_of_ours(folder: Path, sets: list[str]) -> None:
    """To the bit, though ours is not tried."""
    shutil.copy(folder / "own.py", (folder / "0").mkdir() or folder / "0")
    one = checkpoint.read(train(folder / "0", "model={name='own.py:Ours'}", *sets) / "checkpoint.h5").arrays
    other = checkpoint.read(train(folder / "1", "model={name='mlp', hidden=[8], dropout=0.1}", *sets) / "checkpoint.h5").arrays
    assert one.pop("probe").any()
    assert {path: array.tobytes() for path, array in one.items()} == {path: array.tobytes() for path, array in other.items()}


def test_judging_is_tried_only_where_there_is_any(folder: Path) -> None:
    text = JOB.replace("test_items = 40\nvalidation = 30\n", "").replace("judge_every = 1\n", "")
    train(folder, net("raise ValueError('odd')", "eval"), text=text)


def test_whole_partitions_are_tried_in_part(folder: Path) -> None:
    full = "optimizer={name='sgd', lr=0.05, full_batch=true}"
    data = "dataset={kind='synthetic', function='blobs', items=3000, validation=600}"
    said = partrain("run", write_job(folder, full, data, net("raise ValueError(len(x))")), "--out", folder / "run", "-q")
    assert (said.code, said.errors) == (71, ["user-code"])
    assert "training on a batch of 256: ValueError: 256" in said.err


@pytest.mark.parametrize("mode", ["build", "train"])
def test_it_is_killed(folder: Path, mode: str) -> None:
    job = write_job(folder, net("os.kill(os.getpid(), signal.SIGKILL)", mode))
    said = partrain("run", job, "--out", folder / "run", "-q")
    assert (said.code, said.errors) == (69, ["workers-lost"]), "its code is not to blame"
    assert "`own.py:Net`, tried before any worker starts: its process was killed by SIGKILL (possibly out of memory)" in said.err


def test_it_crashes(folder: Path) -> None:
    said = partrain("run", write_job(folder, net("os.kill(os.getpid(), signal.SIGSEGV)")), "--out", folder / "run", "-q")
    assert (said.code, said.errors) == (71, ["user-code"])
    assert "its process was killed by SIGSEGV" in said.err


def test_it_exits(folder: Path) -> None:
    said = partrain("run", write_job(folder, net("os._exit(0)")), "--out", folder / "run", "-q")
    assert (said.code, said.errors) == (71, ["user-code"])
    assert "its process ended with exit status 0 before its work was done" in said.err


@pytest.mark.parametrize("mode", ["build", "train"])
def test_it_hangs(folder: Path, mode: str) -> None:
    job = write_job(folder, net("time.sleep(1000)", mode), "transport.stall_seconds=0.5")
    said = partrain("run", job, "--out", folder / "run", "-q")
    assert (said.code, said.errors) == (75, ["stalled"])
    assert "`own.py:Net`, tried before any worker starts, made no progress for 0.5 s; raise [transport] stall_seconds" in said.err


def test_threads_that_stay_keep_nobody_waiting(folder: Path) -> None:
    deed = "import threading; threading.Thread(target=time.sleep, args=(1000,)).start() if 'trial' in multiprocessing.current_process().name else 0"
    train(folder, net(deed, "build"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_is_interrupted(folder: Path, number: signal.Signals) -> None:
    job = write_job(folder, net("(HERE / 'now').touch(); time.sleep(1000)"))
    with Command(("run", job, "--out", folder / "run", "-q"), folder) as command:
        eventually((folder / "now").exists, "the trial")
        command.interrupt(number)
        said = command.wait()
    assert said.code == 128 + number, said
    assert said.errors == []
    assert built(folder) == ["partrain dry run"]
    assert not (folder / "run").exists()


def test_it_dies_with_the_coordinator(folder: Path) -> None:
    job = write_job(folder, net("(HERE / 'now').touch(); time.sleep(1000)"))
    with Command(("run", job, "--out", folder / "run", "-q"), folder) as command:
        eventually((folder / "now").exists, "the trial")
        assert descendants(command.process.pid)
        os.kill(command.process.pid, signal.SIGKILL)
        assert command.wait().code == -signal.SIGKILL


def test_after_a_fault_the_same_folder_will_do(folder: Path) -> None:
    job = write_job(folder, net("raise ValueError('odd')"))
    assert partrain("run", job, "--out", folder / "run", "-q").code == 71
    assert not (folder / "run").exists()
    train(folder, net(""))
    assert newest(folder / "run")


def test_data_of_ones_own_alone_is_not_tried_again(folder: Path) -> None:
    (folder / "data.py").write_text(
        "import numpy as np\n"
        "class Data:\n"
        "    inputs = np.linspace(-1, 1, 60, dtype=np.float32).reshape(30, 2)\n"
        "    targets = np.arange(30) % 3\n"
    )
    train(folder, "dataset={name='data.py:Data', validation=6}", "stop.rounds=1")
    assert not built(folder)


def test_each_machine_tries_its_own(tmp_path: Path) -> None:
    """Two machines, of which the second has another file: no worker starts on either."""
    for number, line in enumerate(("nn.Linear(2, 8)", "nn.Linear(3, 8)")):
        ramp = "sync.ramp_workers=50"  # those of the second machine do not train in the first round
        job = write_job(tmp_path / f"job{number}", "model={name='own.py:Net'}", ramp, text=MANY)
        (job.parent / "own.py").write_text(OWN.replace("nn.Linear(2, 8)", line))
    first, second = (tmp_path / f"job{number}" for number in range(2))
    said = Site(tmp_path).run(("run", first / "job.toml", "--out", tmp_path / "run", "-q"), ("run", second / "job.toml", "-q"))
    words = "before any worker starts, training on a batch of 8: RuntimeError"
    assert f"error[user-code]: {words}" in said[1].err
    assert "error[user-code]: machine 1 (" in said[0].err
    assert words in said[0].err
    assert (built(first), built(second)) == (["partrain dry run"] * 2, ["partrain dry run"])


LATER = {
    "a parameter's numbers": (NEW_DATA, "parameter `0.weight` was exchanged for another tensor, and would not be trained"),
    "a parameter": (NEW_PARAMETER, "parameter `0.weight` was exchanged for another tensor, and would not be trained"),
    "makes parameters": (LATE, "`late.bias` came or went during training; make parameters and buffers in `__init__`"),
    "makes a buffer": (COUNTED, "`seen` came or went during training; make parameters and buffers in `__init__`"),
}


@pytest.mark.parametrize("what", LATER)
def test_what_user_code_exchanges_after_the_first_batch(folder: Path, what: str) -> None:
    """Without the check, the optimizer would silently train a tensor that the network no longer uses."""
    deed, message = LATER[what]
    later = f"self.n = getattr(self, 'n', 0) + 1\\nif self.n == 5: {deed}"
    job = write_job(folder, net(later), "stop.rounds=4", 'transport.kind="simulated"')
    said = partrain("run", job, "--out", folder / "run", "--quiet")
    assert (said.code, said.errors) == (71, ["user-code"]), said
    assert message in said.err
    assert "round " in said.err
