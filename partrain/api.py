"""Training from Python: in a script or a notebook, with the same workers, run folder and checkpoints as on the command line."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import current_process
from pathlib import Path
from typing import Any

import torch

from partrain import checkpoint
from partrain.config.overrides import as_toml
from partrain.display.display import make_display
from partrain.display.notebook import NotebookDisplay, runs_in_kernel, summary_html, summary_text
from partrain.display.run_state import RunState
from partrain.errors import INTERRUPTED, TERMINATED, Failure, UserCodeFailed
from partrain.hooks.select import find_hooks
from partrain.inference import network
from partrain.job import schema
from partrain.job.load import LoadedJob, load, parse
from partrain.job.python_job import PythonJob as Job
from partrain.launch import forkserver
from partrain.launch.context import RunContext
from partrain.launch.hook_process import HookProcess
from partrain.launch.run import run
from partrain.launch.run_folder import new_folder

_alone = threading.Lock()
"""Threads of a script train one after the other: the forkserver and the environment are the process's."""


@dataclass(frozen=True, repr=False)
class Trained:
    """The result of a training."""

    module: torch.nn.Module
    """The trained network, in evaluation mode, on the CPU."""
    history: dict[str, list[float]]
    """Columns with one number for each round: round, item_iterations, loss, lr, judged_loss, accuracy; NaN where not judged."""
    summary: dict[str, Any]
    """The content of `summary.json`: status, rounds, loss, metrics, test, seconds, item_iterations, workers."""
    folder: Path
    """The run folder."""
    checkpoint: Path
    """The newest checkpoint."""

    @property
    def reached(self) -> bool:
        """True if the run met a target of `[stop]`."""
        return bool(self.summary["status"] == "reached")

    def __repr__(self) -> str:
        return f"Trained({summary_text(self.summary, self.folder)})"

    def _repr_html_(self) -> str:
        """Return a small table, which a notebook shows."""
        return summary_html(self.summary, self.folder)


def train(
    job: schema.Job | dict[str, Any] | str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    show: bool = False,
    log: Sequence[str] = (),
) -> Trained:
    """Train the network of a job. Threads that call it train one after the other.

    Args:
        job: A `Job` or its tables, whose relative paths start from the current folder; or a job file.
        out: The run folder; default: `runs/<name>/<time>`.
        show: Show the live table: on a terminal, or as HTML in a notebook. Elsewhere show plain lines.
        log: Tools that follow the run, as with `--log`: `tensorboard`, `mlflow`, `wandb` or another installed hook.

    Raises:
        ValueError: A hook is unknown, or the package that it needs is missing.
        Failure: Any failure that the command line reports in one line: a bad job, missing input, lost workers, failing user code...
        KeyboardInterrupt: Ctrl-C. The current round was finished and a checkpoint committed; the message names the command to resume.
    """
    if current_process().name.startswith("partrain "):  # a worker or the data set's process imports the script for a user class
        raise UserCodeFailed(
            "a process of the run imported a script that calls `partrain.train`: put the call under `if __name__ == '__main__':`"
        )
    with _alone:
        return _train(Job(**job) if isinstance(job, dict) else job, Path(out) if out else None, show, log)


def _train(job: schema.Job | str | os.PathLike[str], out: Path | None, show: bool, log: Sequence[str]) -> Trained:
    started, before = time.time(), dict(os.environ)
    loaded = parse(as_toml(schema.given_in(job)), Path.cwd(), "<Job>", here=True) if isinstance(job, schema.Job) else load(job)
    display = NotebookDisplay(RunState()) if show and runs_in_kernel() else make_display(sys.stdout, quiet=not show)
    hooks = HookProcess(find_hooks(log))
    try:
        folder, made = new_folder(out, loaded.job.name)
        stage = RunContext(folder, display, _warn, started, note=_warn, hooks=hooks, made=made)
        for problem in loaded.warnings:
            _warn(problem.render())
        outcome = run(loaded, stage)
    finally:
        os.environ.clear()
        os.environ.update(before)  # the forkserver's thread settings are not for the caller
        forkserver.stop()
    if outcome.failure:
        raise outcome.failure
    if outcome.checkpoint is None:
        raise KeyboardInterrupt("stopped before the first round")
    if outcome.code in (INTERRUPTED, TERMINATED):
        raise KeyboardInterrupt(f"stopped; to continue: partrain resume {outcome.folder}")
    return _trained(loaded, outcome.summary, outcome.folder, outcome.checkpoint)


def _trained(loaded: LoadedJob, summary: dict[str, Any], folder: Path, path: Path) -> Trained:
    content = checkpoint.read(path)
    history = {
        name.removeprefix("history/"): array.tolist() for name, array in content.arrays.items() if name.startswith("history/")
    }
    with _as_trained(content):
        module = network.build_network(loaded, content)
    return Trained(module, history, summary, folder, path)


@contextmanager
def _as_trained(content: checkpoint.Content) -> Iterator[None]:
    """Build networks on the CPU and in the trained dtype, whatever the caller has set; leave the caller's random state as it was."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(next(one.dtype for one in network.network_tensors(content).values() if one.is_floating_point()))
    try:
        with torch.device("cpu"), torch.inference_mode(False), torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_default_dtype(before)


def _warn(text: str) -> None:
    print(f"partrain: {text}" if not text.startswith("partrain:") else text, file=sys.stderr)


__all__ = ["Failure", "Job", "Trained", "train"]
