"""The user's own network fails: 71, in one line, with the worker, the round, the iteration and the user's frames."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.aftermath import Aftermath
from support.runs import Command, events, partrain, sabotage, summary, write_job

from partrain import checkpoint

RAISES = {
    "raises": "raise ValueError('a bad item')",
    "raises without a word": "raise KeyError",
    "raises a bad exception": "raise type('Mute', (Exception,), {'__str__': lambda self: 1 / 0})()",
    "raises many lines": "raise RuntimeError('one' + chr(10) + 'two')",
    "raises nothing special": "raise BaseException('a bad item')",
    "interrupts": "raise KeyboardInterrupt",
    "exits": "sys.exit(0)",
    "asks for memory": "torch.empty(1 << 55)",
    "answers too much": "self.append(nn.Linear(3, 1)); self.append(nn.Flatten(0))",
}


SOME = "raises", "raises a bad exception", "exits", "answers too much"
"""Those of the gate; `make test-slow` has all. After these, the run goes on from its newest checkpoint."""


@pytest.mark.representative
@pytest.mark.parametrize(("what", "kind"), [
    *(pytest.param(what, "shared", marks=() if what in SOME else pytest.mark.slow) for what in RAISES),
    ("raises", "simulated"),
    pytest.param("exits", "simulated", marks=pytest.mark.slow),
])  # fmt: skip
def test_forward(tmp_path: Path, what: str, kind: str) -> None:
    deed = RAISES[what]
    worker = 1 if kind == "shared" else 0
    after = Aftermath(sabotage(tmp_path, deed, f'transport.kind="{kind}"', worker=worker, call=8))
    said = after.train()
    after.check(said, 71, "user-code", f"worker {worker}, round 3, iteration 2", goes_on=what in SOME)
    if "Flatten" not in deed:
        assert "saboteur.py" in said.err
        assert "in forward" in said.err
        assert "site-packages" not in said.err


def test_two_at_once(tmp_path: Path) -> None:
    """The first error is told, once."""
    job = sabotage(tmp_path, "")
    (tmp_path / "saboteur.py").write_text(
        (tmp_path / "saboteur.py")
        .read_text()
        .replace("if self.deed and", "if self.calls == 4:\n            raise ValueError('all')\n        if")
    )
    said = partrain("run", job, "--out", tmp_path / "run", "-q")
    assert (said.code, said.errors) == (71, ["user-code"]), said


TASKS = """
import multiprocessing
import pathlib

import partrain
from torch import nn

DONE = pathlib.Path(__file__).with_name("done")


class Late(partrain.Task):
    calls = 0

    def late(self):
        \"\"\"Once, in the second iteration of round 3 of worker 1.\"\"\"
        self.calls += multiprocessing.current_process().name == "partrain worker 1"
        if self.calls != 8 or DONE.exists():
            return False
        DONE.touch()
        return True


class Loss(Late):
    def __init__(self, what):
        self.what = what

    def loss(self, answers, targets):
        loss = nn.functional.cross_entropy(answers, targets)
        return eval(self.what) if answers.requires_grad and self.late() else loss


class Backward(Late):
    def __init__(self, what):
        self.what = what

    def loss(self, answers, targets):
        return nn.functional.cross_entropy(answers, targets)

    def differentiate(self, *batch):
        loss, gradients = super().differentiate(*batch)
        return eval(self.what) if self.late() else (loss, gradients)
"""
LATE = {
    "a float": ("Loss", "loss.item()", "`loss` gives float; expected the mean loss of the items, a tensor () of one number"),
    "many": ("Loss", "loss.expand(8)", "`loss` gives a tensor (8,) of torch.float32; expected the mean loss"),
    "a float beside gradients": ("Backward", "(loss.item(), gradients)", "`differentiate` gives float; expected the mean loss"),
    "few gradients": ("Backward", "(loss, gradients[:3])", "`differentiate` gives as gradients tuple of 3; expected 4"),
    "flat gradients": (
        "Backward",
        "(loss, [g.flatten() for g in gradients])",
        "`differentiate` gives a tensor (32,) of torch.float32 as gradient of parameter 0; expected a tensor (16, 2) or None",
    ),
}


@pytest.mark.parametrize(("name", "what", "words"), LATE.values(), ids=LATE)
def test_a_task_that_gives_something_else_in_the_midst_of_training(tmp_path: Path, name: str, what: str, words: str) -> None:
    """There are no frames of the user's by then: what is wrong, and whose it is, is said as on trial."""
    (tmp_path / "tasks.py").write_text(TASKS)
    after = Aftermath(write_job(tmp_path, f'task={{name="tasks.py:{name}", what="{what}"}}'))
    where = "worker 1, round 3, iteration 2: "
    told = f"error[user-code]: {where}[task] name: `tasks.py:{name}`: {words}"
    after.check(after.train(), 71, "user-code", told, goes_on=what == "loss.item()")


