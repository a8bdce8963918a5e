"""The losses of `[task]`, against torch and formulas; halves of a batch average to the whole."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from support.runs import partrain
from torch import Tensor
from torch.nn import functional

from partrain.tasks import KINDS, BuiltinTask, Kind, make
from partrain.tasks.measures import OfNumbers

LOGITS = torch.tensor([[2.0, -1.0, 0.5], [0.1, 0.2, -0.3], [1.0, 1.0, 1.0], [-2.0, 3.0, 0.0]])
LABELS = torch.tensor([0, 2, 1, 1])
NUMBERS = torch.tensor([[0.5], [-2.0], [3.0], [0.0]])


def loss(kind: Kind, answers: Tensor, targets: Tensor, weights: list[float] | None = None, **keys: object) -> float:
    task = make(BuiltinTask(kind=kind, **keys), "classification", Path(), weights)  # type: ignore[arg-type]
    halves = [float(task.loss(answers[part], targets[part])) for part in (slice(0, 2), slice(2, 4))]
    whole = float(task.loss(answers, targets))
    assert sum(halves) / 2 == pytest.approx(whole)
    return whole


def test_weights_are_factors_and_the_loss_is_divided_by_the_items() -> None:
    weights = [1.0, 2.0, 5.0]
    plain = functional.cross_entropy(LOGITS, LABELS, reduction="none").tolist()
    expected = sum(weights[label] * one for label, one in zip(LABELS.tolist(), plain, strict=True)) / 4
    assert loss("classification", LOGITS, LABELS, weights) == pytest.approx(expected)


def test_a_network_in_double_precision_gets_weights_in_double_precision() -> None:
    weights, logits = [0.1, 0.7, 1 / 3], LOGITS.double()
    task = make(BuiltinTask(kind="classification"), "classification", Path(), weights)
    each = functional.cross_entropy(logits, LABELS, torch.tensor(weights, dtype=torch.float64), reduction="none")
    assert task.loss(logits, LABELS).equal(each.mean())


def test_smoothing_is_that_of_torch() -> None:
    smooth = float(functional.cross_entropy(LOGITS, LABELS, label_smoothing=0.1))
    assert loss("classification", LOGITS, LABELS, label_smoothing=0.1) == pytest.approx(smooth)
    task = make(BuiltinTask(kind="language", label_smoothing=0.1), "language", Path())
    assert float(task.loss(LOGITS.view(2, 2, 3), LABELS.view(2, 2))) == pytest.approx(smooth)


def test_focal_is_the_formula_of_the_paper() -> None:
    p = LOGITS.softmax(1)[torch.arange(4), LABELS]
    assert loss("classification", LOGITS, LABELS, focal=2.0) == pytest.approx(float((-((1 - p) ** 2) * p.log()).mean()))


@pytest.mark.parametrize(("keys", "expected"), [
    ({"loss": "squared"}, (0.25 + 4 + 9) / 4),
    ({"loss": "absolute"}, 5.5 / 4),
    ({"loss": "huber", "delta": 1.0}, (0.125 + 1.5 + 2.5) / 4),
    ({"loss": "quantile", "quantile": 0.9}, (0.9 * 0.5 + 0.1 * 2 + 0.9 * 3) / 4),
])  # fmt: skip
def test_losses_of_numbers(keys: dict[str, object], expected: float) -> None:
    assert loss("regression", torch.zeros(4, 1), NUMBERS, **keys) == pytest.approx(expected)


def test_poisson_answers_are_logarithms_of_counts() -> None:
    answers, counts = torch.tensor([[0.0], [1.0], [0.5], [2.0]]), torch.tensor([[1.0], [3.0], [0.0], [7.0]])
    assert loss("regression", answers, counts, loss="poisson") == pytest.approx(float((answers.exp() - counts * answers).mean()))
    task = make(BuiltinTask(kind="regression", loss="poisson"), "regression", Path())
    assert task.predicted(torch.tensor(1.0)) == pytest.approx(math.e)


def test_only_the_default_losses_are_plain() -> None:
    for keys, plain in (({}, True), ({"focal": 1.0}, False), ({"label_smoothing": 0.1}, False)):
        assert make(BuiltinTask(kind="classification", **keys), "classification", Path()).plain is plain  # type: ignore[arg-type]
    for name, plain in (("squared", True), ("absolute", False)):
        assert make(BuiltinTask(kind="regression", loss=name), "regression", Path()).plain is plain  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "smoothing", "shape"), [("classification", 0.0, (1, 3)), ("segmentation", 0.3, (1, 3, 1, 1))])
def test_probabilities_are_those_of_the_data_and_classes_those_of_the_weights(
    kind: Kind, smoothing: float, shape: tuple[int, ...]
) -> None:
    """The logits of weight * share have the least weighted loss. The shares are their probabilities, and weights choose the class."""
    shares, weights = torch.tensor([0.96, 0.03, 0.01]), [0.5, 20.0, 1.0]
    task = make(BuiltinTask(kind=kind, label_smoothing=smoothing or None), kind, Path(), weights)
    seen = (1 - smoothing) * shares + smoothing / 3
    logits = (torch.tensor(weights) * seen).log().reshape(shape).requires_grad_()
    labels = [torch.full((1, *shape[2:]), label) for label in range(3)]
    torch.stack([share * task.loss(logits, label) for share, label in zip(shares, labels, strict=True)]).sum().backward()
    assert logits.grad is not None
    assert float(logits.grad.abs().max()) < 1e-6
    assert KINDS[kind].probabilities(task, logits).flatten().tolist() == pytest.approx(seen.tolist())
    assert KINDS[kind].labels(task, logits).flatten().tolist() == [
        1 if not smoothing else int((torch.tensor(weights) * seen).argmax())
    ]
    assert KINDS[kind].probabilities(make(None, kind, Path(), [0.0, 1.0, 1.0]), logits).isfinite().all()


JOB = """
name = "skewed"
task = { class_weights = "balanced" }
model = { name = "linear" }
dataset = { kind = "npz", path = "items.npz", validation = 20 }
optimizer = { name = "sgd", lr = 0.1, batch_size = 10 }
sync = { rule = "average", passes = 1 }
workers = [{ count = 2 }]
transport = { kind = "simulated" }
stop = { rounds = 2 }
"""


def skewed(folder: Path) -> Path:
    """A job on 80 items of class 0 and 20 of class 1."""
    draw = np.random.default_rng(0)
    inputs, targets = draw.normal(size=(100, 3)).astype(np.float32), (np.arange(100) >= 80).astype(np.int64)
    np.savez(folder / "items.npz", inputs=inputs, targets=targets)
    (folder / "job.toml").write_text(JOB)
    return folder / "job.toml"


def test_balanced_weights_are_those_of_the_training_items_and_lie_in_the_checkpoint(tmp_path: Path) -> None:
    job = skewed(tmp_path)
    assert partrain("run", job, "--out", tmp_path / "run").code == 0
    told = json.loads(partrain("evaluate", tmp_path / "run", "--json").out)["validation"]
    counts = np.array([80, 20]) - [each["count"] for each in told["classes"]]
    weights = json.loads(partrain("inspect", tmp_path / "run" / "checkpoint.h5", "--json").out)["manifest"]["class_weights"]
    assert weights == pytest.approx(list(80 / (2 * counts)))
    assert told["loss"] == pytest.approx(json.loads((tmp_path / "run" / "summary.json").read_text())["loss"], rel=1e-6)


@pytest.mark.parametrize(("setting", "words"), [
    ("task={class_weights=[1.0]}", "1 weights, but the data set has 2 classes"),
    ('task={class_weights={"2"=3.0}}', "no class `2`"),
    ('task={loss="huber"}', "is for regression, forecast, autoencoder, and the task is classification"),
    ("task={focal=2.0,label_smoothing=0.1}", "keep one"),
    ('task={kind="regression",loss="quantile"}', "quantile = 0.9"),
    ("task={class_weights=[0.0,-1.0]}", "none below 0"),
])  # fmt: skip
def test_contradictions_end_before_training(tmp_path: Path, setting: str, words: str) -> None:
    done = partrain("run", skewed(tmp_path), "--out", tmp_path / "run", "--set", setting)
    assert done.code == 78, done
    assert words in done.err


OWN = """
import partrain
from torch.nn import functional


