"""A trained network from its checkpoint alone: build it, fill it, judge it."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from partrain.checkpoint import Content
from partrain.checkpoint.manifest import NetworkRecord, manifest_of, other_data
from partrain.errors import BadCheckpoint, BadJob, Failure, InputMissing, UserCodeFailed
from partrain.models import Interface, build
from partrain.tasks import UserTask
from partrain.tasks.kinds import Classification, Language, Reconstruction, Regression, Task
from partrain.train.batches import Samples
from partrain.train.evaluate import evaluate

if TYPE_CHECKING:
    from partrain.data import Dataset
    from partrain.job.load import LoadedJob

Watch = Callable[[Tensor, Tensor, Tensor], None]
"""Called with inputs (b, *shape), answers, and what those are compared with."""


@dataclass(frozen=True)
class TrainedNetwork:
    """A trained network, and what to know when it is used."""

    loaded: LoadedJob
    module: nn.Module
    """The mixed network, in evaluation mode."""
    task: Task
    facts: NetworkRecord
    """What it was built for."""
    codec: dict[str, Any]
    """How items were made of what the data set's files say."""

    @property
    def kind(self) -> str:
        """What its answers are: those of a kind of task, of which the user's own may be one, else `user`."""
        if self.facts.task != "user":
            return self.facts.task
        kinds = {Reconstruction: "autoencoder", Classification: "classification", Language: "language", Regression: "regression"}
        return next((name for kind, name in kinds.items() if isinstance(self.task, kind)), "user")

    @property
    def dtype(self) -> torch.dtype:
        """What it computes in."""
        return next(self.module.parameters()).dtype

    def items(self, inputs: Tensor, targets: Tensor, scale: float) -> Samples:
        """Items as it saw them in training."""
        return Samples(inputs, targets, scale, self.dtype, self.loaded.job.model.convolves)


def network(loaded: LoadedJob, content: Content) -> nn.Module:
    """The mixed network of a checkpoint, in evaluation mode. Raises BadCheckpoint where it does not fit the job's model."""
    facts = manifest_of(content).network
    with users(loaded):
        module = build(
            loaded.job.model, loaded.folder, Interface(tuple(facts.input), facts.outputs, facts.task, facts.vocabulary)
        )
    fill(module, content)
    return module.eval()


def fill(module: nn.Module, content: Content) -> None:
    """Give a module the tensors of a checkpoint's mixed network."""
    stored, wanted = tensors(content), module.state_dict()
    if wanted.keys() != stored.keys() or any(wanted[name].shape != stored[name].shape for name in wanted):
        raise BadCheckpoint("the tensors of the checkpoint are not those of the job's model")
    module.load_state_dict(stored)


def tensors(content: Content) -> dict[str, Tensor]:
    """The mixed network under its state-dict names."""
    stored = {path.removeprefix("model/"): array for path, array in content.arrays.items() if path.startswith("model/")}
    return {name: torch.from_numpy(array) for name, array in stored.items()}


def load_network(loaded: LoadedJob, content: Content) -> TrainedNetwork:
    """The network of a checkpoint with all it takes to use it."""
    manifest = manifest_of(content)
    module = network(loaded, content)
    if manifest.network.task == "user" and not isinstance(loaded.job.task, UserTask):
        raise BadJob("the checkpoint was trained with a task of the user's own, and the job names none: [task] name")
    with users(loaded):
        # Where the task is not the user's own, the manifest says which it is, whatever the data set is made for.
        task = loaded.job.make_task(manifest.network.task, loaded.folder)  # type: ignore[arg-type]
    return TrainedNetwork(loaded, module, task, manifest.network, manifest.codec)


def dataset_of(loaded: LoadedJob, content: Content) -> Dataset:
    """The data set that a checkpoint was trained on; BadCheckpoint if what is there now is another one, InputMissing if none is."""
    from partrain.data import load
    from partrain.data.fetch import named

    job = loaded.job
    try:
        with users(loaded):
            dataset = load(job.dataset, loaded.folder, None, job.training)
    except InputMissing as missing:
        if all(path.exists() for path in named(vars(job.dataset), loaded.folder)):
            raise
        raise InputMissing(f"{missing.message}; bring it back, or judge other items with `evaluate --input`") from None
    if dataset.fingerprint != manifest_of(content).data:
        raise other_data(vars(job.dataset), loaded.folder)
    return dataset


def held_out(loaded: LoadedJob, dataset: Dataset) -> tuple[Any, Any]:
    """Indices of the items to train on, and of those to judge by."""
    from partrain.data.partition import hold_out

    job = loaded.job
    labels = dataset.targets if job.dataset.stratify else None
    section, order = job.dataset, job.partition.order
    return hold_out(dataset.items, section.validation, order, job.seed, dataset.gap, labels, dataset.rows)


def judged(network: TrainedNetwork, items: Samples, watch: Watch | None = None) -> dict[str, Any]:
    """Number of items, mean loss, and accuracy where there are right answers. `watch` sees the answers that it is made of."""
    task = Watched(network.task, watch) if watch else network.task
    count = len(items.targets)
    with users(network.loaded):
        loss, correct = evaluate(network.module, task, items, range(count), precision=network.loaded.job.engine.precision)
    return {"items": count, "loss": loss / count} | ({"accuracy": correct / count} if task.accuracy else {})


def tested(loaded: LoadedJob, content: Content) -> tuple[float, float | None] | None:
    """Loss and accuracy of a checkpoint's network on its test items; None if there are none."""
    dataset = dataset_of(loaded, content)
    if dataset.test_inputs is None or dataset.test_targets is None:
        return None
    inputs, targets = torch.from_numpy(dataset.test_inputs), torch.from_numpy(dataset.test_targets)
    network = load_network(loaded, content)
    found = judged(network, network.items(inputs, targets, dataset.scale))
    return found["loss"], found.get("accuracy")


class Watched(Task):
    """A task that shows what it scores: nothing is computed twice."""

    def __init__(self, task: Task, watch: Watch) -> None:
        self.task, self.watch, self.accuracy = task, watch, task.accuracy

    def score(self, module: nn.Module, inputs: Tensor, targets: Tensor) -> tuple[float, float]:
        answers: list[Tensor] = []
        with module.register_forward_hook(lambda *call: answers.append(call[-1])):
            scored = self.task.score(module, inputs, targets)
        self.watch(inputs, answers[0], self.task.targets(inputs, targets))
        return scored


@contextmanager
def users(loaded: LoadedJob) -> Iterator[None]:
    """What goes wrong within is the user's code's doing, if there is any."""
    try:
        yield
    except Failure:
        raise
    except Exception as error:
        if not loaded.job.user_code:
            raise
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        names = "`, `".join(loaded.job.user_code)
        raise UserCodeFailed(f"`{names}`: {what}", "".join(traceback.format_tb(error.__traceback__)[1:]) + what) from None
