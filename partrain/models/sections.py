"""`[model]` tables: the common keys, user modules, and networks of linear layers. No table imports torch.

Symbols: b items of a batch; k outputs (classes or numbers).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, create_model, model_validator

from partrain.config.section import Section
from partrain.config.usercode import UserCode
from partrain.models.interface import FORMS, Form, Interface, channels_last
from partrain.tasks import KINDS, Kind
from partrain.tasks.kinds import AUTOENCODER, USER, Head

Activation = Literal["relu", "leaky_relu", "elu", "gelu", "silu", "tanh", "sigmoid"]
Count = Annotated[int, Field(ge=1)]
DropoutRate = Annotated[float, Field(ge=0, lt=1)]
TORCHVISION = "torchvision:NAME"
"""Kind of all networks of torchvision."""
TIMM = "timm:NAME"
"""Kind of all networks of timm."""
START_KEYS = ("strict", "rename", "except")
"""Keys for a network's start `from` a file."""
FROM = """File that the network starts from: a run folder, checkpoint, safetensors file or state dict, relative to the job; or a URL
with its SHA-256. Default: the seed draws all parameters."""
EXCEPT = """With `from` or published weights: patterns of names of arrays that keep their random start, such as `head.*` for new
classes."""


if TYPE_CHECKING:

    class StartKeys(Section):
        """The keys that no class statement can declare: `from` and `except` are words of Python."""

else:
    StartKeys = create_model(
        "StartKeys",
        __base__=Section,
        __module__=__name__,
        **{
            "from": (str | None, Field(None, description=FROM)),
            "except": (list[str], Field([], description=EXCEPT)),
        },
    )


class Network(StartKeys):
    """The keys and properties of every network."""

    if TYPE_CHECKING:  # each network declares its own
        name: str = ""

    builder: ClassVar[str] = ""
    """The module of `partrain.models` whose `build(section, interface)` makes the network."""
    implied_task: ClassVar[Kind | None] = None
    """The network's only task, in place of the data set's."""
    accepts: ClassVar[tuple[Form | None, ...]] = ()
    """Forms of items that the network accepts; None: numbers of other shapes."""
    answer_forms: ClassVar[tuple[Head, ...]] = ("outputs",)
    """Forms of answers that the network can give."""
    takes_lengths: ClassVar[bool] = False
    """True if the network takes sequences of unequal length, padded, with their lengths."""
    convolves: ClassVar[bool] = False
    """True if convolutions do most of its work. A CPU then runs faster on images in channels-last order (benchmarks/NOTES.md)."""

    embeds_categories: ClassVar[bool] = False
    """True if the network takes codes of categories among its numbers."""

    freeze: list[str] = []
    """Parameters that are not trained, as patterns of their names: `conv1.*` means all parameters of the layer `conv1`."""
    freeze_statistics: bool = True
    """true: a BatchNorm layer whose parameters are all frozen keeps its running statistics and normalizes by them, also in
    training. false: its statistics follow the training items."""
    strict: bool = True
    """With `from` or published weights. true: a difference in names or shapes is an error. false: the network takes the arrays
    that match."""
    rename: dict[str, str] = {}
    """With `from`: prefixes of names in the file, and their replacements. `{"backbone" = "0"}` reads `backbone.weight` as
    `0.weight`."""

    @model_validator(mode="after")
    def _no_idle_keys(self) -> Self:
        if idle := [
            key for key in START_KEYS if key in self.model_fields_set and self.start_file is None and not self.starts_published
        ]:
            raise ValueError(f"`{idle[0]}` has no effect without `from`, the file whose arrays the network starts with")
        if "freeze_statistics" in self.model_fields_set and not self.freeze:
            raise ValueError("`freeze_statistics` has no effect without `freeze`: it concerns frozen BatchNorm layers")
        return self

    @property
    def start_file(self) -> str | None:
        """The file or run folder that the network starts `from`, relative to the job; None: all arrays are drawn."""
        path: str | None = getattr(self, "from")
        return path

    @property
    def starts_from_items(self) -> bool:
        """True if training items decide some of the first parameters: `models.start_from_items`."""
        return False

    @property
    def starts_published(self) -> bool:
        """True if the network starts with published weights, given by its name."""
        return False

    @property
    def start_exceptions(self) -> list[str]:
        """Patterns of names that keep their initialization: the key `except`."""
        patterns: list[str] = getattr(self, "except")
        return patterns

    def least_batch(self, item: tuple[int, ...]) -> int:
        """Return the smallest batch of items of this shape: 2 if a BatchNorm sees one number of each item."""
        return 1

    def mismatch(self, interface: Interface) -> str | None:
        """Return why this network does not fit these items and answers; None if it fits."""
        if interface.parts and interface.kind.head == "item":
            return "an autoencoder gives back one array of numbers, and the items have several inputs or unequal lengths"
        if interface.unequal and not self.takes_lengths:
            advice = "take rnn, lstm, gru or transformer, a network of your own with forward(items, lengths), or pad the items"
            return f"`{self.name}` takes items of one shape, and the items are sequences of unequal length; {advice}"
        if interface.parts and not interface.unequal:
            return f'`{self.name}` takes one array, and the items have {interface.description}; name a network of your own: "file.py:Class"'
        if interface.form not in self.accepts:
            accepted = " or ".join(FORMS[form] for form in self.accepts if form)
            return f"`{self.name}` takes {accepted}, and the items are {interface.description}"
        if self.convolves and (problem := channels_last(interface.item)):
            return problem
        if interface.kind is not USER and interface.kind.head not in self.answer_forms:
            fitting = ", ".join(kind.name for kind in KINDS.values() if kind.head in self.answer_forms)
            return f"`{self.name}` has no answers for the task `{interface.task}`, only for {fitting}"
        if interface.categories and not self.embeds_categories:
            advice = 'list these columns in `one_hot`, or use name = "tabular"'
            return f"`{self.name}` has no embeddings for the codes of `[dataset] categories`: {advice}"
        return self._mismatch(interface)

    def _mismatch(self, interface: Interface) -> str | None:
        """Return why this network's own settings do not fit; None if they fit."""
        return None


