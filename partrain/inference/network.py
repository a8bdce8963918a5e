"""A trained network from its checkpoint alone: build it, load its tensors, evaluate it."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor, nn

from partrain.checkpoint import Content
from partrain.checkpoint.codecs import NetworkRecord
from partrain.checkpoint.manifest import dataset_changed, manifest_of
from partrain.data.codec import Codec
from partrain.errors import BadJob, Failure, InputMissing, UserCodeFailed
from partrain.job.code_changes import changed_code_explained, changed_files, explain_change
from partrain.models import Interface, build_drawn
from partrain.models.answers import CHANGED, agree, probe
from partrain.record.events import BesideTrivial
from partrain.record.final_scores import FinalScores
from partrain.record.round_record import finite
from partrain.tasks import UserTask
from partrain.tasks.judged import JudgedMetrics, Observe, judged_metrics
from partrain.tasks.kinds import USER, TaskKind
from partrain.tasks.task import Task, kind_of_answers
from partrain.training.batches import Samples, unpack
from partrain.training.evaluate import Evaluator
from partrain.training.snapshot import check_tensors
from partrain.training.snapshot_layout import PROBE
from partrain.training.trivial import Scores, compared, comparisons, trivial_scores

if TYPE_CHECKING:
    from partrain.data import Dataset, DatasetInfo
    from partrain.job.load import LoadedJob

Split = Literal["training", "validation", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)


@dataclass(frozen=True)
class TrainedNetwork:
    """A trained network with its job, task and codec."""

    loaded: LoadedJob
    module: nn.Module
    """The mixed network, in evaluation mode."""
    task: Task
    record: NetworkRecord
    """Inputs, outputs and task that it was built for."""
    codec: Codec
    """The conversion of the data set's files into items."""

    @property
    def kind(self) -> TaskKind:
        """Kind of task, also for a user task that subclasses a built-in one; otherwise `USER`."""
        return kind_of_answers(self.task, self.record.task, self.record.data)

    @property
    def metric_names(self) -> list[str]:
        """Names of the job's metrics in addition to loss and accuracy."""
        task = self.loaded.job.task
        return [*self.kind.judged, *(task.judged if task else ())]

    @property
    def own_errors(self) -> Sequence[str]:
        """Names of the job's custom metrics of which lower is better."""
        task = self.loaded.job.task
        return (task.lower_is_better if task else None) or ()

    def metrics(self, *, reports: bool = False, observe: Observe | None = None) -> JudgedMetrics:
        """Make the job's metrics in addition to loss and accuracy; see `judged_metrics`."""
        task = self.loaded.job.task
        names, lower = (task.metrics if task else None) or (), self.own_errors
        restore = self.codec.restore_units
        kind, outputs, folder = self.kind, self.record.outputs, self.loaded.folder
        return judged_metrics(names, lower, self.task, kind, outputs, folder, restore, reports=reports, observe=observe)

    @property
    def interface(self) -> Interface:
        """Shapes of its items and answers."""
        return interface_of(self.record, self.codec.stored)

    @property
    def answer(self) -> Callable[[Any], Any]:
        """Function that answers items (b, ...), as in judgements."""
        return self.evaluator().answer

    def evaluator(self, metrics: JudgedMetrics | None = None) -> Evaluator:
        """Make the evaluator of judgements. `metrics`: the job's metrics, if they are wanted."""
        return Evaluator(self.module, self.task, metrics, self.loaded.job.engine.compiled)

    @property
    def dtype(self) -> torch.dtype:
        """Type of its parameters."""
        return next(self.module.parameters()).dtype

    def items(
        self, inputs: Tensor, targets: Tensor, scale: float, dataset: DatasetInfo | None = None, newest: Tensor | None = None
    ) -> Samples:
        """Make samples in the form that the network saw in training. `dataset`: their data set, as it stores them."""
        channels, parts = dataset.channel_scale if dataset else None, tuple(self.record.parts)
        layout = self.loaded.job.model.convolves
        return Samples(inputs, targets, scale, self.dtype, layout, channel_scale=channels, parts=parts, newest=newest)

    def items_of(self, dataset: Dataset, split: Split) -> Samples | None:
        """Make samples of the training, validation or test items of a data set; None if there are none."""
        if split == "test":
            arrays = dataset.test_inputs, dataset.test_targets, dataset.test_newest, dataset.test_group
        else:
            index = split_items(self.loaded, dataset)[split == "validation"]
            more = (None if array is None else array[index] for array in (dataset.newest, dataset.group))
            arrays = dataset.inputs[index], dataset.targets[index], *more
        inputs, targets, newest, group = (None if array is None else torch.from_numpy(array) for array in arrays)
        if inputs is None or targets is None or not len(targets):
            return None
        return replace(self.items(inputs, targets, dataset.scale, dataset, newest), group=group)

    def batch(self, inputs: Tensor) -> Any:
        """Return items (b, ...) as the network's call argument: unpacked if they have several inputs."""
        parts = self.record.parts
        return unpack(inputs, parts, self.dtype) if parts else inputs


def build_network(loaded: LoadedJob, content: Content) -> nn.Module:
    """Build the mixed network of a checkpoint, in evaluation mode. BadCheckpoint if it does not fit the job's model."""
    manifest = manifest_of(content)
    interface = interface_of(manifest.network, manifest.codec)
    with blame_user_code(loaded):
        module = build_drawn(loaded.job.model, loaded.folder, interface, loaded.job.seed)
    with changed_code_explained(loaded, manifest.versions):
        load_tensors(module, content)
    if (stored := content.arrays.get(PROBE)) is not None:
        with blame_user_code(loaded):
            answers = probe(module, interface)
        if not agree(answers, torch.from_numpy(stored)):
            what = f"[model] name: `{loaded.job.model.name}`: {CHANGED}"
            sets = "; a script whose network walks sets of texts is started with PYTHONHASHSEED=0"
            hint = sets if sys.flags.hash_randomization else ""  # commands start with fixed hashes
            raise UserCodeFailed(explain_change(what, changed_files(loaded, manifest.versions)) + hint)
    return module.eval()


