"""Losses of the built-in tasks, computed by hand, and user tasks."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from support.runs import JOB, SIMULATED, partrain, summary, train, write_job
from torch import Tensor, nn

from partrain import checkpoint
from partrain.models import Interface
from partrain.tasks import KINDS, make
from partrain.tasks.kinds import kinds_for
from partrain.tasks.measures import measure_of
from partrain.tasks.task import Classification, Language, Reconstruction, Regression, kind_of_answers

OWN = '''
import torch
import partrain
from torch import nn


class Pair(nn.Module):
    """Two networks in one module. The first one answers."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 3)
        self.second = nn.Linear(2, 3)

    def forward(self, x):
        return self.first(x)


class Miscounts(partrain.Task):
    """A task with an invalid count of correct answers."""

    accuracy = True

    def __init__(self, count=float("nan")):
        self.count = count

    def loss(self, answers, targets):
        return nn.functional.cross_entropy(answers, targets)

    def correct(self, answers, targets):
        return self.count


class Misjudges(Miscounts):
    """A task with an invalid loss in `score`."""

    def score(self, module, inputs, targets):
        return 1.0, float("inf")


class Hinge(partrain.Task):
    """A task with only a loss."""

    def __init__(self, margin=1.0):
        self.margin = margin

    def loss(self, answers, targets):
        return nn.functional.multi_margin_loss(answers, targets, margin=self.margin)


class Counting(Hinge):
    """A task that also counts correct answers."""

    accuracy = True

    def correct(self, answers, targets):
        return float((answers.argmax(1) == targets).sum())


class Turns(partrain.Task):
    """A task of two losses: the networks learn in turn, each at every second iteration of a worker."""

    def differentiate(self, module, parameters, inputs, targets, iteration):
        network = (module.first, module.second)[iteration % 2]
        loss = nn.functional.cross_entropy(network(inputs), targets)
        mine = list(network.parameters())
        found = dict(zip(mine, torch.autograd.grad(loss, mine)))
        return loss, [found.get(parameter) for parameter in parameters]

    def loss(self, answers, targets):
        return nn.functional.cross_entropy(answers, targets)


class Uncounted(partrain.Task):
    accuracy = True

    def loss(self, answers, targets):
        return answers.square().mean()


class Uncountable(partrain.Task):
    accuracy = True

    def loss(self, answers, targets):
        return nn.functional.cross_entropy(answers, targets)

    def correct(self, answers, targets):
        return answers.argmax(1) == targets


class Nothing(partrain.Task):
    pass


def table():
    return {}
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path


def test_the_loss_of_labels() -> None:
    """Logits 0 and ln 3 are probabilities of 1/4 and 3/4."""
    answers, task = torch.tensor([[0.0, math.log(3)], [0.0, math.log(3)]]), Classification()
    assert task.loss(answers, torch.tensor([1, 0])).item() == pytest.approx((math.log(4 / 3) + math.log(4)) / 2)
    assert task.correct(answers, torch.tensor([1, 0])) == 1


def test_the_loss_of_numbers() -> None:
    assert Regression().loss(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 0.0]])).item() == 2.5
    with pytest.raises(ValueError, match=r"answers \(2,\) to targets \(2, 1\)"):
        Regression().loss(torch.zeros(2), torch.zeros(2, 1))


def test_the_loss_of_tokens() -> None:
    """Two items of two tokens, vocabulary of two: one of four answers is correct, which is half an item."""
    answers = torch.zeros(2, 2, 2)
    answers[..., 1] = math.log(3)
    targets, task = torch.tensor([[1, 0], [0, 0]]), Language()
    assert task.loss(answers, targets).item() == pytest.approx((math.log(4 / 3) + 3 * math.log(4)) / 4)
    assert task.correct(answers, targets) == 0.5
    with pytest.raises(ValueError, match=r"answers \(2, 2\) to targets"):
        task.loss(torch.zeros(2, 2), targets)


def test_the_targets_of_an_autoencoder_are_its_inputs() -> None:
    inputs = torch.tensor([[1.0, 3.0], [0.0, 0.0]])
    assert Reconstruction().score(nn.Identity(), inputs, torch.tensor([1, 0])) == (0, 0)

    class Half(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x / 2

    assert Reconstruction().score(Half(), inputs, torch.tensor([1, 0])) == (pytest.approx(1.25), 0)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "segmentation"])
def test_the_gradient_is_autograds(kind: str) -> None:
    """The gradient is that of the mean loss. Parameters without influence on it have none."""
    network = nn.ModuleDict({"used": nn.Linear(4, 4), "idle": nn.Linear(4, 4)})
    network.forward = lambda x: network["used"](x)  # type: ignore[method-assign]
    inputs, targets = torch.randn(3, 4), torch.randn(3, 4)
    if kind == "classification":
        targets = torch.tensor([0, 3, 1])
    if kind == "language":
        inputs, targets = torch.randn(3, 2, 4), torch.tensor([[0, 1], [2, 3], [3, 3]])
    task = make(None, kind, Path())
    loss, gradients = task.differentiate(network, list(network.parameters()), inputs, targets, 0)
    task.loss(network(inputs), task.targets(inputs, targets)).backward()
    assert [gradient is None for gradient in gradients] == [False, False, True, True]
    assert torch.equal(gradients[0], network["used"].weight.grad)
    assert loss.shape == ()


