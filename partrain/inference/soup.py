"""`partrain soup`: the average of several trained networks, which often beats each of them.

Parameters are averaged with equal weights in float64 and rounded once. BatchNorm statistics are pooled as in training; integers
become their maximum. Wortsman et al. Model soups. 2022. arXiv:2203.05482; Kaddour. Stop wasting my time! (LAWA). 2022.
arXiv:2209.14981.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from partrain.checkpoint.manifest import manifest_of
from partrain.display.text_table import table
from partrain.errors import BadCheckpoint, InputMissing
from partrain.inference.network import (
    evaluate_items,
    items_by_split,
    load_dataset,
    load_network,
    load_tensors,
    network_tensors,
    split_items,
)
from partrain.training.buffers import pooled

if TYPE_CHECKING:
    from partrain.checkpoint import Content
    from partrain.job.load import LoadedJob


class Member(NamedTuple):
    """One of the networks to mix."""

    path: Path
    content: Content
    loaded: LoadedJob


def mix(members: Sequence[Member]) -> dict[str, Tensor]:
    """Average the members' networks. BadCheckpoint if their networks, tasks or data sets differ."""
    first, *others = members
    for other in others:
        _check(first, other)
    return average([member.content for member in members])


def average(contents: Sequence[Content]) -> dict[str, Tensor]:
    """Average networks of one structure, tensor by tensor."""
    networks = [network_tensors(content) for content in contents]
    statistics = {name: tensor for name, tensor in networks[0].items() if name.endswith(("running_mean", "running_var"))}
    return {name: _mean([network[name] for network in networks]) for name in networks[0]} | _pool_statistics(networks, statistics)


def _mean(copies: Sequence[Tensor]) -> Tensor:
    stacked = torch.stack(list(copies))
    return stacked.double().mean(0).to(stacked.dtype) if stacked.is_floating_point() else stacked.amax(0)


def _pool_statistics(networks: Sequence[dict[str, Tensor]], statistics: dict[str, Tensor]) -> dict[str, Tensor]:
    """Pool BatchNorm's means and variances as if over all items that the members saw."""
    if not statistics:
        return {}
    rows = torch.stack([torch.cat([network[name].double().flatten() for name in statistics]) for network in networks])
    mixed = pooled(rows, torch.ones(len(rows), 1, dtype=torch.float64), statistics)
    parts = torch.split(mixed, [tensor.numel() for tensor in statistics.values()])
    return {name: part.view(like.shape).to(like.dtype) for (name, like), part in zip(statistics.items(), parts, strict=True)}


def checkpoint_of(mixed: dict[str, Tensor], first: Content) -> Content:
    """Make a checkpoint of the average, for `evaluate`, `predict` and `export`. It has no workers, so it cannot be resumed.

    It contains the job and the manifest of the first member, with another run id.
    """
    digest = hashlib.sha256(b"soup")
    for name, tensor in sorted(mixed.items()):
        digest.update(name.encode() + tensor.contiguous().numpy().tobytes())
    arrays = {f"model/{name}": tensor.numpy() for name, tensor in mixed.items()}
    return replace(first, arrays=arrays, manifest=first.manifest | {"run": f"soup-{digest.hexdigest()}"})


def scores(soup: Content, members: Sequence[Member]) -> list[dict[str, Any]]:
    """Evaluate each member and their average on items that no member was trained on: loss and accuracy."""
    first = members[0]
    network, dataset = load_network(first.loaded, soup), load_dataset(first.loaded, soup)
    splits = items_by_split(network, dataset)
    held_out = [split_items(member.loaded, dataset)[1] for member in members]
    if "validation" in splits and all(np.array_equal(held_out[0], other) for other in held_out):
        split = "validation"
    elif "test" in splits:
        split = "test"
    else:
        raise InputMissing(f"{first.path}: no items to evaluate the average on: no test set, and no common validation items")
    rows = []
    for name, content in [*((str(member.path), member.content) for member in members), ("soup", soup)]:
        load_tensors(network.module, content)
        rows.append({"network": name, "round": content.round, "split": split} | evaluate_items(network, splits[split]))
    return rows


def render(rows: Sequence[dict[str, Any]]) -> list[str]:
    head = tuple(rows[0])
    return table(head, [[f"{cell:.6g}" if isinstance(cell, float) else str(cell) for cell in row.values()] for row in rows])


def _check(first: Member, other: Member) -> None:
    """Refuse members that differ in network, task or data set."""
    ours, theirs = network_tensors(first.content), network_tensors(other.content)
    different = [name for name in ours.keys() | theirs.keys() if _form(ours.get(name)) != _form(theirs.get(name))]
    if different:
        raise BadCheckpoint(f"{other.path}: its network differs from {first.path} in `{min(different)}`")
    a, b = manifest_of(first.content), manifest_of(other.content)
    if a.network != b.network or a.data != b.data:
        raise BadCheckpoint(f"{other.path}: was not trained on the same items for the same task as {first.path}")


def _form(tensor: Tensor | None) -> Any:
    return None if tensor is None else (tensor.shape, tensor.dtype)