class UserModel(Network, UserCode):
    """Your own `torch.nn.Module`. `name` is its class, or a function that returns it; all other keys are its keyword arguments."""

    table: ClassVar[str] = "model"

    output_key: str | None = None
    """If the network does not return a tensor: the key or attribute of its result that holds the answers, such as `logits`."""

    def mismatch(self, interface: Interface) -> str | None:
        if interface.parts and interface.kind.head == "item":
            return super().mismatch(interface)
        return None


# Fully connected


class Linear(Network):
    """One linear layer: items (b, ...), flattened -> answers (b, k)."""

    builder = "mlp"
    accepts = ("numbers", "series", "images", None)
    answer_forms = ("outputs", "item")

    name: Literal["linear"]


class Mlp(Network):
    """Fully connected network: items (b, ...), flattened -> hidden ... -> answers (b, k), or the items' shape as an autoencoder."""

    builder = "mlp"
    accepts = ("numbers", "series", "images", None)
    answer_forms = ("outputs", "item")

    name: Literal["mlp"]
    hidden: list[Count] = [128]
    """Units of each hidden layer, from input to output; `[]`: a linear model."""
    activation: Activation = "relu"
    """Activation after each hidden layer."""
    output_activation: Literal["none", "relu", "tanh", "sigmoid"] = "none"
    """Activation of the answers. For classes leave it `none`: their loss expects logits."""
    batch_norm: bool = False
    """Put a BatchNorm after each hidden linear layer."""
    dropout: DropoutRate = 0.0
    """Share of hidden units dropped in training."""
    init_range: float | None = Field(None, gt=0, le=1e38)
    """Draw the first weights and biases uniformly from [-init_range, init_range]; default: torch's initialization."""

    def least_batch(self, item: tuple[int, ...]) -> int:
        return 1 + (self.batch_norm and bool(self.hidden))


