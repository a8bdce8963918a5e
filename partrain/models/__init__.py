"""Networks by name: the `[model]` table. torch is imported only when a network is built."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

from partrain.config.section import OneOf
from partrain.errors import BadJob
from partrain.models.interface import Interface
from partrain.models.sections import TORCHVISION, Network, UserModel
from partrain.system.memory import memory_limits

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

__all__ = ["AnyModel", "Interface", "build"]

NAMED = 24
"""So many parameters are named where one is not found."""

ASKED = r"tried to allocate (\d+) bytes"
"""What torch says where there is no memory."""


def _which(table: Any) -> str | None:
    """The name of a `[model]` table: one with a colon is torchvision's, or the user's own."""
    name = table.get("name") if isinstance(table, dict) else getattr(table, "name", None)
    if isinstance(name, str) and ":" in name:
        return TORCHVISION if name.startswith("torchvision:") else "user"
    return name if isinstance(name, str) else None


MODELS = {
    "linear": "partrain.models.sections:Linear",
    "mlp": "partrain.models.sections:Mlp",
    "autoencoder": "partrain.models.sections:Autoencoder",
    "lenet": "partrain.models.image_sections:LeNet",
    "cnn": "partrain.models.image_sections:Cnn",
    "resnet": "partrain.models.image_sections:ResNet",
    "rnn": "partrain.models.sequence_sections:Rnn",
    "lstm": "partrain.models.sequence_sections:Lstm",
    "gru": "partrain.models.sequence_sections:Gru",
    "transformer": "partrain.models.sequence_sections:Transformer",
    TORCHVISION: "partrain.models.image_sections:TorchVision",
    "user": "partrain.models.sections:UserModel",
}

AnyModel = Annotated[Network, OneOf(MODELS, _which)]


def build(section: AnyModel, folder: Path, interface: Interface) -> nn.Module:
    """The network a `[model]` table describes, initialised from torch's default generator; `folder` holds the job.

    Raises BadJob where it does not fit its items, or has no such parameters to freeze.
    """
    if obstacle := section.fits(interface):
        raise BadJob(f"[model] {obstacle}")
    if isinstance(section, UserModel):
        from torch import nn

        from partrain.config import usercode

        module = usercode.make("model", section, folder, nn.Module, "torch.nn.Module")
        _settle(module, interface)
    else:
        module = _ours(section, interface)
    _freeze(module, section.freeze)
    return module


def _ours(section: AnyModel, interface: Interface) -> nn.Module:
    """A network of ours; refused as soon as its parameters, not filled yet, are seen to be more than fits into memory."""
    from torch.nn.modules.module import register_module_parameter_registration_hook

    wanted, free = 0, memory_limits().free

    def too_large(size: int) -> BadJob:
        need = f"its parameters need at least {size / 2**30:,.1f} GiB of memory, and {free / 2**30:,.1f} GiB are free"
        return BadJob(f"[model] `{section.name}` is too large: {need}")

    def weigh(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal wanted
        wanted += parameter.nbytes if parameter is not None else 0
        if wanted > free:
            raise too_large(wanted)

    hook = register_module_parameter_registration_hook(weigh)
    try:
        module: nn.Module = import_module(f"partrain.models.{section.builder}").build(section, interface)
        return module
    except (RuntimeError, TypeError) as error:  # torch's words for a tensor that is too large by itself
        if not (asked := re.search(ASKED, str(error))) and "overflow" not in str(error).lower():
            raise
        raise too_large(wanted + int(asked[1]) if asked else 1 << 63) from None
    finally:
        hook.remove()


def _settle(module: nn.Module, interface: Interface) -> None:
    """Lazy layers (`nn.LazyLinear` and its like) learn their sizes from made-up items."""
    import torch
    from torch.nn.parameter import is_lazy

    tensors = [*module.parameters(), *module.buffers()]
    if any(map(is_lazy, tensors)):
        dtype = torch.int64 if interface.vocabulary is not None else tensors[0].dtype
        with torch.no_grad():
            module.eval()(torch.zeros(2, *interface.item, dtype=dtype))
        module.train()


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
