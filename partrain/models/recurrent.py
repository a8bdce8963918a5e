"""The recurrent networks behind `[model] name = "rnn"`, `"lstm"` and `"gru"`, for tokens and for number series."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from partrain.models.sequence_sections import Gru, Lstm, Rnn

if TYPE_CHECKING:
    from partrain.models import Interface


def build(section: Rnn | Lstm | Gru, interface: Interface) -> RecurrentNetwork:
    """Build a network: tokens (batch, length) or series (batch, steps, features) -> (batch, length, vocabulary) or (batch, outputs)."""
    return RecurrentNetwork(section, interface)


class RecurrentNetwork(nn.Module):
    """Embedding of tokens, recurrent layers, a linear layer over each state or the last one."""

    def __init__(self, section: Rnn | Lstm | Gru, interface: Interface) -> None:
        super().__init__()
        self.each = interface.kind.head == "tokens"
        """True: answer from each state. False: answer from the last state only."""
        self.embedding: nn.Module = nn.Identity()
        width = interface.item[-1]
        if interface.vocabulary is not None:
            width = section.embedding
            self.embedding = nn.Embedding(interface.vocabulary, width)
        self.layers = _layers(section, width)
        self.dropout = nn.Dropout(section.dropout)
        self.answer = nn.Linear(section.hidden * (2 if section.bidirectional else 1), interface.answer[-1])

    def forward(self, items: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Answer items (b, L, ...). `lengths` (b,): steps of each without padding, which the layers never see."""
        embedded = self.embedding(items)
        if lengths is not None and torch.compiler.is_exporting():
            return self.answer(self._unpacked(embedded, lengths))  # type: ignore[no-any-return]
        if lengths is not None:
            embedded = pack_padded_sequence(embedded, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, last = self.layers(embedded)
        if self.each and lengths is not None:
            states, _ = pad_packed_sequence(states, batch_first=True, total_length=items.shape[1])
        if not self.each:
            hidden = last[0] if isinstance(last, tuple) else last  # (layers x directions, b, hidden); an LSTM's cells come second
            directions = 2 if self.layers.bidirectional else 1
            states = torch.cat(tuple(hidden[-directions:]), dim=1)
        answers: Tensor = self.answer(self.dropout(states))
        return answers

    def _unpacked(self, embedded: Tensor, lengths: Tensor) -> Tensor:
        """Compute the states (b, L, ...) or the last ones (b, ...) without packed sequences, which a graph cannot hold.

        Padding follows a sequence, so it changes no earlier state. The backward layers get each sequence reversed by its own
        length.
        """
        steps, lengths = torch.arange(embedded.shape[1]), lengths.unsqueeze(1)
        inside, last = (steps < lengths).unsqueeze(2), (lengths - 1).unsqueeze(2)
        mirrored = torch.where(steps < lengths, lengths - 1 - steps, steps).unsqueeze(2)
        layers, states = self.layers, embedded
        run, weights, directions = getattr(torch, layers.mode.lower()), layers.all_weights, 2 if layers.bidirectional else 1
        form = {"has_biases": True, "num_layers": 1, "dropout": 0.0, "train": False, "bidirectional": False, "batch_first": True}
        begin = torch.zeros(1, embedded.shape[0], layers.hidden_size, dtype=embedded.dtype)
        initial = (begin, begin) if layers.mode == "LSTM" else begin
        for layer in range(0, len(weights), directions):
            both = []
            for backward, direction in enumerate(weights[layer : layer + directions]):
                inputs = _gather(states, mirrored) if backward else states
                outputs, *_ = run(inputs, initial, direction, **form)
                both.append((_gather(outputs, mirrored) if backward else outputs, _gather(outputs, last).squeeze(1)))
            states, ends = (torch.cat(parts, -1) for parts in zip(*both, strict=True))
        return states * inside if self.each else ends


def _gather(states: Tensor, steps: Tensor) -> Tensor:
    """Return the states (b, L, k) at steps (b, s, 1)."""
    return states.gather(1, steps.expand(-1, -1, states.shape[2]))


def _layers(section: Rnn | Lstm | Gru, width: int) -> nn.RNNBase:
    between = section.dropout if section.layers > 1 else 0.0
    sizes = width, section.hidden, section.layers
    match section:
        case Rnn():
            return nn.RNN(
                *sizes,
                nonlinearity=section.nonlinearity,
                batch_first=True,
                dropout=between,
                bidirectional=section.bidirectional,
            )
        case Lstm():
            return nn.LSTM(*sizes, batch_first=True, dropout=between, bidirectional=section.bidirectional)
    return nn.GRU(*sizes, batch_first=True, dropout=between, bidirectional=section.bidirectional)
