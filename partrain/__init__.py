"""partrain: one network, many workers.

From Python: `partrain.train(model=MODULE, dataset=(X, y), workers=2, stop={"rounds": 40})`, `partrain.train(Job(...))` or
`partrain.train("job.toml")` returns the trained network, which predicts, evaluates and resumes; `partrain.load(RUN)` reads it again.
`partrain.init(DATA, target=COLUMN)` looks at data and chooses all of that.
`partrain.PartrainClassifier` and `partrain.PartrainRegressor` are estimators of scikit-learn.
`partrain.sections` makes tables of jobs with completion: `partrain.sections.Adam(lr=0.01)`.
`partrain.Task` is the base class of user tasks, `partrain.Failure` that of all our errors; `partrain.UnlikeTraining` is the category of warnings on items. Each name is imported on first use, so that
short commands do not wait for torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from partrain.version import __version__

if TYPE_CHECKING:
    from partrain import sections
    from partrain.api import Job, Trained, init, load, train
    from partrain.api.estimators import PartrainClassifier, PartrainRegressor
    from partrain.errors import Failure, UnlikeTraining
    from partrain.tasks.task import Task
    from partrain.training.hooks import Judgement

__all__ = [
    "Failure",
    "Job",
    "Judgement",
    "PartrainClassifier",
    "PartrainRegressor",
    "Task",
    "Trained",
    "UnlikeTraining",
    "__version__",
    "init",
    "load",
    "sections",
    "train",
]

_HOMES = {
    "Failure": "partrain.errors",
    "Job": "partrain.api",
    "Judgement": "partrain.training.hooks",
    "PartrainClassifier": "partrain.api.estimators",
    "PartrainRegressor": "partrain.api.estimators",
    "Task": "partrain.tasks.task",
    "Trained": "partrain.api",
    "UnlikeTraining": "partrain.errors",
    "init": "partrain.api",
    "load": "partrain.api",
    "sections": "partrain.sections",
    "train": "partrain.api",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module `partrain` has no attribute `{name}`")
    from importlib import import_module

    return import_module("partrain.sections") if name == "sections" else getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
