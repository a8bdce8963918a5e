"""The tables of networks for images.

Symbols: b items of a batch; images of c channels, h x w; k outputs (classes, or numbers to give).
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from partrain.models.interface import Interface
from partrain.models.sections import TORCHVISION, Activation, Count, Network, Share


class ImageNetwork(Network):
    takes = ("images",)
    convolves = True


class LeNet(ImageNetwork):
    """LeNet-5: images (b, c, h, w), those below 32 x 32 padded to it -> (b, k); 61,706 parameters for 28 x 28 and 10 classes.

    LeCun, Bottou, Bengio, Haffner. Gradient-Based Learning Applied to Document Recognition. 1998. doi:10.1109/5.726791. Its two
    departures from the paper are the usual ones: every map of the second convolution sees all of the first, and the last layer is linear.
    """

    builder = "cnn"

    name: Literal["lenet"]
    activation: Activation = "tanh"
    pooling: Literal["average", "max"] = "average"


class Cnn(ImageNetwork):
    """Convolutional network: images (b, c, h, w) -> stages of convolution, BatchNorm, activation, pooling -> dense ... -> (b, k)."""

    builder = "cnn"

    name: Literal["cnn"]
    channels: list[Count] = Field([32, 64], min_length=1)
    """Output channels of each stage."""
    convolutions: int = Field(1, ge=1)
    """Convolutions of each stage, ahead of its pooling."""
    kernel: int = Field(3, ge=1)
    """Height and width of a convolution, an odd number: the border is padded, so that height and width stay."""
    pool: int = Field(2, ge=1)
    """Factor by which the pooling of each stage shrinks height and width; 1 = none."""
    pooling: Literal["max", "average"] = "max"
    global_pool: bool = False
    """Average each channel over what is left of the image, ahead of the dense layers."""
    dense: list[Count] = [128]
    """Units of the linear layers after the convolutions."""
    activation: Activation = "relu"
    batch_norm: bool = False
    """BatchNorm after each convolution."""
    dropout: Share = 0.0
    """Share of the inputs of each dense layer, and of the last, dropped in training."""

    @field_validator("kernel")
    @classmethod
    def _odd(cls, kernel: int) -> int:
        if kernel % 2 == 0:
            raise ValueError(f"`kernel`: expected an odd number, got {kernel}: an even one has no middle")
        return kernel

    def _obstacle(self, interface: Interface) -> str | None:
        _, height, width = interface.item
        for stage in range(1, len(self.channels) + 1):
            height, width = height // self.pool, width // self.pool
            if not (height and width):
                return f"pooling by {self.pool} in {len(self.channels)} stages leaves nothing of {interface.in_words} after stage {stage}"
        return None


class ResNet(ImageNetwork):
    """Residual network: images (b, c, h, w) -> (b, k). Depth 20, 32, 44, 56, 110: the CIFAR form; 18, 34, 50, 101, 152: the ImageNet form.

    He, Zhang, Ren, Sun. Deep Residual Learning for Image Recognition. 2015. arXiv:1512.03385. In the ImageNet form height and width
    shrink 32-fold, in the CIFAR form 4-fold. From depth 50 on the stride is in the middle convolution of a block, as in torchvision.
    """

    builder = "resnet"

    name: Literal["resnet"]
    depth: Literal[18, 20, 32, 34, 44, 50, 56, 101, 110, 152] = 20
    stem: Literal["large", "small"] | None = None
    """ImageNet form: `small` begins with one 3 x 3 convolution, for small images, not with 7 x 7, stride 2, and max-pooling."""
    norm: Literal["batch", "group"] = "batch"
    """GroupNorm has no statistics that replicas could disagree on."""
    groups: Literal[1, 2, 4, 8, 16] = 8
    """Groups of channels of each GroupNorm."""

    @property
    def cifar(self) -> bool:
        """Three stages of basic blocks, parameter-free shortcuts."""
        return self.depth in (20, 32, 44, 56, 110)

    @model_validator(mode="after")
    def _only_what_counts(self) -> ResNet:
        if self.norm == "batch" and "groups" in self.model_fields_set:
            raise ValueError('groups would have no effect: norm = "batch"')
        if self.cifar and self.stem:
            raise ValueError(f"stem would have no effect: depth {self.depth} is of the CIFAR form, which begins small")
        return self


class TorchVision(Network):
    """`torchvision:NAME`: any classifier of torchvision.models, untrained; images (b, 1 or 3, h, w) -> (b, k). Other keys are its arguments."""

    model_config = ConfigDict(extra="allow")
    builder = "vision"
    known_as: ClassVar[str] = TORCHVISION
    takes = ("images",)
    convolves = True

    name: str
    """`torchvision:vgg16`, say."""

    @property
    def model(self) -> str:
        """Its name there."""
        return self.name.partition(":")[2]

    @property
    def arguments(self) -> Mapping[str, Any]:
        """Its keyword arguments."""
        return self.model_extra or {}

    @field_validator("name")
    @classmethod
    def _known_as(cls, name: str) -> str:
        if not name.partition(":")[2].isidentifier():
            raise ValueError('`name`: expected "torchvision:" and a name of torchvision.models, as "torchvision:resnet50"')
        return name

    @model_validator(mode="after")
    def _ours_to_say(self) -> TorchVision:
        if "weights" in self.arguments:
            raise ValueError("weights are not fetched: the network begins untrained")
        if "num_classes" in self.arguments:
            raise ValueError("num_classes comes from the data set")
        return self

    def _obstacle(self, interface: Interface) -> str | None:
        if find_spec("torchvision") is None:
            return "torchvision is not installed: pip install 'partrain[vision]'"
        if interface.item[0] not in (1, 3):
            return f"networks of torchvision take images of 3 channels, or of 1 that is repeated, not {interface.in_words}"
        return None