BUILDS = {
    "no file": (66, 'name="missing.py:Net"', "6:8: no file `missing.py` next to the job"),
    "no class": (78, 'name="net.py:Nat"', "6:8: `net.py` has no `Nat`"),
    "no network": (71, 'name="net.py:number"', "not a torch.nn.Module"),
    "no call": (71, 'name="net.py:constant"', "constant"),
    "no such package": (78, 'name="nowhere.at_all:Net"', "6:8: no module `nowhere` in this"),
    "no such module of a package": (71, 'name="json.at_all:Net"', "no module `json.at_all` in this"),
    "other arguments": (78, 'name="net.py:Net", depth=3', "7:1: `net.py:Net` takes no argument `depth`"),
    "arguments of a base class": (78, 'name="net.py:Extra", depth=3', "7:1: `net.py:Extra` takes no argument `depth`"),
    "an argument too few": (78, 'name="net.py:deep", depht=3', "7:1: `net.py:deep` takes no argument `depht`"),
    "arguments too few": (78, 'name="net.py:deep"', "6:8: `net.py:deep` needs the argument `depth`"),
    "a constructor that fails": (71, 'name="net.py:Broken"', "ZeroDivisionError"),
    "no parameters": (71, 'name="net.py:Empty"', "no parameters"),
    "half precision": (71, 'name="net.py:Half"', "float16"),
    "a file that cannot be read": (78, 'name="syntax.py:Net"', "6:8: syntax.py:1: invalid syntax"),
    "an import that fails": (71, 'name="imports.py:Net"', "no_such_module"),
    "a file that exits": (71, 'name="exits.py:Net"', "SystemExit"),
    "names that are made as it runs": (71, 'name="dynamic.py:Other"', "`dynamic.py` has no `Other`"),
    "outside": (78, 'name="../net.py:Net"', "6:8: `../net.py` is outside the job's folder"),
    "odd numbers": (71, 'name="net.py:Odd"', "complex"),
    "state of its own": (71, 'name="net.py:Extra"', "extra_state"),
}
"""What `validate` finds without running code has its place; the rest ends with 71 before training."""
NETS = """
import torch
from torch import nn
constant = 3
def number(): return 3
def deep(depth, *, width=3): return nn.Linear(2, width)
class Net(nn.Linear):
    def __init__(self): super().__init__(2, 3)
class Broken(nn.Module):
    def __init__(self): 1 / 0
class Empty(nn.Module): pass
def Half(): return nn.Linear(2, 3).half()
class Odd(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("odd", torch.zeros(2, dtype=torch.complex128))
class Extra(Net):
    def get_extra_state(self): return {"steps": 3}
    def set_extra_state(self, state): pass
"""


@pytest.mark.parametrize(("code", "model", "words"), BUILDS.values(), ids=BUILDS)
def test_building(tmp_path: Path, code: int, model: str, words: str) -> None:
    (tmp_path / "net.py").write_text(NETS)
    (tmp_path / "syntax.py").write_text("class Net(:\n")
    (tmp_path / "imports.py").write_text("import no_such_module\nNet = 1\n")
    (tmp_path / "exits.py").write_text("import sys\nsys.exit(0)\nNet = 1\n")
    (tmp_path / "dynamic.py").write_text("globals()['Net'] = 1\n")
    said = partrain("run", write_job(tmp_path, f"model={{{model}}}"), "--out", tmp_path / "run", "-q")
    assert (said.code, said.errors) == (code, [{66: "no-input", 71: "user-code", 78: "bad-job"}[code]]), said
    assert words in said.err
    assert "Traceback" not in said.err
    if code != 71:
        told = partrain("validate", tmp_path / "job.toml")
        assert told.code == code
        assert words in told.out + told.err
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("call", [0, 1, 8])
def test_a_process_that_exits(tmp_path: Path, call: int) -> None:
    """Exit status 0 before the work is done is a loss, not a success."""
    after = Aftermath(sabotage(tmp_path, "os._exit(0)", "faults.on_loss='stop'", call=call))
    after.check(after.train(), 69, "workers-lost", "worker 1 (cpu) ended with exit status 0")


