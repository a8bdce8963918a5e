"""The tables of networks: what all have, the user's own, and those of linear layers. No table needs torch.

Symbols: b items of a batch; k outputs (classes, or numbers to give).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from partrain.config.section import Section
from partrain.config.usercode import UserCode
from partrain.models.interface import FORMS, Form, Interface
from partrain.tasks import Kind

Activation = Literal["relu", "leaky_relu", "elu", "gelu", "silu", "tanh", "sigmoid"]
Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, lt=1)]
TORCHVISION = "torchvision:NAME"
"""What all of torchvision's networks are called together."""


class Network(Section):
    """What every model has."""

    if TYPE_CHECKING:  # each has its own
        name: str = ""

    builder: ClassVar[str] = ""
    """The module of `partrain.models` whose `build(section, interface)` makes the network."""
    implied_task: ClassVar[Kind | None] = None
    """What it is always trained to do, whatever the data set's items are made for."""
    takes: ClassVar[tuple[Form | None, ...]] = ()
    """Items it is for; None: numbers of other shapes, too."""
    gives: ClassVar[tuple[Kind, ...]] = ("classification", "regression", "forecast")
    """Tasks it has answers for."""
    convolves: ClassVar[bool] = False
    """Convolutions do most of its work: on a CPU they take less time where images come with the channels innermost (benchmarks/NOTES.md)."""

    freeze: list[str] = []
    """Parameters that are not trained, as patterns of their names: `conv1.*`. BatchNorm's statistics still follow the items."""

    def fits(self, interface: Interface) -> str | None:
        """What keeps this network from items and answers like these; None if nothing does."""
        if interface.form not in self.takes:
            wanted = " or ".join(FORMS[form] for form in self.takes if form)
            return f"`{self.name}` takes {wanted}, and the items are {interface.in_words}"
        if interface.task not in (*self.gives, "user"):
            return f"`{self.name}` has no answers for the task `{interface.task}`, only for {', '.join(self.gives)}"
        return self._obstacle(interface)

    def _obstacle(self, interface: Interface) -> str | None:
        """What else its own settings do not allow."""
        return None


class UserModel(Network, UserCode):
    """The user's own module: all other keys are its keyword arguments."""

    def fits(self, interface: Interface) -> str | None:
        return None


# Fully connected


class Linear(Network):
    """One linear layer: items (b, ...), flattened -> answers (b, k)."""

    builder = "mlp"
    takes = ("numbers", "series", "images", None)
    gives = ("classification", "regression", "forecast", "autoencoder")

    name: Literal["linear"]


class Mlp(Network):
    """Fully connected network: items (b, ...), flattened -> hidden ... -> answers (b, k), or of the items' shape as an autoencoder."""

    builder = "mlp"
    takes = ("numbers", "series", "images", None)
    gives = ("classification", "regression", "forecast", "autoencoder")

    name: Literal["mlp"]
    hidden: list[Count] = [128]
    """Units of each hidden layer; empty = linear model."""
    activation: Activation = "relu"
    output_activation: Literal["none", "relu", "tanh", "sigmoid"] = "none"
    batch_norm: bool = False
    """BatchNorm after each hidden linear layer."""
    dropout: Share = 0.0
    """Share of hidden units dropped in training."""
    init_range: float | None = Field(None, gt=0, le=1e38)
    """Weights and biases uniform in +- this; default: torch's own initialisation."""


class Autoencoder(Network):
    """Items (b, ...) -> codes (b, code) -> items again: layers towards the code, and their mirror image back.

    The module has `encode(items) -> codes` and `decode(codes) -> items`. Vincent, Larochelle, Bengio, Manzagol. Extracting and
    Composing Robust Features with Denoising Autoencoders. 2008. doi:10.1145/1390156.1390294
    """

    builder = "autoencoder"
    implied_task = "autoencoder"
    takes = ("numbers", "series", "images", None)
    gives = ("autoencoder",)

    name: Literal["autoencoder"]
    code: int = Field(32, ge=1)
    """Numbers that an item is squeezed into."""
    channels: list[Count] = []
    """Images: convolutions ahead of the linear layers, each halving height and width; empty: fully connected."""
    hidden: list[Count] = [128]
    """Units of the linear layers between item (or convolutions) and code."""
    activation: Activation = "relu"
    output_activation: Literal["none", "tanh", "sigmoid"] = "none"
    """`sigmoid` for numbers in [0, 1], as those of images."""
    batch_norm: bool = False
    """BatchNorm after each layer but the code and the answer."""
    noise: float = Field(0.0, ge=0)
    """Denoising: standard deviation of noise added to the items in training, which are to come back without it."""

    def _obstacle(self, interface: Interface) -> str | None:
        if self.channels and interface.form != "images":
            return f"`channels` are for {FORMS['images']}, and the items are {interface.in_words}"
        return None
