"""The networks of torchvision.models: `[model] name = "torchvision:NAME"`; needs the extra `vision`."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from partrain.errors import BadJob
from partrain.models import ASKED

if TYPE_CHECKING:
    from partrain.models import Interface
    from partrain.models.image_sections import TorchVision

_PLAIN: dict[str, dict[str, Any]] = {
    "googlenet": {"aux_logits": False, "init_weights": True},
    "inception_v3": {"aux_logits": False, "init_weights": True},
}
"""Those that would give auxiliary answers in training, too."""

_SIDES = 32, 64, 96, 128, 192, 224, 299
"""Heights and widths of images that are tried where the items' will not do."""

_OPERATORS = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]


def build(section: TorchVision, interface: Interface) -> nn.Module:
    """Images (batch, 1 or 3, height, width) -> (batch, outputs); one channel is shown as three alike."""
    models, name = _models(), section.model
    known = models.list_models(module=models)
    if name not in known:
        near = get_close_matches(name, known, n=1)
        raise BadJob(
            f"[model] torchvision has no model `{name}`; "
            + (f"did you mean `{near[0]}`?" if near else f"it has {', '.join(known)}")
        )
    module: nn.Module | None = None
    try:
        module = models.get_model(
            name, weights=None, num_classes=interface.outputs, **{**_PLAIN.get(name, {}), **section.arguments}
        )
        assert module is not None
        if interface.item[0] == 1:
            module.register_forward_pre_hook(_in_three_channels)
        _try(module, interface)
    except (TypeError, ValueError, RuntimeError, AssertionError) as error:
        if re.search(ASKED, str(error)):
            raise
        words = str(error).splitlines() or [type(error).__name__]
        enough = _enough(module, interface) if module is not None else ""
        raise BadJob(f"[model] torchvision's `{name}` for {interface.in_words}: {words[0]}{enough}") from None
    return module


def _enough(module: nn.Module, interface: Interface) -> str:
    """What size of images would do, where it can be found."""
    channels, *size = interface.item
    for side in (side for side in _SIDES if side >= max(size)):
        with suppress(TypeError, ValueError, RuntimeError, AssertionError):
            _try(module, replace(interface, item=(channels, side, side)))
            return f"; images of {channels} x {side} x {side} would do"
    return ""


def _try(module: nn.Module, interface: Interface) -> None:
    """Two items without numbers, to see whether the images are large enough."""
    tensors = {name: tensor.to("meta") for name, tensor in module.state_dict(keep_vars=True).items()}
    module.eval()
    torch.func.functional_call(module, tensors, (torch.empty(2, *interface.item, device="meta"),))
    module.train()


def _in_three_channels(module: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    return inputs[0].expand(-1, 3, -1, -1)


def _models() -> ModuleType:
    """torchvision.models, also where torchvision's operators were compiled for another build of torch: its networks need none."""
    try:
        return import_module("torchvision.models")
    except RuntimeError as error:
        if "torchvision::nms does not exist" not in str(error):
            raise
        # For CPU builds of torch the registry has no fitting torchvision. It gives meta implementations to these two without a look
        # whether they are there.
        for operator in ("nms", "qnms"):
            schema = f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            _OPERATORS.define(schema)  # type: ignore[no-untyped-call]
        return import_module("torchvision.models")
