"""Folds and balanced sampling: which items `forward` saw, in training and outside of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.audit.case import EQUAL, Case
from benchmarks.audit.network import Items
from benchmarks.audit.trainings import Training, Trainings

FOLDS, ITEMS = 4, 50
"""Of 50 items two folds have 13 and two 12."""
PASSES, RESUMED = 32, 16
DEVIATIONS = 5.0
"""Bound of 240 standardised counts: each is that far off with a probability of 1e-6."""
SGD = 'name = "sgd", lr = 0.5, batch_size = 10'
BALANCED: dict[str, Any] = {
    "sync": 'rule = "average", passes = 1',
    "optimizer": 'name = "sgd", lr = 0.05, batch_size = 16',
    "workers": "{count = 1}",
    "rounds": PASSES,
    "dataset": ', targets = "rare"',
    "more": f'partition = {{sampling = "balanced"}}\ncheckpoint = {{commit = "every", keep = {PASSES}}}',
}


def cases() -> Iterator[Case]:
    yield Case(
        "`fold`: each item held out once, trained on by the other runs", "", "items that `forward` saw", EQUAL, held_out_once
    )
    yield Case("`fold`: sizes", "scikit-learn", "`KFold`", EQUAL, sizes)
    what = "`fold`, `stratify`: items of each class in each fold"
    yield Case(what, "scikit-learn", "`StratifiedKFold`, to within one item", 1.0, stratified)
    yield Case("balanced sampling: draws of each class in each pass", "numpy", "a third of the items", EQUAL, classes)
    what = "balanced sampling: draws of each item, in standard deviations"
    yield Case(what, "numpy", "multinomial distribution within the class", DEVIATIONS, multinomial)
    yield Case("balanced sampling, resumed: draws that differ", "", "the uninterrupted training", EQUAL, resumed)


def folds(trainings: Trainings, more: str = "") -> list[Training]:
    """Train once for each fold."""
    job = {"sync": 'rule = "average", passes = 1', "optimizer": SGD, "rounds": 2}
    words = f', items = {ITEMS}, targets = "rare"{more}'
    return [trainings.run(**job, dataset=f'{words}, fold = "{fold}/{FOLDS}"') for fold in range(1, FOLDS + 1)]


def held_out_once(trainings: Trainings) -> float:
    """Count the items that are not held out exactly once, and those that a run both trains on and holds out, or neither."""
    runs = folds(trainings)
    times = Counter(item for run in runs for item in run.held_out)
    trained = [{item for round in run.rounds for worker in round for batch in worker for item in batch} for run in runs]
    wrong = [seen ^ (set(range(ITEMS)) - run.held_out) for seen, run in zip(trained, runs, strict=True)]
    return float(sum(times[item] != 1 for item in range(ITEMS)) + sum(map(len, wrong)))


def sizes(trainings: Trainings) -> float:
    from sklearn.model_selection import KFold

    theirs = [len(test) for _, test in KFold(FOLDS).split(np.zeros(ITEMS))]
    return float(np.abs(np.subtract([len(run.held_out) for run in folds(trainings)], theirs)).max())


def stratified(trainings: Trainings) -> float:
    from sklearn.model_selection import StratifiedKFold

    labels = Items("rare", ITEMS).targets
    ours = [np.bincount(labels[sorted(run.held_out)], minlength=3) for run in folds(trainings, ", stratify = true")]
    theirs = [np.bincount(labels[test], minlength=3) for _, test in StratifiedKFold(FOLDS).split(labels, labels)]
    return float(np.abs(np.sort(ours, axis=0) - np.sort(theirs, axis=0)).max())


def passes(training: Training) -> list[list[int]]:
    return [[item for batch in worker for item in batch] for round in training.rounds for worker in round]


def classes(trainings: Trainings) -> float:
    labels = Items("rare").targets
    counts = [np.bincount(labels[drawn], minlength=3) for drawn in passes(trainings.run(**BALANCED))]
    return float(np.abs(np.array(counts) - len(labels) / 3).max())


def multinomial(trainings: Trainings) -> float:
    labels = Items("rare").targets
    counts = np.bincount(np.concatenate(passes(trainings.run(**BALANCED))), minlength=len(labels))
    shares = 1 / np.bincount(labels)[labels]
    draws = PASSES * len(labels) / 3
    return float((np.abs(counts - draws * shares) / np.sqrt(draws * shares * (1 - shares))).max())


def resumed(trainings: Trainings) -> float:
    whole = trainings.run(**BALANCED)
    rest = passes(trainings.resumed(whole, RESUMED))
    if len(rest) != PASSES - RESUMED:
        raise RuntimeError(f"{len(rest)} passes after the resume, not {PASSES - RESUMED}")
    return float(sum(ours != theirs for ours, theirs in zip(rest, passes(whole)[RESUMED:], strict=True)))
