"""The small GPT behind `[model] name = "transformer"`: causal attention, learned positions, a norm before each half of a block."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from partrain.models import Interface
    from partrain.models.sequence_sections import Transformer

INIT_STD = 0.02
"""Standard deviation of initial weights. For the 2 n layers that add to the residual stream: divided by sqrt(2 n). Radford et al. 2019"""


def build(section: Transformer, interface: Interface) -> Gpt:
    """Build a network: tokens (batch, length) or series (batch, steps, features) -> (batch, length, vocabulary) or (batch, outputs)."""
    return Gpt(section, interface)


class Gpt(nn.Module):
    """Embeddings of items and positions, blocks, a norm, a linear layer over each position or over the last position."""

    def __init__(self, section: Transformer, interface: Interface) -> None:
        super().__init__()
        self.each = interface.kind.head == "tokens"
        """True: answer from each position. False: answer from the last position only."""
        width = section.width
        tokens = interface.vocabulary
        self.embedding = nn.Linear(interface.item[-1], width) if tokens is None else nn.Embedding(tokens, width)
        self.positions = nn.Embedding(interface.item[0], width)
        self.dropout = nn.Dropout(section.dropout)
        self.blocks = nn.Sequential(*(TransformerBlock(width, section.heads, section.dropout) for _ in range(section.layers)))
        self.norm = nn.LayerNorm(width)
        self.answer = nn.Linear(width, interface.answer[-1], bias=False)
        self.apply(_initialise)
        for name, parameter in self.named_parameters():
            if name.endswith(("mixed.weight", "forward_out.weight")):
                nn.init.normal_(parameter, std=INIT_STD / math.sqrt(2 * section.layers))
        if section.tied:
            self.answer.weight = self.embedding.weight

    def forward(self, items: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Answer items (b, L, ...). `lengths` (b,): positions of each without padding.

        Padding follows an item, and attention is causal: no position of an item attends to its padding.
        """
        positions = torch.arange(items.shape[1], device=items.device)
        stream = self.dropout(self.embedding(items) + self.positions(positions))
        stream = self.norm(self.blocks(stream))
        if not self.each and lengths is not None:
            stream = stream[torch.arange(items.shape[0], device=items.device), lengths - 1]
        elif not self.each:
            stream = stream[:, -1]
        answers: Tensor = self.answer(stream)
        return answers


class TransformerBlock(nn.Module):
    """x <- x + attention(norm(x)), then x <- x + forward(norm(x)); x (b, L, width)."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout)
        self.forward_norm = nn.LayerNorm(width)
        self.forward_in = nn.Linear(width, 4 * width)
        self.forward_out = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        wide = functional.gelu(self.forward_in(self.forward_norm(x)))
        added: Tensor = self.dropout(self.forward_out(wide))
        return x + added


class Attention(nn.Module):
    """Causal self-attention: each position attends to itself and to earlier ones. (b, L, width) -> (b, L, width)."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.projected = nn.Linear(width, 3 * width)
        """Queries, keys and values."""
        self.mixed = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        heads = self.projected(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(
            heads[0], heads[1], heads[2], dropout_p=self.dropout if self.training else 0.0, is_causal=True
        )
        mixed: Tensor = self.mixed(attended.transpose(1, 2).reshape(batch, length, width))
        return mixed


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=INIT_STD)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
