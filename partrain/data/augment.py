"""Augmentation of images: the `[dataset]` keys `augment`, `standardise`, `mean` and `deviation`. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import Field, PlainValidator, model_validator

from partrain.data.base import DataSection

TRANSFORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "flip": ("RandomHorizontalFlip", {"p": 0.5}),
    "flip-vertical": ("RandomVerticalFlip", {"p": 0.5}),
    "crop": ("RandomCrop", {"padding": 4}),
    "resized-crop": ("RandomResizedCrop", {"scale": [0.6, 1.0]}),
    "rotation": ("RandomRotation", {"degrees": 15}),
    "affine": ("RandomAffine", {"degrees": 10, "translate": [0.1, 0.1], "scale": [0.9, 1.1]}),
    "color": ("ColorJitter", {"brightness": 0.2, "contrast": 0.2, "saturation": 0.2}),
    "erase": ("RandomErasing", {"p": 0.5}),
    "blur": ("GaussianBlur", {"kernel_size": 3}),
    "noise": ("GaussianNoise", {"sigma": 0.1}),
}
"""Our names: the class of torchvision.transforms.v2 and its defaults here."""
SIZED = ("RandomCrop", "RandomResizedCrop", "CenterCrop", "Resize")
"""Classes whose `size` defaults to the size of the images."""


def _check_augment(value: Any) -> Any:
    if not isinstance(value, list) or not value or any(not isinstance(item, str | dict) for item in value):
        raise ValueError('`augment`: expected a list of names and tables, such as ["flip", {name = "rotation", degrees = 10}]')
    for item in value:
        if isinstance(item, dict) and not isinstance(item.get("name"), str):
            raise ValueError("`augment`: a table needs the key `name`")
    return value


class ImageChanges(DataSection):
    """Keys of data sets whose items may be images."""

    augment: Annotated[list[str | dict[str, Any]] | None, PlainValidator(_check_augment)] = None
    """Random changes of training images: names, or tables with a name and parameters of torchvision.transforms.v2. Needs
    `pip install 'partrain[vision]'`."""
    mean: list[float] | None = None
    """Mean of each channel, to subtract from images of numbers in [0, 1]. Requires `deviation`."""
    deviation: list[Annotated[float, Field(gt=0)]] | None = None
    """Standard deviation of each channel, to divide images by. Requires `mean`."""

    @model_validator(mode="after")
    def _whole_normalization(self) -> Self:
        if (self.mean is None) != (self.deviation is None):
            raise ValueError("`mean` and `deviation` go together: one number for each channel")
        if self.mean and self.deviation and len(self.mean) != len(self.deviation):
            raise ValueError("`mean` and `deviation` have as many numbers as images have channels, both")
        if self.mean and getattr(self, "standardise", False):
            raise ValueError("`standardise` computes a mean, and `mean` gives one: keep one of them")
        return self


def resolve(transform: str | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the class of torchvision.transforms.v2, and its arguments, for an entry of `augment`."""
    own = {} if isinstance(transform, str) else {key: value for key, value in transform.items() if key != "name"}
    name = transform if isinstance(transform, str) else str(transform["name"])
    kind, defaults = TRANSFORMS.get(name, (name, {}))
    return kind, defaults | own
