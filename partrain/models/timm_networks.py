"""The networks of timm: `[model] name = "timm:NAME"`. They need the extra `timm`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from torch import nn

from partrain.config.problems import Finding, WrongValue, did_you_mean
from partrain.models.vision import made
from partrain.system.torchvision import import_torchvision

if TYPE_CHECKING:
    from partrain.models import Interface
    from partrain.models.image_sections import Timm


def build(section: Timm, interface: Interface) -> nn.Module:
    """Build a network: images (batch, channels, height, width) -> (batch, outputs).

    Published weights take three channels: a single channel is then repeated.
    """
    import_torchvision("torchvision")  # timm also imports it
    timm, name = import_module("timm"), section.model
    if not timm.is_model(name):
        near = did_you_mean(name, timm.list_models())
        hint = f"did you mean `{near}`?" if near else "`timm.list_models()` lists them"
        raise WrongValue(Finding(("model", "name"), f"timm has no model `{name}`", hint))
    channels = interface.item[0]
    repeats = channels == 1 and (section.starts_published or section.start_file is not None)
    return made(
        f"timm's `{name}`",
        lambda: timm.create_model(
            name, pretrained=False, num_classes=interface.answer[-1], in_chans=3 if repeats else channels, **section.arguments
        ),
        interface,
        repeats=repeats,
    )
