"""A trained network from its checkpoint alone: build it, fill it, judge it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from partrain.batches import Items
from partrain.checkpoint import Content
from partrain.data import load
from partrain.data.partition import hold_out
from partrain.errors import BadCheckpoint
from partrain.launch.manifest import manifest_of
from partrain.models import build
from partrain.worker import judge

if TYPE_CHECKING:
    from partrain.job import LoadedJob


def network(loaded: LoadedJob, content: Content) -> torch.nn.Module:
    """The mixed network of a checkpoint, in evaluation mode. Raises BadCheckpoint where it does not fit the job's model."""
    facts = manifest_of(content).network
    module = build(loaded.job.model, loaded.folder, tuple(facts.input), facts.outputs)
    stored = {path.removeprefix("model/"): array for path, array in content.arrays.items() if path.startswith("model/")}
    wanted = module.state_dict()
    if wanted.keys() != stored.keys() or any(tuple(wanted[name].shape) != stored[name].shape for name in wanted):
        raise BadCheckpoint("the tensors of the checkpoint are not those of the job's model")
    module.load_state_dict({name: torch.from_numpy(array) for name, array in stored.items()})
    return module.eval()


def evaluate(loaded: LoadedJob, content: Content) -> dict[str, Any]:
    """Loss and metrics of the mixed network on the held-out items and on the test set, as far as there are any."""
    module = network(loaded, content)
    job = loaded.job
    dataset = load(job.dataset, loaded.folder)
    if dataset.fingerprint != manifest_of(content).data:
        raise BadCheckpoint("the data set is not the one the checkpoint was trained on")
    _, held_out = hold_out(len(dataset.inputs), job.dataset.validation, job.partition.order, job.seed)
    dtype = next(module.parameters()).dtype
    splits = {"validation": (dataset.inputs[held_out], dataset.targets[held_out])}
    if dataset.test_inputs is not None and dataset.test_targets is not None:
        splits["test"] = (dataset.test_inputs, dataset.test_targets)
    results: dict[str, Any] = {}
    for name, (inputs, targets) in splits.items():
        if len(targets):
            items = Items(torch.from_numpy(inputs), torch.from_numpy(targets), dataset.scale, dtype)
            loss, correct = judge(module, items, range(len(targets)))
            results[name] = {"items": len(targets), "loss": loss / len(targets)}
            if items.classification:
                results[name]["accuracy"] = correct / len(targets)
    return results