class TabularNetwork(Network):
    """Network for rows of tables: embeddings of categories and of numbers, residual blocks with LayerNorm -> answers (b, k)."""

    builder = "tabular"
    embeds_categories = True
    accepts = ("numbers",)

    name: Literal["tabular"]
    width: int = Field(128, ge=1)
    """Width of the residual blocks: numbers for each item between two blocks."""
    blocks: int = Field(2, ge=0)
    """Number of residual blocks; 0: the network is linear in the embeddings."""
    hidden: int = Field(256, ge=1)
    """Units of the hidden layer in each block."""
    dropout: DropoutRate = 0.1
    """Share of the hidden units of each block dropped in training; half of this share of the block's outputs."""
    embedding: int = Field(16, ge=1)
    """Largest length of the embedding of a category. A column with few words gets a shorter one: half the number of its words,
    plus 1."""
    periodic: int = Field(8, ge=0)
    """Length of the embedding of each number, made from sines and cosines of learned frequencies. It lets answers change fast
    with a number. 0: the numbers alone."""
    frequencies: int = Field(16, ge=1)
    """Number of learned frequencies of each number."""
    sigma: float = Field(0.1, gt=0)
    """Standard deviation of the frequencies at the start. A larger one lets answers change faster, and overfits sooner."""

    members: int = Field(1, ge=1)
    """Number of members of an ensemble, which share all layers except the first factors of the features and the last layer. They
    train together, each by its own loss; the answer is their mean. 8 members answer better than 1; small tables take half as long
    again, large tables up to four times as long."""
    linear: bool = False
    """Add a linear function of the numbers to the answers, so that answers follow numbers beyond the training items'. For numeric
    targets it starts as their ridge regression, but with loss = "poisson" at 0."""

    @model_validator(mode="after")
    def _frequencies_in_use(self) -> Self:
        idle = [key for key in ("frequencies", "sigma") if key in self.model_fields_set and not self.periodic]
        if idle:
            raise ValueError(f"`{idle[0]}` has no effect with `periodic` = 0: remove it")
        return self

    @property
    def starts_from_items(self) -> bool:
        return self.linear


class Autoencoder(Network):
    """Autoencoder: items (b, ...) -> codes (b, code) -> items. The decoder mirrors the layers of the encoder.

    The module has `encode(items) -> codes` and `decode(codes) -> items`.

    Source: Vincent, Larochelle, Bengio, Manzagol. Extracting and Composing Robust Features with Denoising Autoencoders. 2008.
        doi:10.1145/1390156.1390294
    """

    builder = "autoencoder"
    implied_task = AUTOENCODER
    accepts = ("numbers", "series", "images", None)
    answer_forms = ("item",)

    name: Literal["autoencoder"]
    code: int = Field(32, ge=1)
    """Length of the code: numbers for each item."""
    channels: list[Count] = []
    """For images: output channels of the convolutions before the linear layers. Each halves height and width. `[]`: no
    convolutions."""
    hidden: list[Count] = [128]
    """Units of the linear layers between the item (or the convolutions) and the code."""
    activation: Activation = "relu"
    """Activation after each hidden layer."""
    output_activation: Literal["none", "tanh", "sigmoid"] = "none"
    """Activation of the answer: `sigmoid` suits numbers in [0, 1], such as those of images."""
    batch_norm: bool = False
    """Put a BatchNorm after each layer but the code and the answer."""
    noise: float = Field(0.0, ge=0)
    """Standard deviation of noise added to the items in training (denoising autoencoder). The network learns to remove it."""

    def least_batch(self, item: tuple[int, ...]) -> int:
        return 1 + (self.batch_norm and bool(self.hidden or self.channels))

    def _mismatch(self, interface: Interface) -> str | None:
        if self.channels and interface.form != "images":
            return f"`channels` are for {FORMS['images']}, and the items are {interface.description}"
        return channels_last(interface.item) if self.channels else None
