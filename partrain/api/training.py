"""Training of a job, or of Python objects, in processes of this one."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from multiprocessing import current_process
from pathlib import Path
from typing import Any

from partrain.api import objects, session
from partrain.api.trained import Trained, trained
from partrain.checkpoint.runs import checkpoint_of
from partrain.config.overrides import as_toml
from partrain.config.problems import IN_PYTHON, did_you_mean
from partrain.config.python_objects import PYTHON, PythonObjects
from partrain.config.section import Section
from partrain.data.folds import held_out_count
from partrain.errors import BadJob, UserCodeFailed
from partrain.job import schema
from partrain.job.load import LoadedJob, load, parse
from partrain.job.python_job import PythonJob, as_data
from partrain.launch.folder.outcome import Outcome
from partrain.launch.folder.run_folder import new_folder
from partrain.launch.hook_process import HookProcess
from partrain.launch.run import run
from partrain.optim import OPTIMIZERS
from partrain.system.environment import boot_seconds

Table = Mapping[str, Any] | Section
"""A table of a job: a dict, or a section such as `partrain.rules.average.Average(iterations=10)`."""

BATCH_SIZE = 32
"""Default items per iteration and worker if `train` is given objects; fewer if a partition has fewer."""
_OPTIMIZER = {"name": "adam", "lr": 0.001}
ITERATIONS = 10
"""Iterations of a round, if passes cannot count it."""
ELSEWHERE = {
    "epochs": 'stop={"rounds": 20}, of one pass each by default',
    "lr": 'optimizer={"name": "adam", "lr": 0.001}',
    "batch_size": 'optimizer={"name": "adam", "batch_size": 32}',
    "validation_split": 'dataset={"inputs": X, "targets": y, "validation": 100}',
    "callbacks": "hooks=FUNCTION",
    "n_jobs": "workers=2",
}
"""Arguments of other libraries, and their equivalents here."""
AUTO = "auto"
"""Name of the network that `partrain.init` chooses."""
ROUNDS = 20
"""Rounds of a training without `stop`: passes over the data, with the default `sync`."""


def train(
    job: schema.Job | dict[str, Any] | str | os.PathLike[str] | None = None,
    *,
    model: Any = None,
    dataset: Any = None,
    workers: int | Table | Sequence[Table] = 1,
    stop: Table | None = None,
    optimizer: str | Table | None = None,
    sync: str | Table | None = None,
    task: Any = None,
    partition: Table | None = None,
    transport: Table | None = None,
    engine: Table | None = None,
    checkpoint: Table | None = None,
    faults: Table | None = None,
    hooks: Any = None,
    seed: int = 0,
    name: str = "python",
    out: str | os.PathLike[str] | None = None,
    show: bool = False,
    log: Sequence[str] = (),
    **unknown: Any,
) -> Trained:
    """Train a network with many workers. Threads that call it train one after another.

    Give a job, or `model` and `dataset`; the other arguments are the tables of a job, as dicts or sections, and have defaults.

    Args:
        job: A `Job` or its tables, whose relative paths start from the current folder; or a job file.
        model: An `nn.Module` (it stays as it is; the result holds a trained copy), its class or a function that makes it, the name of
            a network as "mlp" ("auto": network, optimizer and all else that is not given suit the data, see `partrain.init`), or its table, as `{"name": "mlp", "hidden": [64]}` or `{"name": MODULE, "freeze": ["conv1.*"]}`.
        dataset: `(X, y)` or `(X, y, X_test, y_test)` of arrays, tensors or DataFrames; a torch Dataset; an object with a method `stream`, which is not read into
            memory; a dict of `inputs` and `targets`, or of `data` and `target` (a DataFrame, and its column), with further keys of [dataset] such as `validation`;
            the name of a data set as "mnist"; or its table.
        workers: The number of workers, one process each, or their tables, as `[{"device": "cuda:0"}, {"device": "cpu", "count": 2}]`.
        stop: Conditions to stop, whichever comes first; default: `{"rounds": 20}`.
        optimizer: A name or a table; default: `{"name": "adam", "lr": 0.001, "batch_size": 32}`. Without `lr` it is torch's default.
        sync: The rule that mixes the workers, and the length of a round; default: `{"rule": "average", "passes": 1}`.
        task: A name as "regression", a `partrain.Task` or its class; default: as the targets imply. Whole numbers and words are classes.
        partition: The division of the items among the workers.
        transport: The way the workers communicate.
        engine: Number type of the network, and the exactness of sums across machines.
        checkpoint: How often to commit a checkpoint.
        faults: Reactions to a lost worker, or to a number that is not finite.
        hooks: A function to call after each judgement, see `help(partrain.Judgement)`; or the table `[hooks]`.
        seed: Seed of all random draws: the same objects and seed give the same bits.
        name: Name of the run.
        out: The run folder; default: `runs/<name>/<time>`.
        show: Show the live table: on a terminal, or as HTML in a notebook. Elsewhere show plain lines.
        log: Tools that follow the run, as with `--log`: `tensorboard`, `mlflow`, `wandb` or another installed hook.

    Raises:
        ValueError: A hook is unknown, or the package that it needs is missing.
        Failure: Any failure that the command line reports in one line: a bad job, missing input, lost workers, failing user code...
        KeyboardInterrupt: Ctrl-C. The current round was finished and a checkpoint committed; the message names the command to resume.

    Example:
        net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
        trained = partrain.train(model=net, dataset=(X, y), workers=2, stop={"rounds": 40})
        trained.predict(X_new)
    """
    if unknown:
        name, names = next(iter(unknown)), [name for name in inspect.signature(train).parameters if name != "unknown"]
        near = did_you_mean(name, names)
        hint = ELSEWHERE.get(name) or (f"did you mean {near}?" if near else f"there are {', '.join(names)}")
        raise BadJob(f"train: no argument is called `{name}`: {hint}")
    if current_process().name.startswith("partrain "):  # a worker or the data set's process imports the script for a user class
        raise UserCodeFailed(
            "a process of the run imported a script that calls `partrain.train`: put the call under `if __name__ == '__main__':`"
        )
    if isinstance(model, str) and model == AUTO and dataset is not None:
        from partrain.api.from_data import init

        chosen = init(dataset)
        model, dataset, task = chosen["model"], chosen["dataset"], task or chosen.get("task")
        optimizer, sync, stop = optimizer or chosen["optimizer"], sync or chosen["sync"], stop or chosen["stop"]
    tables = {"stop": stop, "optimizer": optimizer, "sync": sync, "partition": partition, "transport": transport, "engine": engine,
              "checkpoint": checkpoint, "faults": faults}  # fmt: skip
    tables = {key: value for key, value in tables.items() if value is not None}
    if job is not None:
        more = {**tables, "model": model, "dataset": dataset, "task": task, "hooks": hooks}
        if others := [name for name, value in more.items() if value is not None]:
            raise BadJob(f"train: a whole job and `{others[0]}` were given: write it into the job")
        given_objects = objects.Given({}, PythonObjects(), None)
    else:
        if lacking := [key for key, value in (("model", model), ("dataset", dataset)) if value is None]:
            raise BadJob(f"train: `{lacking[0]}` is missing: give a job, or model=... and dataset=...")
        given_objects = objects.given(model, dataset, task, hooks)
        tables |= given_objects.tables | {"name": name, "seed": seed, "workers": workers}
    return train_given(tables if job is None else job, given_objects, out, show=show, log=log)


def train_given(
    job: schema.Job | dict[str, Any] | str | os.PathLike[str],
    given_objects: objects.Given,
    out: str | os.PathLike[str] | None,
    *,
    show: bool,
    log: Sequence[str] = (),
    warn: session.Warn = session.warn,
) -> Trained:
    """Train a job, or the tables given to `train` with their objects. `warn` shows warnings."""
    with session.alone(given_objects.objects):
        if isinstance(job, dict):
            job = _with_defaults(job, given_objects.items) if given_objects.tables else PythonJob(**job)
        started, loaded = boot_seconds(), _parse(job) if isinstance(job, schema.Job) else load(job)

        def work(hooks: HookProcess) -> Outcome:
            folder, made = new_folder(Path(out) if out else None, loaded.job.name)
            for problem in loaded.warnings:
                warn(problem.render())
            return run(loaded, session.context(folder, started, show=show, hooks=hooks, made=made, warn=warn))

        outcome, path = session.perform(work, log, given_objects.objects)
        best = checkpoint_of(outcome.folder)
        return trained(loaded, outcome.summary, outcome.folder, best, given_objects.objects, newest=path)


def _parse(job: schema.Job) -> LoadedJob:
    return parse(as_toml(schema.given_in(job)), Path.cwd(), IN_PYTHON, local=True)


def _with_defaults(tables: dict[str, Any], items: int | None) -> PythonJob:
    """Make a job of the tables given to `train`."""
    tables = as_data(tables)
    workers = tables["workers"]
    groups = workers if isinstance(workers, list) else [workers if isinstance(workers, dict | Section) else {"count": workers}]
    whole = {"stop": {"rounds": ROUNDS}, **tables, "workers": groups}
    for key, naming in ("sync", "rule"), ("optimizer", "name"):
        if isinstance(whole.get(key), str):
            whole[key] = {naming: whole[key]}
    if isinstance(whole.get("optimizer"), dict):
        whole["optimizer"] = _with_rate(whole["optimizer"])
    sync = whole["sync"] = whole.get("sync", {"rule": "average"})
    sync = schema.given_in(sync) if isinstance(sync, Section) else sync
    if isinstance(sync, dict) and not {"iterations", "passes"} & sync.keys():
        counted = {"iterations": ITERATIONS} if _has_no_length(tables["dataset"], items) else {"passes": 1}
        sync = whole["sync"] = {**sync, **counted}
        if PythonJob(**{**whole, "sync": sync}).sync.syncs_every_iteration:
            whole["sync"] = {key: value for key, value in sync.items() if key != "passes"} | {"iterations": ITERATIONS}
    optimizer = whole.get("optimizer", _OPTIMIZER)
    if "optimizer" in whole or not PythonJob(**whole).sync.full_batch:
        whole["optimizer"] = optimizer
        sized = isinstance(optimizer, dict) and {"batch_size", "full_batch"} & optimizer.keys()
        if isinstance(optimizer, dict) and not sized and not is_full_batch(str(optimizer.get("name"))):
            smallest = _smallest_partition(PythonJob(**whole), items) if items else BATCH_SIZE
            whole["optimizer"] = {**optimizer, "batch_size": max(1, min(BATCH_SIZE, smallest))}
    return PythonJob(**whole)


def _with_rate(optimizer: dict[str, Any]) -> dict[str, Any]:
    """Give an optimizer torch's default learning rate, if it has none."""
    from torch import optim

    name = str(optimizer.get("name"))
    kind = next((kind for class_name, kind in vars(optim).items() if class_name.lower() == name and isinstance(kind, type)), None)
    if kind is None or name not in OPTIMIZERS or "lr" in optimizer or not set(optimizer) <= set(_table(name).model_fields):
        return optimizer
    return {**optimizer, "lr": float(inspect.signature(kind).parameters["lr"].default)}


def is_full_batch(optimizer: str) -> bool:
    """Return whether an optimizer takes the whole partition in each iteration, unless its table says otherwise."""
    return optimizer in OPTIMIZERS and _table(optimizer).model_fields["full_batch"].default is True


def _table(optimizer: str) -> type[Section]:
    """Return the table of an optimizer."""
    return next(
        option for option in schema.tables_under(schema.Job.model_fields["optimizer"]) if optimizer in schema.identity(option)[1]
    )


def _has_no_length(dataset: Any, items: int | None) -> bool:
    """Return whether a data set is a stream without known lengths of its shards."""
    return items is None and isinstance(dataset, Mapping) and dataset.get("name") == PYTHON


def _smallest_partition(job: schema.Job, items: int) -> int:
    """Estimate the items of the smallest partition of a data set in memory."""
    section: Any = job.dataset
    tests = getattr(section, "test_items", 0) or round(getattr(section, "test_share", 0.0) * items)
    training: int = items - tests - held_out_count(job.dataset.held_out, max(items - tests, 1))
    count = sum(group.size for group in job.workers)
    return min([training // count, *(group.partition_size for group in job.workers if group.partition_size)])
