"""Application of augmentation: transforms of torchvision.transforms.v2, redrawn for each image, seeded for each batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import signature
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from partrain.config.problems import Finding, KeyPath, WrongValue, did_you_mean
from partrain.data.augment import SIZED, TRANSFORMS, resolve
from partrain.errors import UserCodeFailed
from partrain.seeds import seeded
from partrain.system.accelerator import Accelerator
from partrain.system.torchvision import import_torchvision

Augment = Callable[[Any, int], Any]
"""Function of the inputs of a batch and a seed that returns inputs of the same shape and type."""


class ImageAugment:
    """Random changes of images (b, channels, height, width) of numbers in [0, 1]."""

    def __init__(self, wanted: Sequence[str | Mapping[str, Any]], shape: Sequence[int]) -> None:
        """Make the transforms and try them on two images of a `shape` (channels, height, width). WrongValue if they fail."""
        v2 = import_torchvision("torchvision.transforms.v2")
        self._transforms = []
        for index, transform in enumerate(wanted):
            place = ("dataset", "augment", index)
            kind, arguments = resolve(transform)
            _check_names(v2, transform, place)
            if kind in SIZED:
                arguments = {"size": list(shape[1:]), **arguments}
            try:
                self._transforms.append(getattr(v2, kind)(**arguments))
                result = self(torch.rand(2, *shape, generator=torch.Generator().manual_seed(0)), 0)
            except Exception as error:
                text = (str(error) or type(error).__name__).splitlines()[0]
                raise WrongValue(Finding(place, f"{kind} for images {tuple(shape)}: {text}")) from None
            if result.shape != (2, *shape) or result.dtype != torch.float32:
                now = f"{tuple(result.shape[1:])} of {result.dtype}".replace("torch.", "")
                what = f"{kind} turns images {tuple(shape)} into {now}"
                raise WrongValue(Finding(place, what, "keep their shape and type"))

    def __call__(self, images: Tensor, seed: int) -> Tensor:
        """Change each image by separate draws."""
        with _seeded(seed, images.device):
            return torch.stack([self._change(image) for image in images])

    def _change(self, image: Tensor) -> Tensor:
        for transform in self._transforms:
            image = transform(image)
        return image


def _check_names(v2: ModuleType, transform: str | Mapping[str, Any], place: KeyPath) -> None:
    """Raise WrongValue unless torchvision has the class of an entry of `augment`, and the class has its parameters."""
    name = transform if isinstance(transform, str) else str(transform["name"])
    kind, arguments = resolve(transform)
    made = getattr(v2, kind, None)
    if not isinstance(made, type):
        near = did_you_mean(name, [*TRANSFORMS, *(key for key, value in vars(v2).items() if isinstance(value, type))])
        advice = (
            f'did you mean "{near}"?' if near else f"own names: {', '.join(TRANSFORMS)}; or a class of torchvision.transforms.v2"
        )
        raise WrongValue(Finding(place, f'`augment` names "{name}", which torchvision.transforms.v2 does not have', advice))
    taken = list(signature(made).parameters)
    if unknown := [key for key in arguments if key not in taken]:
        near = did_you_mean(unknown[0], taken)
        advice = f"did you mean `{near}`?" if near else f"it has {', '.join(taken)}"
        raise WrongValue(Finding(place, f'`augment`: "{name}" has no parameter `{unknown[0]}`', advice))


class UserAugment:
    """The static method `augment(inputs, generator)` of a user's data set."""

    def __init__(self, method: Callable[[Any, torch.Generator], Any], name: str) -> None:
        self._method, self._name = method, name

    def __call__(self, inputs: Any, seed: int) -> Any:
        """Call it with the inputs of a batch and a seeded generator; UserCodeFailed if shapes or types change."""
        device = next(_tensors(inputs)).device
        generator = torch.Generator(device).manual_seed(seed)
        with _seeded(seed, device), torch.no_grad():
            changed = self._method(inputs, generator)
        before, after = _forms(inputs), _forms(changed)
        if before != after:
            raise UserCodeFailed(f"[dataset] name: `{self._name}`: `augment` turns {before} into {after}; keep shapes and types")
        return changed


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed the default generators, and the accelerator's, for the duration of the block.

    All code that draws from the latter seeds it first.
    """
    with seeded(seed):
        if accelerator := Accelerator.of(device):
            accelerator.seed(seed)
        yield


def _tensors(inputs: Any) -> Iterator[Tensor]:
    yield from inputs.values() if isinstance(inputs, dict) else inputs if isinstance(inputs, tuple) else [inputs]


def _forms(inputs: Any) -> str:
    """Describe shapes and types of the inputs of a batch."""
    if isinstance(inputs, Tensor):
        return f"{str(inputs.dtype).removeprefix('torch.')} {tuple(inputs.shape)}"
    if isinstance(inputs, dict):
        return ", ".join(f"{name} {_forms(value)}" for name, value in inputs.items())
    return ", ".join(map(_forms, inputs)) if isinstance(inputs, tuple) else type(inputs).__name__