class Weighted(partrain.Task):
    accuracy = True

    def loss(self, answers, targets):
        return functional.cross_entropy(answers, targets)

    def correct(self, answers, targets):
        return (answers.argmax(1) == targets).sum()
"""


def test_an_own_task_on_labels_keeps_class_metrics_and_probabilities(tmp_path: Path) -> None:
    """Trap T3: the same loss as a built-in task gives the same report."""
    job = skewed(tmp_path)
    (tmp_path / "own.py").write_text(OWN)
    told = {}
    for name, task in (("own", "{name='own.py:Weighted'}"), ("built-in", "{}")):
        assert partrain("run", job, "--out", tmp_path / name, "--set", f"task={task}", "--set", "engine.compiled=false").code == 0
        told[name] = json.loads(partrain("evaluate", tmp_path / name, "--json", "--trust-code").out)["validation"]
    assert told["built-in"].pop("constant")["accuracy"] > 0.5  # of an own task the meaning of answers is not known
    assert told["own"] == told["built-in"]
    answers = partrain("predict", tmp_path / "own", "--trust-code", "--input", tmp_path / "items.npz", "--probabilities")
    assert answers.out.startswith("item,label,probability_0,probability_1")


def test_the_overall_rmse_is_the_mean_of_those_of_the_targets() -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    draw = np.random.default_rng(0)
    targets = draw.normal(size=(50, 2)) * [1000.0, 0.01]
    answers = targets + draw.normal(size=(50, 2)) * [5.0, 0.001]
    metric = OfNumbers()
    metric.add(torch.from_numpy(answers), torch.from_numpy(targets))
    told = metric.report(lambda count: ["large", "small"])
    assert told["rmse"] == pytest.approx(sklearn.root_mean_squared_error(targets, answers))
    assert [each["rmse"] for each in told["numbers"]] == pytest.approx(
        list(sklearn.root_mean_squared_error(targets, answers, multioutput="raw_values"))
    )
