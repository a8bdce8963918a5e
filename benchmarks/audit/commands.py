"""`partrain evaluate` against scikit-learn, and ONNX exports in onnxruntime, on tables that scikit-learn brings."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from benchmarks.audit.case import EQUAL, Case
from benchmarks.audit.trainings import Trainings, partrain

Numbers = NDArray[np.float64]
LOSS = 3e-7
"""Bound of a mean loss near 1: three roundings of float32, in the loss of an item, in the sum of a batch, in a printed probability."""
SHARE = 1e-15
"""Bound of a mean of three ratios of counts in float64."""
UNITS = 2e-6
"""Bound of mean errors in the units of a target up to 346: float32 rounds each of the 442 answers by up to 1.5e-5, up or down."""
R2 = 1e-8
"""Bound of R2, where these roundings are shares of the deviation of 77."""
PROBABILITY = 3e-7
"""Bound of a probability that two runtimes compute in float32: each rounds it by 6e-8, and sums products in an order of its own."""
LAYERS = "0", "2"
"""The linear layers of the network below, by their names in the checkpoint; rectified linear units are between them."""

JOB = """
name = "table"
model = {{name = "mlp", hidden = [16]}}
dataset = {{kind = "csv", path = "items.csv", target = {target}}}
optimizer = {{name = "adam", lr = 0.01, batch_size = 16}}
sync = {{rule = "average", iterations = 5}}
workers = [{{count = 2}}]
stop = {{rounds = {rounds}}}
"""


@dataclass(frozen=True)
class Answers:
    """Return the output of partrain for a table: an evaluation, and the answer to each row."""

    run: Path
    inputs: Numbers
    evaluation: dict[str, Any]
    answers: list[dict[str, str]]

    def column(self, name: str) -> Numbers:
        return np.array([float(row[name]) for row in self.answers])


def cases() -> Iterator[Case]:
    sklearn = "scikit-learn"
    yield Case(
        "`evaluate`, wine: accuracy, precision, recall, F1 of each class", sklearn, "metrics on `predict`", EQUAL, by_class
    )
    yield Case("`evaluate`, wine: macro precision, recall, F1", sklearn, "metrics on `predict`", SHARE, macro)
    yield Case("`evaluate`, wine: log loss", sklearn, "`log_loss` on `predict --probabilities`", LOSS, log_loss)
    yield Case("`evaluate`, diabetes, two targets: MAE, RMSE of each and of both", sklearn, "metrics on `predict`", UNITS, errors)
    yield Case("`evaluate`, diabetes, two targets: R2 of each and of both", sklearn, "`r2_score` on `predict`", R2, r2)
    yield Case(
        "`predict --probabilities`, wine, by the rebuilt network",
        "numpy",
        "matrix products of the checkpoint's arrays, inputs by StandardScaler",
        PROBABILITY,
        by_arrays,
    )
    yield Case(
        "`export --format onnx`, wine, inputs by scikit-learn's StandardScaler",
        "onnxruntime",
        "softmax of the answers",
        PROBABILITY,
        onnx,
    )
    yield Case(
        "`export --with-preprocessing`, wine, raw numbers", "onnxruntime", "probabilities", PROBABILITY, onnx_of_raw_numbers
    )


@cache
def wine(trainings: Trainings) -> Answers:
    """Train on wines for so short a time that many answers are wrong."""
    from sklearn.datasets import load_wine

    table = load_wine()
    names = [name.replace("/", "_") for name in table.feature_names]
    return answers(
        trainings.folder / "wine", names, table.data, {"class": table.target_names[table.target]}, 1, "--probabilities"
    )


@cache
def diabetes(trainings: Trainings) -> Answers:
    """Train on two targets of unlike units."""
    from sklearn.datasets import load_diabetes

    table = load_diabetes()
    bmi = table.feature_names.index("bmi")
    names = [name for name in table.feature_names if name != "bmi"]
    targets = {"progression": table.target, "bmi": table.data[:, bmi]}
    return answers(trainings.folder / "diabetes", names, np.delete(table.data, bmi, axis=1), targets, 3)


def answers(folder: Path, names: list[str], inputs: Numbers, targets: dict[str, Any], rounds: int, *words: str) -> Answers:
    """Train on a table of these inputs and targets; evaluate its rows and predict them."""
    folder.mkdir()
    table, run, output = folder / "items.csv", folder / "run", folder / "answers.csv"
    with table.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*names, *targets])
        writer.writerows([*row, *target] for row, *target in zip(inputs, *targets.values(), strict=True))
    (folder / "job.toml").write_text(JOB.format(target=json.dumps(list(targets)), rounds=rounds))
    partrain("run", folder / "job.toml", "--out", run)
    evaluation = json.loads(partrain("evaluate", run, "--input", table, "--json"))[str(table)]
    partrain("predict", run, "--input", table, *words, "--output", output)
    with output.open(newline="") as file:
        return Answers(run, inputs, evaluation, list(csv.DictReader(file)))


def labels(wines: Answers) -> tuple[list[int], list[int]]:
    """Give the true labels and the predicted ones."""
    from sklearn.datasets import load_wine

    return load_wine().target.tolist(), [int(row["label"]) for row in wines.answers]


def by_class(trainings: Trainings) -> float:
    from sklearn import metrics

    evaluation = wine(trainings).evaluation
    truth, predicted = labels(wine(trainings))
    scores = metrics.precision_recall_fscore_support(truth, predicted)
    if evaluation["accuracy"] > 0.95:
        raise RuntimeError("nearly all answers are right: metrics of such answers compare nothing")
    return largest(
        evaluation["accuracy"] - metrics.accuracy_score(truth, predicted),
        *(
            row[name] - score[label]
            for name, score in zip(("precision", "recall", "f1", "count"), scores, strict=True)
            for label, row in enumerate(evaluation["classes"])
        ),
        evaluation["confusion"] - metrics.confusion_matrix(truth, predicted),
    )


def macro(trainings: Trainings) -> float:
    from sklearn import metrics

    scores = metrics.precision_recall_fscore_support(*labels(wine(trainings)), average="macro")
    told = wine(trainings).evaluation["macro"]
    return largest(*(told[name] - score for name, score in zip(("precision", "recall", "f1"), scores, strict=False)))


def log_loss(trainings: Trainings) -> float:
    from sklearn import metrics

    truth, _ = labels(wine(trainings))
    return largest(wine(trainings).evaluation["loss"] - metrics.log_loss(truth, probabilities(wine(trainings))))


def probabilities(wines: Answers) -> Numbers:
    """Give the probabilities (items, 3) that `predict` prints, normalised: scikit-learn asks for a sum of 1 in float64."""
    columns = np.column_stack([wines.column(f"probability_class_{label}") for label in range(3)])
    return columns / columns.sum(axis=1, keepdims=True)


def errors(trainings: Trainings) -> float:
    from sklearn import metrics

    return regression(trainings, {"mae": metrics.mean_absolute_error, "rmse": metrics.root_mean_squared_error})


def r2(trainings: Trainings) -> float:
    from sklearn import metrics

    return regression(trainings, {"r2": metrics.r2_score})


def regression(trainings: Trainings, scores: dict[str, Any]) -> float:
    """Compare scores of each target, and the mean over both that scikit-learn takes."""
    from sklearn.datasets import load_diabetes

    table, told = load_diabetes(), diabetes(trainings)
    truth = np.column_stack([table.target, table.data[:, table.feature_names.index("bmi")]])
    predicted = np.column_stack([told.column("progression"), told.column("bmi")])
    return largest(
        *(told.evaluation[name] - score(truth, predicted) for name, score in scores.items()),
        *(
            told.evaluation["numbers"][column][name] - score(truth[:, column], predicted[:, column])
            for name, score in scores.items()
            for column in range(2)
        ),
    )


def by_arrays(trainings: Trainings) -> float:
    """Compute the answers in double precision from the arrays of the checkpoint, which h5py reads."""
    from scipy.special import softmax
    from sklearn.preprocessing import StandardScaler

    wines = wine(trainings)
    with h5py.File(wines.run / "checkpoint.h5") as file:
        first, second = ([file[f"model/{at}.{kind}"][()].astype(np.float64) for kind in ("weight", "bias")] for at in LAYERS)
    hidden = np.maximum(StandardScaler().fit_transform(wines.inputs) @ first[0].T + first[1], 0)
    return largest(softmax(hidden @ second[0].T + second[1], axis=1) - probabilities(wines))


def onnx(trainings: Trainings) -> float:
    from scipy.special import softmax
    from sklearn.preprocessing import StandardScaler

    wines = wine(trainings)
    standard = StandardScaler().fit_transform(wines.inputs).astype(np.float32)
    return largest(softmax(in_onnxruntime(wines, standard), axis=1) - probabilities(wines))


def onnx_of_raw_numbers(trainings: Trainings) -> float:
    wines = wine(trainings)
    return largest(in_onnxruntime(wines, wines.inputs, "--with-preprocessing") - probabilities(wines))


def in_onnxruntime(wines: Answers, inputs: NDArray[Any], *words: str) -> Numbers:
    """Export the network; return the first output of onnxruntime."""
    import onnxruntime

    file = wines.run.parent / f"{len(words)}.onnx"
    partrain("export", wines.run, "--format", "onnx", *words, "--output", file)
    session = onnxruntime.InferenceSession(file)
    first: Numbers = session.run(None, {session.get_inputs()[0].name: inputs})[0]
    return first


def largest(*differences: Any) -> float:
    """Return the largest absolute number of numbers and arrays."""
    return max(float(np.abs(difference).max()) for difference in differences)
