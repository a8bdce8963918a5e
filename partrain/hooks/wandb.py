"""The hook `wandb`: a run of Weights & Biases in `RUN/wandb`, offline by default (`WANDB_MODE`); `wandb sync` uploads it."""

from __future__ import annotations

import os
from collections.abc import Mapping

os.environ.setdefault("WANDB_MODE", "offline")
os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # reports of its own errors to its makers

import wandb

from partrain.hooks import FollowedRun
from partrain.hooks.scalars import ScalarHook, flat, tags
from partrain.record.events import EndEvent, StartEvent
from partrain.record.run_state import COMPLETED, RunState


class WandbHook(ScalarHook):
    """Logs to one run of Weights & Biases. A resumed run continues it under the same id; offline, in a separate folder."""

    def __init__(self, run: FollowedRun) -> None:
        super().__init__()
        self._code = 1
        self.replay = not any((run.folder / "wandb").glob("*run-*"))
        """Nothing was logged in earlier sessions: log their rows now."""
        settings = wandb.Settings(console="off", silent=True, save_code=False, disable_code=True, disable_git=True)
        settings.x_disable_stats = True  # of this process, not of the workers
        settings.x_save_requirements = False
        self._run = wandb.init(
            id=run.id,
            resume="allow",
            dir=os.environ.get("WANDB_DIR") or run.folder,
            project=os.environ.get("WANDB_PROJECT") or str(run.job.get("name", "partrain")),
            name=os.environ.get("WANDB_NAME") or run.folder.name,
            config={**flat(run.job)},
            settings=settings,
        )
        self._run.define_metric("*", step_metric="item_iterations")

    def start(self, event: StartEvent, state: RunState) -> None:
        """Log the tags."""
        texts = tags(event)
        self._run.config.update(texts, allow_val_change=True)
        self._run.tags = (texts["rule"], texts["workers"])
        self._run.summary["status"] = "running"

    def write(self, t: float, step: int, values: Mapping[str, float]) -> None:
        """Log a row."""
        self._run.log({**values, "item_iterations": step, "_timestamp": t}, step=step)

    def end(self, event: EndEvent, state: RunState) -> None:
        """Log status and reason."""
        self._code = 0 if event.status in COMPLETED else 1
        self._run.summary.update({"status": event.status, "reason": event.reason})

    def close(self) -> None:
        """Finish the run."""
        self._run.finish(self._code)
