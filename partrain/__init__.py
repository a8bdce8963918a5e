"""partrain: one network, many workers.

From Python: `partrain.train(Job(...))`, or `partrain.train("job.toml")`, returns the trained network and the history of its training.
`partrain.Task` is the base class of user tasks, `partrain.Failure` that of all our errors. Each name is imported on first use, so that
short commands do not wait for torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from partrain.version import __version__

if TYPE_CHECKING:
    from partrain.api import Job, Trained, train
    from partrain.errors import Failure
    from partrain.tasks.kinds import Task

__all__ = ["Failure", "Job", "Task", "Trained", "__version__", "train"]

_HOMES = {
    "Failure": "partrain.errors",
    "Job": "partrain.api",
    "Task": "partrain.tasks.kinds",
    "Trained": "partrain.api",
    "train": "partrain.api",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module `partrain` has no attribute `{name}`")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
