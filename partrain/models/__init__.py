"""Networks by name: the `[model]` table. torch is imported only when a network is built."""

from __future__ import annotations

from fnmatch import fnmatchcase
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Discriminator, Tag

from partrain.errors import BadJob
from partrain.models.image_sections import Cnn, LeNet, ResNet, TorchVision
from partrain.models.interface import Interface
from partrain.models.sections import Autoencoder, Linear, Mlp, Network, UserModel
from partrain.models.sequence_sections import Gru, Lstm, Rnn, Transformer

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

__all__ = ["AnyModel", "Interface", "build"]

NAMED = 24
"""So many parameters are named where one is not found."""

BUILDERS: dict[type[Network], str] = {
    Linear: "mlp",
    Mlp: "mlp",
    Autoencoder: "autoencoder",
    LeNet: "cnn",
    Cnn: "cnn",
    ResNet: "resnet",
    Rnn: "recurrent",
    Lstm: "recurrent",
    Gru: "recurrent",
    Transformer: "transformer",
    TorchVision: "vision",
}
"""The module of each: its `build(section, interface)` makes the network."""


def _which(table: Any) -> str | None:
    """The tag of a `[model]` table: a name with a colon is torchvision's, or the user's own."""
    name = table.get("name") if isinstance(table, dict) else getattr(table, "name", None)
    if isinstance(name, str) and ":" in name:
        return TorchVision.known_as if name.startswith("torchvision:") else "user"
    return name


AnyModel = Annotated[
    Annotated[Linear, Tag("linear")]
    | Annotated[Mlp, Tag("mlp")]
    | Annotated[Autoencoder, Tag("autoencoder")]
    | Annotated[LeNet, Tag("lenet")]
    | Annotated[Cnn, Tag("cnn")]
    | Annotated[ResNet, Tag("resnet")]
    | Annotated[Rnn, Tag("rnn")]
    | Annotated[Lstm, Tag("lstm")]
    | Annotated[Gru, Tag("gru")]
    | Annotated[Transformer, Tag("transformer")]
    | Annotated[TorchVision, Tag(TorchVision.known_as)]
    | Annotated[UserModel, Tag("user")],
    Discriminator(_which),
]


def build(section: AnyModel, folder: Path, interface: Interface) -> nn.Module:
    """The network a `[model]` table describes, initialised from torch's default generator; `folder` holds the job.

    Raises BadJob where it does not fit its items, or has no such parameters to freeze.
    """
    if obstacle := section.fits(interface):
        raise BadJob(f"[model] {obstacle}")
    if isinstance(section, UserModel):
        from torch import nn

        from partrain import usercode

        module = usercode.make("model", section, folder, nn.Module, "torch.nn.Module")
    else:
        module = import_module(f"partrain.models.{BUILDERS[type(section)]}").build(section, interface)
    _freeze(module, section.freeze)
    return module


def _freeze(module: nn.Module, patterns: list[str]) -> None:
    """Leave parameters whose names match out of training; one tied to another goes by either name."""
    parameters = dict(module.named_parameters(remove_duplicate=False))
    for pattern in patterns:
        matching = [name for name in parameters if fnmatchcase(name, pattern)]
        if not matching:
            names = [*list(parameters)[:NAMED], *(f"{more} more" for more in [len(parameters) - NAMED] if more > 0)]
            raise BadJob(f'[model] freeze: no parameter is called "{pattern}"; there are {", ".join(names)}')
        for name in matching:
            parameters[name].requires_grad_(False)
    if patterns and not any(parameter.requires_grad for parameter in parameters.values()):
        raise BadJob("[model] freeze: no parameter is left to train")
