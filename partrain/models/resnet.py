"""The residual networks behind `[model] name = "resnet"`: the paper's forms for CIFAR and for ImageNet.

He, Zhang, Ren, Sun. Deep Residual Learning for Image Recognition. 2015. arXiv:1512.03385
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from partrain.models import Interface
    from partrain.models.image_sections import ResNet

Norm = Callable[[int], nn.Module]

_BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
"""Blocks of each stage in the ImageNet form. In the CIFAR form three stages share (depth - 2) / 2 blocks."""


def build(section: ResNet, interface: Interface) -> nn.Module:
    """Build a network: images (batch, channels, height, width) -> (batch, outputs)."""

    def norm(channels: int) -> nn.Module:
        return nn.BatchNorm2d(channels) if section.norm == "batch" else nn.GroupNorm(section.groups, channels)

    if section.cifar:
        blocks: tuple[int, ...] = ((section.depth - 2) // 6,) * 3
        first = 16
    else:
        blocks, first = _BLOCKS[section.depth], 64
    block: type[_Block] = BottleneckBlock if section.depth in (50, 101, 152) else BasicBlock
    large = not section.cifar and section.stem != "small"
    stem = nn.Conv2d(interface.item[0], first, 7, 2, 3, bias=False) if large else _convolution(interface.item[0], first)
    pooling = [nn.MaxPool2d(3, 2, 1)] if large else []
    layers: list[nn.Module] = [
        stem,
        norm(first),
        *pooling,
        nn.ReLU(),
    ]  # pooling first: the same numbers, with less work for the activation
    channels = first
    for stage, count in enumerate(blocks):
        width, stack = first << stage, nn.Sequential()
        for index in range(count):
            stride = 2 if stage and not index else 1
            stack.append(block(channels, width, stride, norm, projects=not section.cifar))
            channels = width * block.expansion
        layers.append(stack)
    network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, interface.answer[-1]))
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return network


def _convolution(channels: int, outputs: int, stride: int = 1, kernel: int = 3) -> nn.Conv2d:
    return nn.Conv2d(channels, outputs, kernel, stride, kernel // 2, bias=False)


class _Block(nn.Module):
    """y = relu(f(x) + shortcut(x))."""

    expansion = 1
    """Output channels per unit of width."""

    def __init__(self, channels: int, width: int, stride: int, norm: Norm, *, projects: bool) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.residual = self._residual(channels, width, stride, norm)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or channels != outputs:
            projection = nn.Sequential(_convolution(channels, outputs, stride, 1), norm(outputs))
            self.shortcut = projection if projects else PaddedShortcut(stride, outputs - channels)

    def _residual(self, channels: int, width: int, stride: int, norm: Norm) -> nn.Sequential:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.residual(x) + self.shortcut(x))


class BasicBlock(_Block):
    """Residual block of two convolutions."""

    def _residual(self, channels: int, width: int, stride: int, norm: Norm) -> nn.Sequential:
        return nn.Sequential(
            _convolution(channels, width, stride), norm(width), nn.ReLU(),
            _convolution(width, width), norm(width),
        )  # fmt: skip


class BottleneckBlock(_Block):
    """Residual block of three convolutions, the middle one on a quarter of the channels."""

    expansion = 4

    def _residual(self, channels: int, width: int, stride: int, norm: Norm) -> nn.Sequential:
        return nn.Sequential(
            _convolution(channels, width, 1, 1), norm(width), nn.ReLU(),
            _convolution(width, width, stride), norm(width), nn.ReLU(),
            _convolution(width, 4 * width, 1, 1), norm(4 * width),
        )  # fmt: skip


class PaddedShortcut(nn.Module):
    """Shortcut without parameters: every `stride`-th pixel, and zeros for the additional channels."""

    def __init__(self, stride: int, extra: int) -> None:
        super().__init__()
        self.stride, self.extra = stride, extra

    def forward(self, x: Tensor) -> Tensor:
        return functional.pad(
            x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.extra // 2, self.extra - self.extra // 2)
        )
