"""The network behind `[model] name = "bag"`: the mean of the embeddings of all tokens, then hidden layers.

Joulin, Grave, Bojanowski, Mikolov. Bag of Tricks for Efficient Text Classification. 2016. arXiv:1607.01759.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from partrain.models import Interface
    from partrain.models.sequence_sections import Bag


def build(section: Bag, interface: Interface) -> nn.Module:
    """Build a network: tokens (b, L) -> answers (b, k)."""
    return BagNetwork(section, interface)


class BagNetwork(nn.Module):
    """Embedding of tokens, their mean, hidden layers, a linear layer."""

    def __init__(self, section: Bag, interface: Interface) -> None:
        super().__init__()
        assert interface.vocabulary is not None
        self.embedding = nn.Embedding(interface.vocabulary, section.embedding)
        nn.init.normal_(self.embedding.weight, 0.0, 1 / section.embedding)  # small, as in fastText: rare words add no noise
        sizes = [section.embedding, *section.hidden]
        layers: list[nn.Module] = [nn.Dropout(section.dropout)]
        for width, units in pairwise(sizes):
            layers += [nn.Linear(width, units), nn.ReLU(), nn.Dropout(section.dropout)]
        self.layers = nn.Sequential(*layers, nn.Linear(sizes[-1], math.prod(interface.answer)))

    def forward(self, items: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Answer tokens (b, L). `lengths` (b,): tokens of each without padding."""
        embedded = self.embedding(items)
        if lengths is None:
            mean = embedded.mean(1)
        else:
            counted = torch.arange(items.shape[1], device=items.device) < lengths[:, None]
            mean = (embedded * counted[..., None]).sum(1) / lengths[:, None]
        answers: Tensor = self.layers(mean)
        return answers
