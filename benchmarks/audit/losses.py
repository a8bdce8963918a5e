"""Losses of `[task]` and their gradients against torch's functions, and judged numbers of a segmentation against scikit-learn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.audit.case import ROUNDINGS, Case
from benchmarks.audit.network import Items, Maps, Network, Pixels
from benchmarks.audit.replica import Replica, arrays
from benchmarks.audit.trainings import Training, Trainings, events

WEIGHTS = [0.5, 2.0, 1.5]
IGNORED = 3
Error = Callable[[Tensor, Tensor], Tensor]
"""Gives the mean loss of answers against targets."""


def focal(answers: Tensor, labels: Tensor) -> Tensor:
    """Lin et al. 2017, equation 4: -(1 - p)^2 log p, p the probability of the true class."""
    logs = functional.log_softmax(answers, 1)[torch.arange(len(labels)), labels]
    return -((1 - logs.exp()) ** 2 * logs).mean()


def focal_of_labels(answers: Tensor, labels: Tensor) -> Tensor:
    """Lin et al. 2017, for two classes."""
    p = torch.where(labels == 1, answers.sigmoid(), 1 - answers.sigmoid())
    return -((1 - p) ** 2 * p.log()).mean()


def weighted(answers: Tensor, labels: Tensor, weights: Sequence[float] = WEIGHTS, **settings: float) -> Tensor:
    """Mean over the items of weight times loss."""
    table = torch.tensor(weights, dtype=answers.dtype)
    return functional.cross_entropy(answers, labels, table, reduction="none", **settings).mean()  # type: ignore[arg-type]


def balanced(answers: Tensor, labels: Tensor) -> Tensor:
    from sklearn.utils.class_weight import compute_class_weight

    return weighted(answers, labels, compute_class_weight("balanced", classes=np.arange(3), y=Items("rare").targets).tolist())


def pinball(answers: Tensor, targets: Tensor) -> Tensor:
    """Koenker, Bassett 1978, for the quantile 0.9."""
    error = targets - answers
    return torch.where(error >= 0, 0.9 * error, -0.1 * error).mean()


def of_maps(answers: Tensor, maps: Tensor, weights: Sequence[float] | None = None) -> Tensor:
    """Mean over images of the mean over the pixels with a label."""
    table = None if weights is None else torch.tensor(weights, dtype=answers.dtype)
    sums = [
        functional.cross_entropy(image[None], labels[None], table, ignore_index=IGNORED, reduction="sum")
        for image, labels in zip(answers, maps, strict=True)
    ]
    return torch.stack([total / (labels != IGNORED).sum() for total, labels in zip(sums, maps, strict=True)]).mean()


LOSSES: dict[str, tuple[str, str, str, Error]] = {
    # name: targets, [task], other implementation, its loss
    "class weights": ("classes", f"class_weights = {WEIGHTS}", "`cross_entropy(weight)`, mean over items", weighted),
    "class weights, balanced": ("rare", 'class_weights = "balanced"', "`cross_entropy(compute_class_weight)`", balanced),
    "label smoothing": (
        "classes", "label_smoothing = 0.1", "`cross_entropy(label_smoothing)`", partial(functional.cross_entropy, label_smoothing=0.1),
    ),
    "label smoothing and class weights": (
        "classes", f"label_smoothing = 0.1, class_weights = {WEIGHTS}", "`cross_entropy(weight, label_smoothing)`",
        partial(weighted, label_smoothing=0.1),
    ),
    "focal": ("classes", "focal = 2.0", "Lin et al. 2017, equation 4", focal),
    "squared": ("numbers", 'loss = "squared"', "`mse_loss`", functional.mse_loss),
    "absolute": ("numbers", 'loss = "absolute"', "`l1_loss`", functional.l1_loss),
    "huber": ("numbers", 'loss = "huber", delta = 0.7', "`huber_loss`", partial(functional.huber_loss, delta=0.7)),
    "quantile": ("numbers", 'loss = "quantile", quantile = 0.9', "Koenker, Bassett 1978", pinball),
    "poisson": ("counts", 'loss = "poisson"', "`poisson_nll_loss`", functional.poisson_nll_loss),
    "multi-label": ("labels", 'kind = "multi-label"', "`binary_cross_entropy_with_logits`", functional.binary_cross_entropy_with_logits),
    "multi-label, focal": ("labels", 'kind = "multi-label", focal = 2.0', "Lin et al. 2017, of two classes", focal_of_labels),
}  # fmt: skip
MAPS: dict[str, tuple[str, Error]] = {
    "segmentation, `ignore_index`": ("", of_maps),
    "segmentation, `ignore_index`, class weights": (
        f", class_weights = {[*WEIGHTS, 1.0]}",
        partial(of_maps, weights=[*WEIGHTS, 1.0]),
    ),
}


def cases() -> Iterator[Case]:
    for name, (kind, task, peer, error) in LOSSES.items():
        items = Items(kind)
        job = {
            "sync": 'rule = "average", iterations = 10',
            "optimizer": 'name = "sgd", lr = 0.2, batch_size = 8',
            "workers": "{count = 1}",
            "dataset": f', targets = "{kind}"',
            "more": f"task = {{{task}}}",
        }
        loss = partial(loss_of, error=error, items=items)
        yield Case(
            f"loss {name}: losses of rounds, parameters", "torch", peer, ROUNDINGS, partial(of_training, job=job, loss=loss)
        )
    for name, (words, error) in MAPS.items():
        loss = partial(loss_of, error=error, items=Maps())
        of_one = partial(of_maps_training, words=words, loss=loss)
        peer = "`cross_entropy(ignore_index)` of each image"
        yield Case(f"loss {name}: losses of rounds, parameters", "torch", peer, ROUNDINGS, of_one)
        what = f"judged, {name}: IoU, shares of right pixels"
        yield Case(what, "scikit-learn", "`jaccard_score`, `accuracy_score`", 1e-15, partial(of_judged_maps, words=words))
        judged = partial(of_judged_loss, words=words, error=error)
        yield Case(f"judged, {name}: loss", "torch", peer, ROUNDINGS, judged)


def of_pixels(trainings: Trainings, words: str) -> dict[str, Any]:
    """Write the label maps to a file; return the settings of a training on them. `words`: further keys of `[task]`."""
    file, maps = trainings.folder / "maps.npz", Maps()
    np.savez(file, inputs=maps.inputs, targets=maps.targets)
    return {
        "sync": 'rule = "average", iterations = 10',
        "optimizer": 'name = "sgd", lr = 0.5, batch_size = 8',
        "workers": "{count = 1}",
        "network": "Pixels",
        "items": f'kind = "npz", path = "{file}", standardise = false',
        "dataset": ", validation = 20",
        "more": f"task = {{ignore_index = {IGNORED}{words}}}",
    }


def of_maps_training(trainings: Trainings, words: str, loss: Any) -> float:
    return of_training(trainings, of_pixels(trainings, words), loss, Pixels)


def loss_of(network: torch.nn.Module, ids: Sequence[int], error: Error, items: Items | Maps) -> Tensor:
    targets = torch.from_numpy(items.targets[list(ids)])
    targets = targets.double() if targets.is_floating_point() else targets  # some losses of torch take no mixed types
    return error(network(torch.from_numpy(items.inputs[list(ids)])), targets)


def of_training(trainings: Trainings, job: dict[str, Any], loss: Any, network: Any = Network) -> float:
    """Compare the mean loss of each round, as its event has it, and the parameters at the end."""
    training = trainings.run(**job)
    replica = Replica(partial(torch.optim.SGD, lr=0.5 if network is Pixels else 0.2), network, loss)
    means = []
    for (batches,) in training.rounds:
        total = 0.0
        for ids in batches:
            total += float(loss(replica.network, ids).detach()) * len(ids)
            replica.step(ids)
        means.append(total / sum(map(len, batches)))
    recorded = [event["loss"] for event in events(training.run) if event["event"] == "round"]
    return max(float(np.abs(training.params - replica.state).max()), float(np.abs(np.subtract(recorded, means)).max()))


def held_out_answers(training: Training) -> tuple[Tensor, Tensor]:
    """Give the answers of the network at the end to the held-out items, and their label maps."""
    network, items, ids = Pixels(), Maps(), sorted(training.held_out)
    if len(ids) != 20:
        raise RuntimeError(f"{len(ids)} held-out items, not 20")
    start = 0
    with torch.no_grad():
        for tensor in arrays(network).values():
            values = training.params[start : start + tensor.numel()]
            tensor.copy_(torch.from_numpy(values).reshape(tensor.shape))
            start += tensor.numel()
        return network(torch.from_numpy(items.inputs[ids])), torch.from_numpy(items.targets[ids])


def of_judged_loss(trainings: Trainings, words: str, error: Error) -> float:
    training = trainings.run(**of_pixels(trainings, words))
    return abs(training.summary["loss"] - float(error(*held_out_answers(training))))


def of_judged_maps(trainings: Trainings, words: str) -> float:
    from sklearn.metrics import accuracy_score, jaccard_score

    training = trainings.run(**of_pixels(trainings, words))
    answers, maps = held_out_answers(training)
    predicted, known = answers.argmax(1).numpy(), maps.numpy() != IGNORED
    truth = maps.numpy()
    iou = jaccard_score(truth[known], predicted[known], labels=[0, 1, 2], average="macro")
    shares = [accuracy_score(t[k], p[k]) for t, p, k in zip(truth, predicted, known, strict=True)]
    judged = training.summary["metrics"]
    return max(abs(judged["mean_iou"] - iou), abs(judged["accuracy"] - float(np.mean(shares))))
