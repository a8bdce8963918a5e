"""Judged equals evaluated: the newest judgement, `evaluate` of its checkpoint, and plain formulas on what `predict` answers agree."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.lazy import Lazy
from support.preload import metrics_preloaded  # noqa: F401  a fixture
from support.runs import partrain, summary, train
from torch.nn import functional

from partrain.data import Dataset
from partrain.inference.evaluate import evaluate
from partrain.inference.inputs.read import read
from partrain.inference.inputs.sample import Sample
from partrain.inference.network import TrainedNetwork, load_dataset, load_network, split_items
from partrain.inference.open import load_job, open_checkpoint
from partrain.inference.predict import predict
from partrain.tasks.known_metrics import import_torchmetrics
from partrain.tasks.task import PADDING

pytestmark = [
    pytest.mark.skipif(find_spec("torchmetrics") is None, reason="needs the extra metrics"),
    pytest.mark.usefixtures("metrics_preloaded"),
]

sklearn = Lazy("sklearn.metrics")

JOB = """
name = "judged"
seed = 5
model = { name = "mlp", hidden = [8], batch_norm = true }
optimizer = { name = "adam", lr = 0.02, batch_size = 8 }
sync = { rule = "average", iterations = 3 }
transport = { kind = "simulated" }
workers = [{ count = 1 }]
stop = { rounds = 3, judge_every = 1 }
checkpoint = { commit = "every" }
"""
NET = """
from torch import nn

class Maps(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 3, 1))
"""
QUALITY = '"f1", "precision", "recall", "specificity"'
ERRORS = '"mae", "mse", "rmse", "r2"'
NPZ = 'dataset={kind="npz", path="%s.npz", validation=23%s}'
MAPS, GRU = 'model={name="net.py:Maps"}', 'model={name="gru", hidden=6, embedding=4}'
SERIES = 'dataset={kind="series", path="series.csv", target=["a", "b"], window=5, steps=2, validation=23, test_items=17%s}'
CASES: dict[str, tuple[str, ...]] = {
    "classes": (NPZ % ("classes", ""), f'task={{metrics=[{QUALITY}, "auroc", "mcc", "cohen_kappa"]}}'),
    "classes, weights and smoothing": (
        NPZ % ("classes", ""),
        'task={class_weights="balanced", label_smoothing=0.2, metrics=["f1"]}',
    ),
    "classes, focal": (NPZ % ("classes", ""), 'task={class_weights=[1.0, 2.0, 0.5], focal=2.0, metrics=["recall"]}'),
    "labels": (NPZ % ("labels", ""), f'task={{kind="multi-label", metrics=[{QUALITY}, "exact_match", "mcc", "auroc"]}}'),
    "labels, low threshold": (
        NPZ % ("labels", ""),
        f'task={{kind="multi-label", threshold=0.2, metrics=[{QUALITY}, "exact_match", "mcc", "auroc"]}}',
    ),
    "labels, high threshold": (
        NPZ % ("labels", ""),
        f'task={{kind="multi-label", threshold=0.7, focal=1.5, metrics=[{QUALITY}, "exact_match"]}}',
    ),
    "pixels": (NPZ % ("partly", ""), MAPS, f'task={{metrics=[{QUALITY}, "mcc"]}}'),
    "pixels, a class ignored": (NPZ % ("maps", ""), MAPS, f'task={{ignore_index=2, metrics=[{QUALITY}, "mcc"]}}'),
    "pixels, weights": (NPZ % ("partly", ""), MAPS, 'task={class_weights=[1.0, 2.0, 3.0], label_smoothing=0.1}'),
    "numbers": (NPZ % ("numbers", ", standardise_target=false"), f'task={{metrics=[{ERRORS}, "explained_variance", "mape"]}}'),
    "numbers, standardised": (
        NPZ % ("numbers", ", standardise_target=true"),
        f"task={{loss=\"absolute\", metrics=[{ERRORS}, \"explained_variance\", \"mape\"]}}",
    ),
    "numbers, huber": (NPZ % ("numbers", ", standardise_target=true"), f'task={{loss="huber", delta=0.5, metrics=[{ERRORS}]}}'),
    "numbers, quantile": (NPZ % ("numbers", ", standardise_target=false"), f'task={{loss="quantile", quantile=0.8, metrics=[{ERRORS}]}}'),
    "numbers, poisson": (NPZ % ("counts", ", standardise_target=false"), f'task={{loss="poisson", metrics=[{ERRORS}]}}'),
    "series": (SERIES % "", f"task={{metrics=[{ERRORS}]}}"),
    "series, differences": (SERIES % ", difference=[1, 4]", f'task={{metrics=[{ERRORS}, "explained_variance"]}}'),
    "series, differences, as numbers": (
        SERIES % ", difference=2, season=4",
        f'task={{kind="regression", loss="huber", metrics=[{ERRORS}]}}',
    ),
    "text": (NPZ % ("text", ", tokens=true"), GRU, 'task={metrics=["perplexity"]}'),
    "text, smoothing": (NPZ % ("text", ", tokens=true"), GRU, 'task={label_smoothing=0.3, metrics=["perplexity"]}'),
    "text, unequal lengths": (
        NPZ % ("unequal", ', tokens=true, offsets="offsets"'),
        GRU,
        'task={label_smoothing=0.3, metrics=["perplexity"]}',
    ),
    "copies": (NPZ % ("classes", ""), 'model={name="autoencoder", hidden=[4], code=2}', 'task={loss="absolute"}'),
}  # fmt: skip
"""Settings by kind of task."""
MODES: dict[str, tuple[str, ...]] = {
    "one": (),
    "three": ("workers=[{count=3}]", 'engine.precision="bfloat16"'),
    "ema-three": ("sync.ema=0.8", "workers=[{count=3}]"),
    "swa-one": ("sync.swa=0.4", 'engine.precision="bfloat16"'),
    "recalibrated-three": ('sync.buffers="recalibrate"', "workers=[{count=3}]", "engine.compiled=false"),
    "ema-one": ("sync.ema=0.8", "engine.compiled=false"),
    "swa-three": ("sync.swa=0.4", "workers=[{count=3}]"),
    "recalibrated-one": ('sync.buffers="recalibrate"',),
}
"""Settings of the judged network, of the precision in which it trains, and of the number of workers that judge it."""
OTHER = {
    "one": "recalibrated-three",
    "three": "recalibrated-one",
    "ema-three": "swa-one",
    "swa-one": "three",
    "recalibrated-three": "one",
    "ema-one": "swa-three",
    "swa-three": "one",
    "recalibrated-one": "ema-three",
}
"""By the mode in the gate: another network, judged by the other number of workers."""
MORE = {("copies", "ema-three"), ("copies", "swa-one")}
"""The only case of its kind gets each network."""


def marks(case: str, mode: str) -> tuple[pytest.MarkDecorator, ...]:
    gate = list(MODES)[list(CASES).index(case) % len(MODES)]
    if mode == gate:
        return ()
    return (pytest.mark.slow,) if mode == OTHER[gate] or (case, mode) in MORE else (pytest.mark.slow, pytest.mark.soak)


COVER = [pytest.param(case, mode, id=f"{case}-{mode}", marks=marks(case, mode)) for case in CASES for mode in MODES]
"""All pairs, most of them in the soak only.

