"""Networks by name: the `[model]` table. torch is imported only when a network is built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag

from partrain.section import Section

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn


class Mlp(Section):
    """Fully connected network: input -> hidden ... -> output; inputs are flattened."""

    name: Literal["mlp"]
    hidden: list[Annotated[int, Field(ge=1)]] = [128]
    """Units of each hidden layer; empty = linear model."""
    activation: Literal["relu", "tanh", "sigmoid", "gelu"] = "relu"
    output_activation: Literal["none", "tanh", "sigmoid"] = "none"
    batch_norm: bool = False
    """BatchNorm after each hidden linear layer."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Share of hidden units dropped in training."""
    init_range: float | None = Field(None, gt=0)
    """Weights and biases uniform in +- this; default: torch's own initialisation."""


class UserModel(Section):
    """The user's own module: all other keys are its keyword arguments."""

    model_config = ConfigDict(extra="allow")

    name: str = Field(pattern=r"^[A-Za-z0-9_./-]+(\.py)?:[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$")
    """`package.module:Class`, or `file.py:Class` beside the job."""


def _which(table: Any) -> str | None:
    """The tag of a `[model]` table: a name with a colon is the user's own."""
    name = table.get("name") if isinstance(table, dict) else getattr(table, "name", None)
    return "user" if isinstance(name, str) and ":" in name else name


AnyModel = Annotated[
    Annotated[Mlp, Tag("mlp")] | Annotated[UserModel, Tag("user")],
    Discriminator(_which),
]


class Task(Section):
    """The `[task]` table: what the network is trained to do; optional where the data set implies it."""

    kind: Literal["classification", "regression"]


def build(section: AnyModel, folder: Path, item_shape: tuple[int, ...], outputs: int) -> nn.Module:
    """The network a `[model]` table describes, initialised from torch's default generator; `folder` holds the job."""
    if isinstance(section, UserModel):
        from partrain.models import user

        return user.build(section, folder)
    from partrain.models import mlp

    return mlp.build(section, item_shape, outputs)
