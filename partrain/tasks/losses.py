"""Losses item by item. Their plain mean over a batch makes a mean over workers equal to one worker with all items.

Symbols: b items; C classes; k numbers; ... further dimensions, as height and width.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

NO_LABEL = -100
"""A label that no item has."""


def cross_entropy(
    logits: Tensor, labels: Tensor, weights: Tensor | None, smoothing: float, focal: float, ignore: int = NO_LABEL
) -> Tensor:
    """Return the cross-entropy of each label (b, ...), logits (b, C, ...); 0 where the label is `ignore`.

    `weights` (C,) are factors, by which nothing is divided. `smoothing`: label smoothing as in torch (Szegedy et al. 2016).
    `focal`: the gamma of the focal loss (Lin et al. 2017. arXiv:1708.02002).
    """
    weights = None if weights is None else weights.to(logits.device, logits.dtype)
    plain = functional.cross_entropy(logits, labels, weights, reduction="none", label_smoothing=smoothing, ignore_index=ignore)
    if not focal:
        return plain
    classes = labels.masked_fill(labels == ignore, 0).unsqueeze(1)
    return plain * (1 - logits.softmax(1).gather(1, classes).squeeze(1)).pow(focal)


def binary_cross_entropy(logits: Tensor, labels: Tensor, focal: float) -> Tensor:
    """Return the cross-entropy of each of k labels, 0 or 1: (b, k)."""
    plain = functional.binary_cross_entropy_with_logits(logits, labels, reduction="none")
    return plain * (1 - torch.exp(-plain)).pow(focal) if focal else plain  # exp(-plain): probability of the true label


def pinball(answers: Tensor, targets: Tensor, quantile: float) -> Tensor:
    """Return the pinball loss of each number: its expectation is lowest where answers are the quantile."""
    error = targets - answers
    return torch.maximum(quantile * error, (quantile - 1) * error)
