"""Estimators of scikit-learn, trained by many workers: fully connected networks for tables of numbers."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from partrain.errors import BadJob

try:
    import sklearn
except ImportError:
    raise BadJob("PartrainClassifier and PartrainRegressor need scikit-learn: pip install 'partrain[sklearn]'") from None

if tuple(int(part) for part in sklearn.__version__.split(".")[:2]) < (1, 6):
    raise BadJob(f"PartrainClassifier and PartrainRegressor need scikit-learn 1.6, not {sklearn.__version__}")

from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, column_or_1d, validate_data

from partrain.api import objects, session
from partrain.api.items import remarked
from partrain.api.training import is_full_batch, train_given
from partrain.inference.inputs.sample import of_array
from partrain.inference.predict import predict
from partrain.job.python_job import as_data
from partrain.tasks.kinds import CLASSIFICATION, KINDS, REGRESSION, Kind

if TYPE_CHECKING:
    from numpy.typing import NDArray

FEW = 20
"""Number of items below which none are held out for `patience`."""


@dataclass(eq=False, repr=False)
class _Estimator(BaseEstimator):  # type: ignore[misc]
    """Parameters and training, common to both.

    Args:
        hidden: Units of each hidden layer; a number is one layer.
        activation: relu, leaky_relu, elu, gelu, silu, tanh or sigmoid.
        dropout: Share of hidden units dropped in training.
        model: Another network, in a form that `partrain.train` accepts, instead of the fully connected one.
        workers: The number of workers, one process each, or their tables.
        rule: The rule that mixes the workers, or the table `[sync]`; a round is one pass over the data.
        rounds: Maximum number of rounds.
        patience: Rounds without a better accuracy of classes, or loss of numbers, on the held-out items after which training
            ends; None: train all rounds.
        validation: Share of the items held out for judging; used with `patience` only, and not below 20 items.
        optimizer: Name of the optimizer, or its table.
        lr: Learning rate.
        batch_size: Items per iteration and worker; fewer if a partition has fewer.
        weight_decay: Decay of the weights.
        standardise: Subtract each column's mean, and divide by its deviation.
        random_state: Seed: an integer, a generator of numpy, or None for a new one at each fit.
        verbose: Show the progress.
    """

    _task: ClassVar[Kind]

    hidden: int | Sequence[int] = (64, 64)
    _: KW_ONLY
    activation: str = "relu"
    dropout: float = 0.0
    model: Any = None
    workers: Any = 1
    rule: Any = "average"
    rounds: int = 100
    patience: int | None = 10
    validation: float = 0.1
    optimizer: Any = "adam"
    lr: float = 0.003
    batch_size: int = 32
    weight_decay: float = 0.0
    standardise: bool = True
    random_state: Any = None
    verbose: bool = False

    def _train(
        self, inputs: NDArray[Any], targets: NDArray[Any], weights: NDArray[Any] | None, *, stratify: bool, task: Any = None
    ) -> None:
        """Train in a temporary run folder, and keep the network. `task`: the table `[task]`."""
        items = len(inputs)
        share = as_data(self.validation)
        if not isinstance(share, int | float) or not 0 <= share < 1:
            raise BadJob(f"validation: expected a share of the items, from 0 to below 1, got {share!r}")
        held = round(share * items) if self.patience is not None and items >= FEW else 0
        dataset = {"inputs": inputs, "targets": targets, "standardise": self.standardise, "validation": held}
        dataset |= {"stratify": True} if stratify and held else {}
        dataset |= {} if weights is None else {"sample_weight": weights}
        dataset |= {"standardise_target": True} if KINDS[self._task].targets == "numbers" else {}
        objects_given = objects.given(self._model(), dataset, task)
        tables = objects_given.tables | {
            "name": type(self).__name__,
            "workers": self.workers,
            "stop": {"rounds": self.rounds} | ({"patience": self.patience, "judge_every": 1} if held else {}),
            "optimizer": self._optimizer(items - held),
            "sync": self.rule,
            "seed": int(check_random_state(self.random_state).randint(2**31 - 1)),
            "checkpoint": {"keep": 1},
        }
        with tempfile.TemporaryDirectory(prefix="partrain-") as folder:
            warn = session.warn if self.verbose else _ignore
            trained = train_given(tables, objects_given, Path(folder) / "run", show=self.verbose, warn=warn)
            self.network_ = trained.network
        self.network_.module.double()  # answers then do not depend on the number of items in a call
        self.summary_, self.history_, self.n_iter_ = trained.summary, trained.history, int(trained.summary["rounds"])

    def _model(self) -> Any:
        if self.model is not None:
            self._refuse_idle("model", "hidden", "activation", "dropout")
            return self.model
        hidden = as_data(self.hidden)
        layers = hidden if isinstance(hidden, list) else [hidden]
        return {"name": "mlp", "hidden": layers, "activation": self.activation, "dropout": self.dropout}

    def _optimizer(self, items: int) -> Any:
        if not isinstance(self.optimizer, str):
            self._refuse_idle("optimizer", "lr", "batch_size", "weight_decay")
            return self.optimizer
        decay = {"weight_decay": self.weight_decay} if self.weight_decay else {}
        if is_full_batch(self.optimizer):
            self._refuse_idle("optimizer", "batch_size")
            return {"name": self.optimizer, "lr": self.lr, **decay}
        batch = as_data(self.batch_size)
        if isinstance(batch, int):
            batch = max(1, min(batch, items // max(_count(as_data(self.workers)), 1)))
        return {"name": self.optimizer, "lr": self.lr, "batch_size": batch, **decay}

    def _refuse_idle(self, reason: str, *names: str) -> None:
        """Raise BadJob if a parameter is set that has no effect, because of another one."""
        defaults = {field.name: field.default for field in fields(self)}
        if idle := [name for name in names if as_data(getattr(self, name)) != as_data(defaults[name])]:
            raise BadJob(f"`{idle[0]}` has no effect with this `{reason}`: leave it at its default ({defaults[idle[0]]!r})")

    def _answers(self, items: Any, *, probabilities: bool = False) -> dict[str, Any]:
        check_is_fitted(self, "network_")
        inputs = validate_data(self, items, reset=False, dtype=np.float64)
        sample = remarked(of_array(self.network_, inputs, Path("X")))
        return predict(self.network_, sample, probabilities=probabilities).columns


@dataclass(eq=False, repr=False)
class PartrainClassifier(ClassifierMixin, _Estimator):  # type: ignore[misc]
    """A classifier trained by many workers, of one class or several labels for each item.

    Args:
        class_weight: "balanced", or a dict with the weight of each class, which multiplies the losses of its items.
            `predict_proba` gives probabilities without it.

    All other arguments are common to both estimators. Attributes: `classes_`, `n_features_in_`, `n_iter_` (rounds), `summary_`
    and `history_` (as in `partrain.train`), `network_`.

    Example: `PartrainClassifier(workers=2).fit(X, y).score(X_test, y_test)`
    """

    _task = CLASSIFICATION

    class_weight: Any = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on items X (n, features) and classes y (n,) or labels y (n, k) of 0 and 1, as often as their weights (n,) say."""
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True)
        check_classification_targets(y)
        X, y, weights = _weighted(X, y, sample_weight)
        if y.ndim == 2 and y.shape[1] > 1:
            self.classes_ = np.arange(y.shape[1])
            self._train(X, y.astype(np.float64), weights, stratify=False, task="multi-label")
            return self
        self.classes_, labels = np.unique(column_or_1d(y, warn=True), return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"PartrainClassifier needs more than one class: all items have the class {self.classes_[0]!r}")
        few = np.bincount(labels).min() < 2
        self._train(X, labels.astype(np.int64), weights, stratify=not few, task=self._task_table())
        return self

    def _task_table(self) -> dict[str, Any]:
        weights = self.class_weight
        if isinstance(weights, dict):
            if unknown := [name for name in weights if name not in self.classes_]:
                raise ValueError(f"class_weight: `{unknown[0]}` is no class; there are {', '.join(map(str, self.classes_))}")
            weights = [float(weights.get(name, 1.0)) for name in self.classes_.tolist()]
        return {"kind": CLASSIFICATION} | ({} if weights is None else {"class_weights": weights})

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class (n,) of each item with the largest probability times its weight, or its labels (n, k) of 0 and 1."""
        labels: NDArray[Any] = np.asarray(self._answers(X)["label"])
        return labels if labels.ndim == 2 else self.classes_[labels]

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Return the probability of each class (n, classes), in the order of `classes_`, or of each label (n, k)."""
        return np.asarray(self._answers(X, probabilities=True)["probability"])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