def interface_of(record: NetworkRecord, codec: Mapping[str, Any]) -> Interface:
    """Return the interface that a checkpoint's network is built for."""
    return replace(record.interface, categories=tuple(codec.get("cardinalities", ())))


def load_tensors(module: nn.Module, content: Content) -> None:
    """Load the tensors of a checkpoint's mixed network into a module. BadCheckpoint if names or shapes differ."""
    check_tensors(module, content.arrays)
    module.load_state_dict(network_tensors(content))


def network_tensors(content: Content) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint's mixed network by their state-dict names."""
    stored = {path.removeprefix("model/"): array for path, array in content.arrays.items() if path.startswith("model/")}
    return {name: torch.from_numpy(array) for name, array in stored.items()}


def load_network(loaded: LoadedJob, content: Content) -> TrainedNetwork:
    """Build a checkpoint's network, with its task and codec."""
    manifest = manifest_of(content)
    module = build_network(loaded, content)
    if manifest.network.task == USER.name and not isinstance(loaded.job.task, UserTask):
        raise BadJob("the checkpoint was trained with a user task, and the job names none: set [task] name")
    with blame_user_code(loaded):
        # For a built-in task the manifest decides, not the data set, which may be made for another task.
        task = loaded.job.make_task(
            manifest.network.task,  # type: ignore[arg-type]
            loaded.folder,
            manifest.class_weights,
            padded=manifest.network.interface.unequal,
        )
    return TrainedNetwork(loaded, module, task, manifest.network, Codec(manifest.codec))


def load_dataset(loaded: LoadedJob, content: Content) -> Dataset:
    """Load the data set that a checkpoint was trained on. BadCheckpoint if it has changed since, InputMissing if it is missing."""
    from partrain.data.fetch import paths_of
    from partrain.job import load as jobs

    job = loaded.job
    try:
        with blame_user_code(loaded):
            dataset = jobs.load_dataset(loaded)
    except InputMissing as missing:
        if all(path.exists() for path in paths_of(vars(job.dataset), loaded.folder)):
            raise
        elsewhere = "if it has moved, name a job with the new path: --job FILE; `evaluate --input` evaluates other items"
        raise InputMissing(f"{missing.message}; restore it; {elsewhere}") from None
    if dataset.fingerprint != manifest_of(content).data:
        raise dataset_changed(vars(job.dataset), loaded.folder)
    return dataset


def split_items(loaded: LoadedJob, dataset: Dataset) -> tuple[Any, Any]:
    """Return the indices of training items and of validation items."""
    from partrain.data.partition import split

    job = loaded.job
    return split(dataset, job.dataset, job.partition.order, job.seed)


def items_by_split(network: TrainedNetwork, dataset: Dataset) -> dict[str, Samples]:
    """Return the samples of each split that has items."""
    return {split: items for split in SPLITS if (items := network.items_of(dataset, split))}


def evaluate_items(network: TrainedNetwork, items: Samples, metrics: JudgedMetrics | None = None) -> dict[str, Any]:
    """Return number of items, mean loss, accuracy if the task has one, and the job's metrics; None for undefined ones.

    `metrics`: the network's metrics, if the caller made them.
    """
    count = len(items.targets)
    with blame_user_code(network.loaded):
        metrics = metrics or network.metrics()
        loss, correct = network.evaluator(metrics).evaluate(items, range(count))
        named = {name: finite(value) for name, value in metrics.compute().items()}
    return {"items": count, "loss": loss / count} | ({"accuracy": correct / count} if network.task.accuracy else {}) | named


def trivial_of(network: TrainedNetwork, items: Samples, trained: Tensor | None) -> Scores:
    """Evaluate trivial answers to some items; `trained`: training targets, if known. See `trivial_scores`."""
    codec, outputs = network.codec, network.record.outputs
    return trivial_scores(network.kind, network.task, network.metrics(), codec, outputs, trained, items)


def evaluate_at_end(loaded: LoadedJob, content: Content) -> tuple[FinalScores | None, Scores, dict[str, BesideTrivial]]:
    """Evaluate a checkpoint's network on its test items, if any; and trivial answers to these, or else to the held-out items."""
    network, dataset = load_network(loaded, content), load_dataset(loaded, content)
    splits = items_by_split(network, dataset)
    judged = splits.get("test") or splits.get("validation")
    trained = splits["training"].targets if "training" in splits else None
    if judged is None:
        return None, {}, {}
    kind, task, outputs = network.kind, network.task, network.record.outputs
    outcomes = compared(kind, task, outputs, judged)
    scores = evaluate_items(network, judged, network.metrics(observe=outcomes.add if outcomes else None))
    beside = comparisons(outcomes, kind, task, network.codec, outputs, trained, judged, loaded.job.seed)
    named = {name: scores[name] for name in network.metric_names if scores[name] is not None}
    test = FinalScores(content.round, scores["loss"], scores.get("accuracy"), named) if "test" in splits else None
    return test, trivial_of(network, judged, trained), beside


@contextmanager
def blame_user_code(loaded: LoadedJob) -> Iterator[None]:
    """Turn an unexpected exception into UserCodeFailed, if the job names user code."""
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
