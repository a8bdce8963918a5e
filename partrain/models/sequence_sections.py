"""`[model]` tables of networks for sequences: tokens or number series.

Symbols: b items of a batch; L steps or tokens of an item, V in the vocabulary; k outputs (classes or numbers).
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from partrain.models.interface import FORMS, Form, Interface
from partrain.models.sections import Count, DropoutRate, Network
from partrain.tasks.kinds import Head


class Sequences(Network):
    """A network for items that are tokens (b, L) or number series (b, L, features), of equal or unequal lengths."""

    accepts: ClassVar[tuple[Form | None, ...]] = ("tokens", "series")
    takes_lengths = True
    answer_forms: ClassVar[tuple[Head, ...]] = ("outputs", "tokens")

    def _mismatch(self, interface: Interface) -> str | None:
        if interface.kind.head == "tokens" and interface.form != "tokens":
            return f"the task `{interface.task}` is for {FORMS['tokens']}, and the items are {interface.description}"
        return None


class Bag(Sequences):
    """Bag of tokens: the mean of their embeddings -> hidden layers -> answers (b, k). The order of the tokens has no effect.

    Source: Joulin, Grave, Bojanowski, Mikolov. Bag of Tricks for Efficient Text Classification. 2016. arXiv:1607.01759
    """

    builder = "bag"
    accepts = ("tokens",)
    answer_forms = ("outputs",)

    name: Literal["bag"]
    embedding: int = Field(64, ge=1)
    """Length of the embedding vector of a token."""
    hidden: list[Count] = [64]
    """Units of each hidden layer; `[]`: none."""
    dropout: DropoutRate = 0.2
    """Share of the mean, and of the units of each hidden layer, dropped in training."""


class Recurrent(Sequences):
    """Recurrent network: embedded tokens (b, L) or number series (b, L, features) -> states (b, L, hidden) -> answers.

    Language: a linear layer over each state -> (b, L, V). All other tasks: a linear layer over the last state -> (b, k).
    """

    builder = "recurrent"

    hidden: int = Field(128, ge=1)
    """Length of the state that the network carries from step to step."""
    layers: int = Field(1, ge=1)
    """Number of recurrent layers."""
    embedding: int = Field(64, ge=1)
    """Length of the embedding vector of a token. Only for tokens."""
    dropout: DropoutRate = 0.0
    """Share of the states dropped in training, between layers and before the answer."""
    bidirectional: bool = False
    """Add a second network that reads backwards. The answer uses the last states of both. Not for the task `language`."""

    def _mismatch(self, interface: Interface) -> str | None:
        if self.bidirectional and interface.kind.head == "tokens":
            return "`bidirectional` would show each answer the token it has to predict"
        if "embedding" in self.model_fields_set and interface.form != "tokens":
            return f"`embedding` is for {FORMS['tokens']}, and the items are {interface.description}"
        return super()._mismatch(interface)


class Rnn(Recurrent):
    """Plain recurrent network, for tokens or number series.

    Source: Elman. Finding Structure in Time. 1990. doi:10.1016/0364-0213(90)90002-E
    """

    name: Literal["rnn"]
    nonlinearity: Literal["tanh", "relu"] = "tanh"
    """Activation of the states."""


class Lstm(Recurrent):
    """Long short-term memory (LSTM), for tokens or number series.

    Source: Hochreiter, Schmidhuber. Long Short-Term Memory. 1997. doi:10.1162/neco.1997.9.8.1735
    """

    name: Literal["lstm"]


class Gru(Recurrent):
    """Gated recurrent units (GRU), for tokens or number series.

    Source: Cho et al. Learning Phrase Representations using RNN Encoder-Decoder for Statistical Machine Translation. 2014.
        arXiv:1406.1078
    """

    name: Literal["gru"]


class Transformer(Sequences):
    """Transformer, a small GPT: tokens (b, L) or number series (b, L, features) -> blocks of causal attention (b, L, width) -> answers.

    Task `language`: answers (b, L, V). Other tasks: the answer (b, k) of the last position. It also takes items shorter than L.

    Source: Radford et al. Language Models are Unsupervised Multitask Learners. 2019
    Source: Vaswani et al. Attention Is All You Need. 2017. arXiv:1706.03762
    """

    builder = "transformer"

    name: Literal["transformer"]
    width: int = Field(128, ge=1)
    """Length of the vector of each position in every layer. The feed-forward part of a block is four times as wide."""
    layers: int = Field(4, ge=1)
    """Number of blocks, each of attention and a feed-forward part."""
    heads: int = Field(4, ge=1)
    """Attention heads of each block, of `width` / `heads` numbers each. `width` must be a multiple of `heads`."""
    dropout: DropoutRate = 0.0
    """Share dropped in training: of the embeddings, of the attention, and of the output of each half of a block."""
    tied: bool = False
    """Use one matrix for the embedding of tokens and for the answers. Only for the task `language`."""

    @model_validator(mode="after")
    def _whole_heads(self) -> Transformer:
        if self.width % self.heads:
            raise ValueError(f"heads: the width {self.width} is not a multiple of {self.heads}")
        return self

    def _mismatch(self, interface: Interface) -> str | None:
        if self.tied and interface.kind.head != "tokens":
            return "`tied` is for the task `language`: only there are items and answers both tokens"
        return super()._mismatch(interface)
