"""Networks by name: the `[model]` table. Only `build` imports torch."""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

from partrain.config.problems import Finding, WrongValue
from partrain.config.python_objects import PYTHON
from partrain.config.section import OneOf
from partrain.errors import UserCodeFailed
from partrain.models.interface import Interface
from partrain.models.sections import TIMM, TORCHVISION, Network, UserModel
from partrain.seeds import derive, seeded
from partrain.system.memory import memory_limits

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import nn

__all__ = ["START_ITEMS", "AnyModel", "Interface", "build", "build_drawn", "start_from_items"]

START_ITEMS = 100_000
"""Largest number of training items, at equal distances, that decide first parameters (`start_from_items`)."""
FAILED_ALLOCATION = r"tried to allocate (\d+) bytes"
"""Pattern of torch's message for a failed allocation."""


def _kind(table: Any) -> str | None:
    """Return the kind of a `[model]` table: its name, or for a name with a colon TORCHVISION, TIMM or `user`."""
    name = table.get("name") if isinstance(table, dict) else getattr(table, "name", None)
    if name == PYTHON:
        return "user"
    if isinstance(name, str) and ":" in name:
        return {"torchvision": TORCHVISION, "timm": TIMM}.get(name.partition(":")[0], "user")
    return name if isinstance(name, str) else None


MODELS = {
    "linear": "partrain.models.sections:Linear",
    "mlp": "partrain.models.sections:Mlp",
    "tabular": "partrain.models.sections:TabularNetwork",
    "autoencoder": "partrain.models.sections:Autoencoder",
    "lenet": "partrain.models.image_sections:LeNet",
    "cnn": "partrain.models.image_sections:Cnn",
    "resnet": "partrain.models.image_sections:ResNet",
    "rnn": "partrain.models.sequence_sections:Rnn",
    "lstm": "partrain.models.sequence_sections:Lstm",
    "gru": "partrain.models.sequence_sections:Gru",
    "bag": "partrain.models.sequence_sections:Bag",
    "transformer": "partrain.models.sequence_sections:Transformer",
    TORCHVISION: "partrain.models.image_sections:TorchVision",
    TIMM: "partrain.models.image_sections:Timm",
    "user": "partrain.models.sections:UserModel",
}

AnyModel = Annotated[Network, OneOf(MODELS, _kind)]


def build(section: AnyModel, folder: Path, interface: Interface) -> nn.Module:
    """Build the network of a `[model]` table. torch's default generator draws its parameters; `folder` holds the job.

    Raises WrongValue if the network does not fit the data set's items, or if no parameter matches a pattern of `freeze`.
    """
    if mismatch := section.mismatch(interface):
        raise WrongValue(Finding(("model", "name"), mismatch))
    if isinstance(section, UserModel):
        from torch import nn

        from partrain.config import usercode
        from partrain.models.several import take_output, take_several
        from partrain.models.ties import keep_ties

        module = usercode.make("model", section, folder, nn.Module, "torch.nn.Module")
        if interface.parts:
            take_several(module, section.name, interface)
        if section.output_key is not None:
            take_output(module, section.output_key)
        _materialize_lazy_layers(module, interface)
        keep_ties(module, section.called)
        for name, parameter in module.named_parameters():
            if parameter._post_accumulate_grad_hooks:  # torch accumulates no `.grad` here: gradients go to the worker's row
                what = f"`{name}` has a hook of `register_post_accumulate_grad_hook`, which partrain does not call"
                raise UserCodeFailed(f"[model] name: `{section.called}`: {what}; use `register_hook`")
    else:
        module = _build_known(section, interface)
        if interface.parts:
            from partrain.models.several import take_several

            take_several(module, section.name, interface)
    if section.freeze:
        from partrain.models.freeze import freeze

        freeze(module, section)
    return module


def build_drawn(section: AnyModel, folder: Path, interface: Interface, seed: int) -> nn.Module:
    """Build the network with the draws of a job's `seed`: workers and later commands make the same network. See `build`."""
    with seeded(derive(seed, "init")):
        return build(section, folder, interface)


def start_from_items(section: AnyModel, module: nn.Module, inputs: NDArray[Any], targets: NDArray[Any]) -> None:
    """Set those parameters of a drawn network that training items (n, ...) and targets decide, if its table `starts_from_items`."""
    import_module(f"partrain.models.{section.builder}").start_from_items(module, inputs, targets)


def _build_known(section: AnyModel, interface: Interface) -> nn.Module:
    """Build a network of this package. Raise WrongValue while it is built, as soon as its parameters exceed the free memory."""
    from torch.nn.modules.module import register_module_parameter_registration_hook

    registered, free = 0, memory_limits().free

    def too_large(size: int) -> WrongValue:
        need = f"its parameters need at least {size / 2**30:,.1f} GiB of memory, and {free / 2**30:,.1f} GiB are free"
        return WrongValue(Finding(("model",), f"`{section.name}` is too large: {need}"))

    def count(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal registered
        registered += parameter.nbytes if parameter is not None else 0
        if registered > free:
            raise too_large(registered)

    hook = register_module_parameter_registration_hook(count)
    try:
        module: nn.Module = import_module(f"partrain.models.{section.builder}").build(section, interface)
        return module
    except (RuntimeError, TypeError) as error:  # a single tensor is too large
        if not (failed := re.search(FAILED_ALLOCATION, str(error))) and "overflow" not in str(error).lower():
            raise
        raise too_large(registered + int(failed[1]) if failed else 1 << 63) from None
    finally:
        hook.remove()


def _materialize_lazy_layers(module: nn.Module, interface: Interface) -> None:
    """Give lazy layers, such as `nn.LazyLinear`, their sizes by a forward pass of zeros."""
    import torch
    from torch.nn.parameter import is_lazy

    tensors = [*module.parameters(), *module.buffers()]
    if any(map(is_lazy, tensors)):
        dtype = torch.int64 if interface.vocabulary is not None else tensors[0].dtype
        with torch.no_grad():
            if interface.parts:
                from partrain.models.several import zeros

                module.eval()(zeros(interface, 2, dtype))
            else:
                module.eval()(torch.zeros(2, *interface.item, dtype=dtype))
        module.train()
