"""`[model]` tables of networks for images.

Symbols: b items of a batch; images of c channels, h x w; k outputs (classes or numbers).
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from partrain.models.interface import Interface
from partrain.models.sections import TIMM, TORCHVISION, Activation, Count, DropoutRate, Network


class ImageNetwork(Network):
    accepts = ("images",)
    convolves = True


class LeNet(ImageNetwork):
    """LeNet-5: images (b, c, h, w) -> answers (b, k). Images below 32 x 32 are padded. For MNIST it has 61,706 parameters.

    It differs from the paper in two usual ways: every map of the second convolution sees all maps of the first, and the last
    layer is linear.

    Source: LeCun, Bottou, Bengio, Haffner. Gradient-Based Learning Applied to Document Recognition. 1998. doi:10.1109/5.726791
    """

    builder = "cnn"

    name: Literal["lenet"]
    activation: Activation = "tanh"
    """Activation after each layer but the last."""
    pooling: Literal["average", "max"] = "average"
    """Pooling after each convolution."""


class Cnn(ImageNetwork):
    """Convolutional network: images (b, c, h, w) -> stages of convolutions, activation, pooling -> dense layers -> answers (b, k)."""

    builder = "cnn"

    name: Literal["cnn"]
    channels: list[Count] = Field([32, 64], min_length=1)
    """Output channels of each stage. The number of entries is the number of stages."""
    convolutions: int = Field(1, ge=1)
    """Number of convolutions in each stage, before its pooling."""
    kernel: int = Field(3, ge=1)
    """Height and width of each convolution kernel: an odd number. Padding keeps the size of the image."""
    pool: int = Field(2, ge=1)
    """Factor by which the pooling of each stage shrinks height and width; 1: no pooling."""
    pooling: Literal["max", "average"] = "max"
    """Kind of pooling at the end of each stage."""
    global_pool: bool = False
    """Average each channel over the image that remains, before the dense layers."""
    dense: list[Count] = [128]
    """Units of the linear layers between the convolutions and the last layer, which answers."""
    activation: Activation = "relu"
    """Activation after each layer but the last."""
    batch_norm: bool = False
    """Put a BatchNorm after each convolution."""
    dropout: DropoutRate = 0.0
    """Share of the inputs of each dense layer and of the last layer dropped in training."""

    @field_validator("kernel")
    @classmethod
    def _odd(cls, kernel: int) -> int:
        if kernel % 2 == 0:
            raise ValueError(f"`kernel`: expected an odd number, got {kernel}: an even kernel has no middle")
        return kernel

    def _mismatch(self, interface: Interface) -> str | None:
        _, height, width = interface.item
        for stage in range(1, len(self.channels) + 1):
            height, width = height // self.pool, width // self.pool
            if not (height and width):
                return f"pooling by {self.pool} in {len(self.channels)} stages leaves nothing of {interface.description} after stage {stage}"
        return None


class ResNet(ImageNetwork):
    """Residual network (ResNet): images (b, c, h, w) -> answers (b, k), for small images (CIFAR form) or large ones (ImageNet form).

    `depth` selects the form. The ImageNet form shrinks height and width 32-fold, the CIFAR form 4-fold. From depth 50 on, the middle
    convolution of a block has the stride, as in torchvision.

    Source: He, Zhang, Ren, Sun. Deep Residual Learning for Image Recognition. 2015. arXiv:1512.03385
    """

    builder = "resnet"

    name: Literal["resnet"]
    depth: Literal[18, 20, 32, 34, 44, 50, 56, 101, 110, 152] = 20
    """Number of layers with weights: 20, 32, 44, 56 or 110 for small images (CIFAR form), 18, 34, 50, 101 or 152 for large ones
    (ImageNet form)."""
    stem: Literal["large", "small"] | None = None
    """First layers of the ImageNet form. `large` (default): a 7 x 7 convolution of stride 2, and max-pooling. `small`: a 3 x 3
    convolution, for small images."""
    norm: Literal["batch", "group"] = "batch"
    """Normalization: BatchNorm or GroupNorm. GroupNorm has no running statistics that could differ between replicas."""
    groups: Literal[1, 2, 4, 8, 16] = 8
    """With `norm = "group"`: channel groups of each GroupNorm."""

    @property
    def cifar(self) -> bool:
        """True for the CIFAR form: three stages of basic blocks, shortcuts without parameters."""
        return self.depth in (20, 32, 44, 56, 110)

    def least_batch(self, item: tuple[int, ...]) -> int:
        shrunk = 4 if self.cifar else 8 if self.stem == "small" else 32
        return 1 + (self.norm == "batch" and max(item[1:], default=shrunk + 1) <= shrunk)

    @model_validator(mode="after")
    def _no_unused_keys(self) -> ResNet:
        if self.norm == "batch" and "groups" in self.model_fields_set:
            raise ValueError('groups would have no effect: norm = "batch"')
        if self.cifar and self.stem:
            raise ValueError(f"stem would have no effect: depth {self.depth} is the CIFAR form, whose stem is always small")
        return self


class Published(Network):
    """The keys of networks whose package publishes weights. Other keys are arguments of the network."""

    model_config = ConfigDict(extra="allow")
    accepts = ("images",)
    convolves = True
    known_as: ClassVar[str] = ""
    reserved: ClassVar[Mapping[str, str]] = {}
    """Arguments that a job may not give, and why."""

    name: str
    """Name with the prefix of its package: `torchvision:vgg16`, `timm:resnet10t`."""
    pretrained: bool = False
    """Start with the default weights of the package. Without `sha256` their file must be on this machine already. With another
    number of classes the last layer keeps its random start."""
    weights: str | None = None
    """Start with the weights of this name, such as torchvision's `IMAGENET1K_V1`, or timm's tag `c3_in1k`."""
    sha256: str | None = Field(None, pattern=r"^[0-9a-fA-F]{64}$")
    """SHA-256 of the file of the weights, 64 hex digits. partrain checks the file, and fetches it if it is not on this
    machine."""

    @property
    def model(self) -> str:
        """Name of the network in its package."""
        return self.name.partition(":")[2]

    @property
    def weights_name(self) -> str | None:
        """Name of the weights to start with; None: the default ones."""
        return self.weights

    @property
    def starts_published(self) -> bool:
        return self.pretrained or self.weights is not None

    @property
    def arguments(self) -> Mapping[str, Any]:
        """Keyword arguments of the network."""
        return self.model_extra or {}

    @model_validator(mode="after")
    def _one_start(self) -> Self:
        for key, reason in self.reserved.items():
            if key in self.arguments:
                raise ValueError(f"{key} {reason}")
        if self.weights is not None and "pretrained" in self.model_fields_set and not self.pretrained:
            raise ValueError("`weights` contradicts `pretrained = false`: keep one")
        if self.starts_published and self.start_file is not None:
            raise ValueError(
                f"`from` and `{'weights' if self.weights else 'pretrained'}` both say how the network starts: keep one"
            )
        if self.sha256 is not None and not self.starts_published:
            raise ValueError("`sha256` has no effect without `pretrained` or `weights`; of a URL in `from` it follows `#sha256=`")
        return self


class TorchVision(Published):
    """`torchvision:NAME`: any classifier of torchvision.models: images (b, 1 or 3, h, w) -> answers (b, k). Further keys are its arguments."""

    builder = "vision"
    known_as: ClassVar[str] = TORCHVISION
    reserved: ClassVar[Mapping[str, str]] = {"num_classes": "comes from the data set"}

    @field_validator("name")
    @classmethod
    def _known_as(cls, name: str) -> str:
        if not name.partition(":")[2].isidentifier():
            raise ValueError('`name`: expected "torchvision:" and a name of torchvision.models, such as "torchvision:resnet50"')
        return name

    def _mismatch(self, interface: Interface) -> str | None:
        if find_spec("torchvision") is None:
            return "torchvision is not installed: pip install 'partrain[vision]'"
        if interface.item[0] not in (1, 3):
            return f"networks of torchvision take images of 3 channels, or of 1 channel, which is repeated, not {interface.description}"
        return None


class Timm(Published):
    """`timm:NAME`: any classifier of timm: images (b, c, h, w) -> answers (b, k). Further keys are its arguments.

    With published weights or `from`, images of one channel are repeated three times.
    """

    builder = "timm_networks"
    known_as: ClassVar[str] = TIMM
    reserved: ClassVar[Mapping[str, str]] = {
        "num_classes": "comes from the data set",
        "in_chans": "comes from the data set",
        "checkpoint_path": "is the key `from` here",
        "pretrained_cfg": "is the key `weights` here",
    }

    @property
    def model(self) -> str:
        return self.name.partition(":")[2].partition(".")[0]

    @property
    def weights_name(self) -> str | None:
        return self.weights or self.name.partition(".")[2] or None

    @field_validator("name")
    @classmethod
    def _known_as(cls, name: str) -> str:
        if not name.partition(":")[2].partition(".")[0].isidentifier():
            raise ValueError('`name`: expected "timm:" and a name of timm.list_models(), such as "timm:resnet10t"')
        return name

    @model_validator(mode="after")
    def _one_tag(self) -> Self:
        if "." in self.name and not self.pretrained:
            tag = self.name.partition(".")[2]
            raise ValueError(f"`name` has the tag `{tag}` of pretrained weights: add `pretrained = true`, or leave the tag out")
        if "." in self.name and self.weights is not None:
            raise ValueError("`name` has a tag, and `weights` names another: keep one")
        return self

    def _mismatch(self, interface: Interface) -> str | None:
        return "timm is not installed: pip install 'partrain[timm]'" if find_spec("timm") is None else None