The gate runs each case in one mode, and each mode in two cases or more. `make test-slow` adds each case with the other number of
workers, so that each kind of task is judged with each network.
"""


def write_data(folder: Path) -> None:
    """Write the files of all cases: 90 items to train on or hold out and 17 to test on, too hard for three rounds."""
    draw, (many, tests) = np.random.default_rng(1), (90, 17)
    (folder / "net.py").write_text(NET)
    inputs = draw.normal(size=(many + tests, 3)).astype(np.float32)
    noise = draw.normal(size=inputs.shape)
    images = draw.normal(size=(many + tests, 1, 4, 4)).astype(np.float32)
    maps = np.digitize(images[:, 0] + 0.5 * draw.normal(size=(many + tests, 4, 4)), [-0.5, 0.5]).astype(np.uint8)
    partly = np.where(draw.random(maps.shape) < 0.1, 255, maps).astype(np.uint8)
    text = draw.integers(5, size=(many + tests, 9))
    found = {
        "classes": (inputs, (inputs + noise).argmax(1)),
        "labels": (inputs, (inputs + noise > [0, 0.8, -0.8]).astype(np.int64)),
        "maps": (images, maps),
        "partly": (images, partly),
        "numbers": (inputs, (100 + 20 * (inputs + noise)[:, :2] * [1, 50]).astype(np.float32)),
        "counts": (inputs, draw.poisson(np.exp(inputs[:, :1])).astype(np.float32)),
        "text": (text[:, :-1], text[:, 1:]),
    }
    for name, (x, y) in found.items():
        np.savez(folder / f"{name}.npz", inputs=x[:many], targets=y[:many], test_inputs=x[many:], test_targets=y[many:])
    arrays: dict[str, Any] = {}
    for prefix, count in ("", many), ("test_", tests):
        lengths = draw.integers(1, 9, size=count)
        words = [draw.integers(5, size=length + 1) for length in lengths]
        arrays[f"{prefix}offsets"] = np.cumsum([0, *lengths])
        arrays[f"{prefix}inputs"] = np.concatenate([word[:-1] for word in words])
        arrays[f"{prefix}targets"] = np.concatenate([word[1:] for word in words])
    np.savez(folder / "unequal.npz", **arrays)
    steps = 3 + draw.normal(size=(150, 2))
    rows = np.cumsum(steps, 0) * [1, 10]
    np.savetxt(folder / "series.csv", rows, delimiter=",", header="a,b", comments="", fmt="%.6f")


@pytest.mark.parametrize(("case", "mode"), COVER)
def test_judged_equals_evaluated_equals_computed_from_predictions(tmp_path: Path, case: str, mode: str) -> None:
    write_data(tmp_path)
    run = train(tmp_path, *CASES[case], *MODES[mode], text=JOB)
    told = summary(run)
    path, content = open_checkpoint(run)
    network = load_network(load_job(content, path, trusted=True), content)
    evaluated = evaluate(network, content)
    data = load_dataset(network.loaded, content)
    best = told["best"]
    assert (told["rounds"], told["tested_round"]) == (3, content.round)
    assert content.round == best["round"]
    for name, numbers in told.get("trivial", {}).items():
        assert numbers == pytest.approx({key: evaluated["test"][name][key] for key in numbers}, rel=1e-6), name
    rounding = 2e-7 if "poisson" in case else 0.0  # its terms are of order 1, and cancel
    for split, judged in (("validation", {"loss": best["loss"], **best["metrics"]}), ("test", told["test"])):
        judged = {name: value for name, value in judged.items() if isinstance(value, float)}
        same = {name: evaluated[split][name] for name in judged}
        assert judged == pytest.approx(same, rel=1e-6, abs=rounding), split
        counted = {name: value for name, value in judged.items() if name not in ("loss", "perplexity", "auroc", "mape")}
        assert counted == pytest.approx(
            {name: same[name] for name in counted}, rel=1e-6 if network.kind.name in NUMBERS else 1e-9
        )
        wanted = expected(network, data, split, tmp_path)
        assert not judged.keys() - wanted.keys() - {"accuracy", "loss"}, "each metric is computed"
        flat = evaluated[split] | {f"macro {name}": value for name, value in evaluated[split].get("macro", {}).items()}
        flat |= {"error": evaluated[split]["error"]["mean"]} if "error" in evaluated[split] else {}
        compared = {name: value for name, value in wanted.items() if name in flat}
        assert compared, "evaluate reports it"
        assert {name: flat[name] for name in compared} == pytest.approx(compared, rel=2e-5, abs=1e-7), split


NUMBERS = ("regression", "forecast")


def expected(network: TrainedNetwork, data: Dataset, split: str, folder: Path) -> dict[str, float]:
    """Compute all numbers of a split from what `predict` answers and what the files hold."""
    if network.kind.name == "language":
        return of_tokens(network, data, split)
    if data.codec.get("form") == "series":
        sample = read(network, folder / "series.csv", labeled=True)
        values = np.loadtxt(folder / "series.csv", delimiter=",", skiprows=1)
        index = np.arange(len(sample.inputs))[-17:] if split == "test" else split_items(network.loaded, data)[1]
        first = len(values) - len(sample.inputs) - 1
        return of_numbers(
            np.stack([values[first + at : first + at + 2].ravel() for at in index]), answered(network, sample)[index]
        )
    file = np.load(folder / str(vars(network.loaded.job.dataset)["path"]))
    index = np.arange(17) if split == "test" else split_items(network.loaded, data)[1]
    prefix = "test_" if split == "test" else ""
    inputs, targets = (file[f"{prefix}{name}"][index] for name in ("inputs", "targets"))
    np.savez(folder / "new.npz", inputs=inputs)
    sample = read(network, folder / "new.npz")
    if network.kind.name in NUMBERS:
        return of_numbers(targets, answered(network, sample))
    if network.kind.name == "autoencoder":
        return {"error": float(np.mean(predict(network, sample).columns["error"]))}
    columns = predict(network, sample, probabilities=True).columns
    labels, probabilities = np.asarray(columns["label"]), np.asarray(columns["probability"])
    if network.kind.name == "multi-label":
        return of_labels(targets, labels, probabilities)
    if network.kind.name == "segmentation":
        ignored = vars(network.task).get("ignore", 255)
        known = targets != ignored
        return of_classes(targets[known], labels[known], ignored)
    found = of_classes(targets, labels, None)
    task: Any = network.task
    weights = task.weights.double() if task.weights is not None else torch.ones(3, dtype=torch.float64)
    sure = torch.from_numpy(probabilities).double() * weights  # the loss is that of the weighted classes
    sure /= sure.sum(1, keepdim=True)
    logs = sure.log()
    losses = functional.cross_entropy(
        logs, torch.from_numpy(targets), weights, reduction="none", label_smoothing=task.smoothing
    ) * (1 - sure[range(len(targets)), targets]) ** task.focal  # fmt: skip
    return found | {
        "loss": float(losses.mean()),
        "accuracy": float((labels == targets).mean()),
        "auroc": sklearn.roc_auc_score(targets, probabilities, multi_class="ovr"),
    }


def answered(network: TrainedNetwork, sample: Sample) -> Any:
    return np.asarray(predict(network, sample).columns["answer"])


def of_classes(targets: Any, labels: Any, ignored: int | None) -> dict[str, float]:
    classes = [label for label in range(3) if label != ignored]
    precision, recall, f1, _ = sklearn.precision_recall_fscore_support(
        targets, labels, labels=classes, average="macro", zero_division=0
    )
    negatives = [(targets != label).sum() for label in classes]
    right = [((targets != label) & (labels != label)).sum() for label in classes]
    means = {"precision": precision, "recall": recall, "f1": f1}
    return means | {f"macro {name}": value for name, value in means.items()} | {
        "specificity": float(np.mean(np.divide(right, negatives))),
        "mcc": sklearn.matthews_corrcoef(targets, labels),
        "cohen_kappa": sklearn.cohen_kappa_score(targets, labels),
        "mean_iou": sklearn.jaccard_score(targets, labels, labels=classes, average="macro"),
        "pixel_accuracy": float((targets == labels).mean()),
    }  # fmt: skip


def correlation_of(targets: Any, labels: Any) -> float:
    """If all answers are equal, the correlation is undefined: scikit-learn gives 0, torchmetrics another number."""
    if labels.std():
        return float(sklearn.matthews_corrcoef(targets.ravel(), labels.ravel()))
    measure = import_torchmetrics().functional.classification.multilabel_matthews_corrcoef
    return float(measure(torch.as_tensor(labels).long(), torch.as_tensor(targets).long(), num_labels=targets.shape[1]))


def of_labels(targets: Any, labels: Any, probabilities: Any) -> dict[str, float]:
    precision, recall, f1, _ = sklearn.precision_recall_fscore_support(targets, labels, average="macro", zero_division=0)
    means = {"precision": precision, "recall": recall, "f1": f1}
    return means | {f"macro {name}": value for name, value in means.items()} | {
        "specificity": float(np.mean([((t == 0) & (x == 0)).sum() / (t == 0).sum() for t, x in zip(targets.T, labels.T, strict=True)])),
        "exact_match": float((targets == labels).all(1).mean()),
        "accuracy": float((targets == labels).mean()),
        "mcc": correlation_of(targets, labels),
        "auroc": sklearn.roc_auc_score(targets, probabilities),
    }  # fmt: skip


def of_numbers(targets: Any, answers: Any) -> dict[str, float]:
    targets, answers = targets.astype(np.float64), answers.astype(np.float64)
    return {
        "mae": sklearn.mean_absolute_error(targets, answers),
        "mse": sklearn.mean_squared_error(targets, answers),
        "rmse": sklearn.root_mean_squared_error(targets, answers),
        "r2": sklearn.r2_score(targets, answers),
        "explained_variance": sklearn.explained_variance_score(targets, answers),
        "mape": sklearn.mean_absolute_percentage_error(targets, answers),
    }


def of_tokens(network: TrainedNetwork, data: Dataset, split: str) -> dict[str, float]:
    """`predict` does not answer texts item by item: ask the network itself."""
    items = network.items_of(data, "test" if split == "test" else "validation")
    assert items
    with torch.no_grad():
        logs = network.module(network.batch(items.inputs)).double().log_softmax(-1)
    known = items.targets != PADDING
    picked = logs.gather(2, items.targets.clamp(min=0)[..., None]).squeeze(2)
    loss = -float(picked[known].mean())
    return {"perplexity": float(np.exp(loss)), "bits_per_token": loss / float(np.log(2)), "tokens": int(known.sum())}


def test_a_goal_and_patience_by_a_metric_use_the_evaluated_number(tmp_path: Path) -> None:
    """At a threshold of 0.2 the F1 of round 1 is above the goal; at 0.5 it is far below in each round."""
    write_data(tmp_path)
    case = NPZ % ("labels", ""), 'task={kind="multi-label", threshold=0.2, metrics=["f1"]}', "optimizer.lr=0.001"
    stop = 'stop={rounds=3, judge_every=1, patience_by="f1", at_least={f1=0.5}}'
    run = train(tmp_path, *case, stop, text=JOB)
    told = summary(run)
    evaluated = json.loads(partrain("evaluate", run, "--json").out)["validation"]
    assert told["rounds"] == 1
    assert told["metrics"]["f1"] == told["best"]["metrics"]["f1"] == evaluated["f1"] == evaluated["macro"]["f1"] >= 0.5