class PartrainRegressor(RegressorMixin, _Estimator):  # type: ignore[misc]
    """A regressor trained by many workers, of one or several targets. It learns standardized targets, and answers in their units.

    Attributes: `n_features_in_`, `n_iter_` (rounds), `summary_` and `history_` (as in `partrain.train`), `network_`.

    Example: `PartrainRegressor(workers=2).fit(X, y).predict(X_test)`
    """

    _task = REGRESSION

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on items X (n, features) and numbers y, (n,) or (n, targets), as often as their weights (n,) say."""
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        X, y, weights = _weighted(X, y, sample_weight)
        self._single = y.ndim == 1
        self._train(X, y.astype(np.float64), weights, stratify=False)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the numbers of each item, (n,) or (n, targets) as in `fit`."""
        answers: NDArray[Any] = np.asarray(self._answers(X)["answer"])
        return answers[:, 0] if self._single else answers

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.single_output, tags.target_tags.multi_output = True, True
        return tags


def _weighted(X: NDArray[Any], y: NDArray[Any], weights: Any) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]:
    """Return the items with a weight above 0, their targets and their weights."""
    if weights is None:
        return X, y, None
    weights = _check_sample_weight(weights, X, dtype=np.float64, ensure_non_negative=True)
    kept = weights > 0
    if not kept.any():
        raise ValueError("sample_weight: all weights are zero: there is nothing to train on")
    return X[kept], y[kept], weights[kept]


def _count(workers: Any) -> int:
    """Return the number of workers, without those that are not given as a number: the job refuses these."""
    groups = workers if isinstance(workers, list) else [workers]
    counts = [group.get("count", 1) if isinstance(group, dict) else getattr(group, "count", group) for group in groups]
    return sum(count for count in counts if isinstance(count, int))


def _ignore(text: str) -> None:
    """Show no warning: a grid search fits small sets many times."""