def test_an_autoencoder_learns_from_items_made_for_something_else(tmp_path: Path) -> None:
    run = train(
        tmp_path, SIMULATED, "task.kind='autoencoder'", "model.hidden=[]", "stop.rounds=40", "optimizer.lr=0.1", text=_narrow(JOB)
    )
    assert summary(run)["loss"] < 0.05
    assert summary(run)["metrics"] == {}


def _narrow(text: str) -> str:
    """Three features of three classes: a linear network can reconstruct them."""
    return text.replace('function = "blobs"', 'function = "blobs"\nfeatures = 3')


# User tasks


@pytest.mark.usefixtures("stranger")
def test_a_user_loss(folder: Path) -> None:
    job = write_job(folder, "task={name='own.py:Hinge', margin=2.0}", SIMULATED, "stop.rounds=30")
    assert partrain("run", job, "--out", folder / "run", "-q").code == 0
    content = summary(folder / "run")
    assert 0 < content["loss"] < 0.5
    assert content["metrics"] == {}
    said = partrain("evaluate", folder / "run")
    assert (said.code, said.errors) == (77, ["not-trusted"])
    assert "`own.py:Hinge`" in said.err
    assert partrain("evaluate", folder / "run", "--trust-code").code == 0
    without = partrain("evaluate", folder / "run", "--job", write_job(folder))
    assert (without.code, without.errors) == (78, ["bad-job"])
    assert "the job names none: set [task] name" in without.err


def test_a_user_task_counts_correct_answers(folder: Path) -> None:
    job = write_job(folder, "task={name='own.py:Counting'}", SIMULATED, "stop={rounds=200, accuracy=0.8, judge_every=5}")
    assert partrain("run", job, "--out", folder / "run", "-q").code == 0
    assert summary(folder / "run")["metrics"]["accuracy"] >= 0.8


def test_two_networks_learn_in_turn(folder: Path) -> None:
    """Three iterations in each round: the turn continues from round to round, on each worker and after a resume."""
    job = write_job(
        folder, "model={name='own.py:Pair'}", "task={name='own.py:Turns'}", "optimizer.momentum=0.0", "sync.iterations=1"
    )
    assert partrain("run", job, "--out", folder / "run", "-q").code == 0
    networks = [checkpoint.read(folder / f"run/checkpoints/round-00000{number}.h5").arrays for number in (1, 2, 3, 4)]
    moved = [
        {name for name in one if name.startswith("model/") and (one[name] != other[name]).any()}
        for one, other in pairwise(networks)
    ]
    first, second = ({f"model/{name}.weight", f"model/{name}.bias"} for name in ("first", "second"))
    assert moved == [second, first, second]
    again = partrain("resume", folder / "run/checkpoints/round-000001.h5", "--out", folder / "again", "-q", "--trust-code")
    assert again.code == 0, again
    assert (folder / "again/checkpoint.h5").read_bytes() == (folder / "run/checkpoint.h5").read_bytes()


@pytest.mark.parametrize(("sets", "code", "what"), [
    (["task={name='own.py:Miscounts'}"], 71, "[task] name: Miscounts counts nan right answers of "),
    (["task={name='own.py:Miscounts', count=1000}"], 71, "[task] name: Miscounts counts 1000 right answers of "),
    (["task={name='own.py:Misjudges'}"], 71, "[task] name: Misjudges counts inf right answers of "),
    (["task={name='__main__:Net'}"], 71, "name a class of a script by its file"),
    (["task={name='own.py:Missing'}"], 78, ": `own.py` has no `Missing`"),
    (["task={name='nowhere.py:Task'}"], 66, ": no file `nowhere.py` next to the job"),
    (["task={name='own.py:table'}"], 71, "[task] name: `own.py:table` returned dict, not a partrain.Task"),
    (["task={name='own.py:Nothing'}"], 71, "Nothing has no `loss(answers, targets)`"),
    (["task={name='own.py:Uncounted'}"], 71, "Uncounted has `accuracy = True`, but no `correct(answers, targets)`"),
    (["task={name='own.py:Uncountable'}"], 71, "`correct` gives a tensor (8,) of torch.bool; expected the number of items"),
    (["task={name='own.py:Hinge', widht=3}"], 78, "`own.py:Hinge` takes no argument `widht`"),
    (["task={name='own.py:Hinge'}", "stop.accuracy=0.9"], 71, "[stop] accuracy: the task `user` counts no right answers"),
    (["task={name='Hinge'}"], 78, 'expected "package.module:Class" or "file.py:Class"'),
    (["task={kind='clasification'}"], 78, 'did you mean "classification"?'),
])  # fmt: skip
def test_errors_of_user_tasks(folder: Path, sets: list[str], code: int, what: str) -> None:
    said = partrain("run", write_job(folder, *sets), "--out", folder / "run", "-q")
    assert said.code == code, said
    assert what in said.err
    assert "partrain: error[internal]" not in said.err


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_agrees_with_its_loss_and_its_network(name: Any) -> None:
    kind, task = KINDS[name], make(None, name, Path())
    assert kind.accuracy is task.accuracy
    assert kind_of_answers(task, "user", None) is (KINDS["regression"] if name == "forecast" else kind)
    assert measure_of(kind, 3, kind.ignored(task)) is not None
    assert Interface((2, 4, 4), 3, name).answer == kind.answer_shape((2, 4, 4), 3)
    assert all(name in kinds_for(data) for data in kind.fits)