DIFFERENCES = {
    "shape": ("self.insert(0, nn.Linear(2, 2))", "built different networks: `model/0.weight`"),
    "number": ("self.append(nn.Linear(3, 3))", "model/3.weight"),
    "name": ("self.add_module('more', nn.Linear(3, 3))", "model/more.weight"),
    "frozen numbers": ("", "`frozen` begins with other numbers"),
}


@pytest.mark.parametrize(("deed", "words"), DIFFERENCES.values(), ids=DIFFERENCES)
def test_networks_that_differ(tmp_path: Path, deed: str, words: str) -> None:
    job = sabotage(tmp_path, deed, call=0)
    if not deed:
        text = (tmp_path / "saboteur.py").read_text()
        (tmp_path / "saboteur.py").write_text(
            text.replace(
                "        self.deed =",
                "        self.register_buffer('frozen', torch.tensor(float(os.getpid())))\n        self.deed =",
            )
        )
    said = partrain("run", job, "--out", tmp_path / "run", "-q")
    assert (said.code, said.errors) == (71, ["user-code"]), said
    assert words in said.err


def test_a_defect_of_ours(tmp_path: Path) -> None:
    """70, with a traceback; the run folder says how it ended, and what waited for the disk is there."""
    deed = "import partrain.launch.worker.coordinator_hooks as r; r.CoordinatorHooks.record = lambda *_: {}['ours']"
    said = partrain("run", sabotage(tmp_path, deed, "checkpoint.commit='coalesce'", call=5), "--out", tmp_path / "run", "-q")
    assert (said.code, said.errors) == (70, ["internal"]), said
    assert "Traceback" in said.err
    assert checkpoint.read(tmp_path / "run" / "checkpoint.h5").round == 1
    told = summary(tmp_path / "run")
    assert (told["status"], told["reason"], told["rounds"]) == ("failed", "internal", 1)
    assert events(tmp_path / "run", "fault")[0]["what"] == "worker 1: KeyError: 'ours'"


def test_for_programs(tmp_path: Path) -> None:
    said = partrain("run", sabotage(tmp_path, RAISES["raises"], call=5), "--out", tmp_path / "run", "--json")
    told = json.loads(said.out)
    assert (said.code, told["code"], told["status"], told["reason"]) == (71, 71, "failed", "user-code")
    assert summary(tmp_path / "run")["rounds"] == 1
    assert events(tmp_path / "run", "fault")[0]["rank"] == 1


ORPHANS = {
    "program and daemon": """import subprocess; subprocess.Popen(['sleep', '300'])
os.fork() or (os.setsid(), os.fork() and os._exit(0), time.sleep(300))""",
    "of a killed worker": "import subprocess; subprocess.Popen(['sleep', '300'], start_new_session=True); os.kill(os.getpid(), 9)",
}
"""Processes that user code starts and leaves behind. They hold the command's output open."""


@pytest.mark.slow
@pytest.mark.parametrize("name", ORPHANS)
def test_processes_that_user_code_leaves_behind_end_with_the_command(tmp_path: Path, name: str) -> None:
    """So a reader of its output, as `| cat`, comes to an end."""
    job = sabotage(tmp_path, ORPHANS[name], call=5)
    words = (sys.executable, "-m", "partrain", "run", job, "--out", tmp_path / "run", "-q")
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=110)
    assert (done.returncode, "Traceback" in done.stderr, "waitpid" in done.stderr) == (0, False, False), done.stderr
    assert (tmp_path / "done").exists()


def test_a_fork_of_a_worker_ends_with_it(tmp_path: Path) -> None:
    """User code forks in the middle of an iteration, and the fork goes on for itself."""
    deed = "os.fork() or time.sleep(1000)"
    with Command(("run", sabotage(tmp_path, deed, call=5), "--out", "run", "-q"), tmp_path) as command:
        said = command.wait()  # nothing of it is left then
    assert (said.code, said.errors) == (0, []), said
    assert (tmp_path / "done").exists()
