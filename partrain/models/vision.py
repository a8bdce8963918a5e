"""The networks of torchvision.models: `[model] name = "torchvision:NAME"`. They need the extra `vision`."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from partrain.config.problems import Finding, WrongValue, did_you_mean
from partrain.models import FAILED_ALLOCATION
from partrain.system.torchvision import import_torchvision

if TYPE_CHECKING:
    from partrain.models import Interface
    from partrain.models.image_sections import TorchVision

_DEFAULT_ARGUMENTS: dict[str, dict[str, Any]] = {
    "googlenet": {"aux_logits": False, "init_weights": True},
    "inception_v3": {"aux_logits": False, "init_weights": True},
}
"""Arguments for networks that otherwise return auxiliary answers in training."""

_SIZES = 32, 64, 96, 128, 192, 224, 299
"""Heights and widths to try for a hint if the data set's images are too small."""


def build(section: TorchVision, interface: Interface) -> nn.Module:
    """Build a network: images (batch, 1 or 3, height, width) -> (batch, outputs). A single channel is repeated three times."""
    models, name = import_torchvision("torchvision.models"), section.model
    builders = models.list_models(module=models)
    if name not in builders:
        near = did_you_mean(name, builders)
        hint = f"did you mean `{near}`?" if near else f"it has {', '.join(builders)}"
        raise WrongValue(Finding(("model", "name"), f"torchvision has no model `{name}`", hint))
    arguments = dict(_DEFAULT_ARGUMENTS.get(name, {}))
    if arguments and section.starts_published:  # these weights were trained so, and torchvision sets it for them
        arguments["transform_input"] = True
    arguments |= section.arguments
    return made(
        f"torchvision's `{name}`",
        lambda: models.get_model(name, weights=None, num_classes=interface.answer[-1], **arguments),
        interface,
        repeats=interface.item[0] == 1,
    )


def made(label: str, make: Callable[[], nn.Module], interface: Interface, *, repeats: bool) -> nn.Module:
    """Make a network of a package and try it on the meta device. `repeats`: a single channel is repeated three times.

    Raises BadJob, with `label`, if its arguments or the size of the images do not fit.
    """
    module: nn.Module | None = None
    try:
        module = make()
        if repeats:
            module.register_forward_pre_hook(_repeat_channel)
        _dry_run(module, interface)
    except (TypeError, ValueError, RuntimeError, AssertionError) as error:
        if re.search(FAILED_ALLOCATION, str(error)):
            raise
        words = str(error).splitlines() or [type(error).__name__]
        enough = _size_hint(module, interface) if module is not None else ""
        raise WrongValue(Finding(("model",), f"{label} for {interface.description}: {words[0]}{enough}")) from None
    return module


def _size_hint(module: nn.Module, interface: Interface) -> str:
    """Return a hint for the message: a size of images that works; empty without one."""
    channels, *size = interface.item
    for side in (side for side in _SIZES if side >= max(size)):
        with suppress(TypeError, ValueError, RuntimeError, AssertionError):
            _dry_run(module, replace(interface, item=(channels, side, side)))
            return f"; images of {channels} x {side} x {side} would work"
    return ""


def _dry_run(module: nn.Module, interface: Interface) -> None:
    """Run the network on two items on the meta device, which raises an error if the images are too small."""
    tensors = {name: tensor.to("meta") for name, tensor in module.state_dict(keep_vars=True).items()}
    module.eval()
    torch.func.functional_call(module, tensors, (torch.empty(2, *interface.item, device="meta"),))
    module.train()


def _repeat_channel(module: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    return inputs[0].expand(-1, 3, -1, -1)
