"""The tables of networks for sequences: tokens, or number series.

Symbols: b items of a batch; L steps or tokens of an item, V in the vocabulary; k outputs (classes, or numbers to give).
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from partrain.models.interface import FORMS, Interface
from partrain.models.sections import Network, Share


class Sequences(Network):
    """Items are tokens (b, L), or number series (b, L, features)."""

    takes = ("tokens", "series")
    gives = ("classification", "regression", "forecast", "language")

    def _obstacle(self, interface: Interface) -> str | None:
        if interface.task == "language" and interface.form != "tokens":
            return f"the task `language` is for {FORMS['tokens']}, and the items are {interface.in_words}"
        return None


class Recurrent(Sequences):
    """Tokens (b, L), embedded, or number series (b, L, features) -> states (b, L, hidden) -> answers.

    Language: a linear layer over each state -> (b, L, V). All other tasks: over the last state -> (b, k).
    """

    builder = "recurrent"

    hidden: int = Field(128, ge=1)
    """Numbers of a state."""
    layers: int = Field(1, ge=1)
    embedding: int = Field(64, ge=1)
    """Numbers that stand for a token."""
    dropout: Share = 0.0
    """Share of the states dropped in training, between layers and ahead of the answer."""
    bidirectional: bool = False
    """A second network reads backwards; the last states of both count."""

    def _obstacle(self, interface: Interface) -> str | None:
        if self.bidirectional and interface.task == "language":
            return "`bidirectional` would let each answer see the token that it is to foretell"
        if "embedding" in self.model_fields_set and interface.form != "tokens":
            return f"`embedding` is for {FORMS['tokens']}, and the items are {interface.in_words}"
        return super()._obstacle(interface)


class Rnn(Recurrent):
    """Plain recurrent network. Elman. Finding Structure in Time. 1990. doi:10.1016/0364-0213(90)90002-E"""

    name: Literal["rnn"]
    nonlinearity: Literal["tanh", "relu"] = "tanh"


class Lstm(Recurrent):
    """Long short-term memory. Hochreiter, Schmidhuber. 1997. doi:10.1162/neco.1997.9.8.1735"""

    name: Literal["lstm"]


class Gru(Recurrent):
    """Gated recurrent units. Cho and others. 2014. arXiv:1406.1078"""

    name: Literal["gru"]


class Transformer(Sequences):
    """A small GPT: tokens (b, L) or number series (b, L, features) -> blocks of causal attention (b, L, width) -> answers.

    Language: (b, L, V). All other tasks: the last position's (b, k). It also takes items shorter than those it was built for.
    Radford and others. Language Models are Unsupervised Multitask Learners. 2019; Vaswani and others. 2017. arXiv:1706.03762
    """

    builder = "transformer"

    name: Literal["transformer"]
    width: int = Field(128, ge=1)
    """Numbers of a position, in every layer; four times as many within a block's feed-forward part."""
    layers: int = Field(4, ge=1)
    heads: int = Field(4, ge=1)
    """Of each attention; they divide `width` among themselves."""
    dropout: Share = 0.0
    """Share dropped in training: of embeddings, of attention, and of what each half of a block adds."""
    tied: bool = False
    """One matrix embeds tokens and answers with them."""

    @model_validator(mode="after")
    def _whole_heads(self) -> Transformer:
        if self.width % self.heads:
            raise ValueError(f"heads: {self.heads} do not divide the width {self.width} without rest")
        return self

    def _obstacle(self, interface: Interface) -> str | None:
        if self.tied and interface.task != "language":
            return "`tied` is for the task `language`: only there are answers made of what items are made of"
        return super()._obstacle(interface)
