"""ResNet-18/34/50 for photographs, with the key names that published weights use (conv1, bn1, layer1.0.conv1, ...)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from remix.networks.backbone import Backbone, Block, initialise_convolutions
from remix.networks.registry import register_backbone


class BasicBlock(nn.Module):
    """Two 3x3 convolutions, shortcut, ReLU. (N, C, H, W) -> (N, width, H/stride, W/stride)."""

    expansion = 1

    def __init__(self, in_channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _projection(in_channels, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Run the step."""
        shortcut = x if self.downsample is None else self.downsample(x)
        branch = relu(self.bn1(self.conv1(x)))
        return relu(self.bn2(self.conv2(branch)) + shortcut)


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions, shortcut, ReLU. The stride is that of the 3x3, as in the published weights."""

    expansion = 4

    def __init__(self, in_channels: int, width: int, stride: int) -> None:
        super().__init__()
        out_channels = self.expansion * width
        self.conv1 = nn.Conv2d(in_channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, out_channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.downsample = _projection(in_channels, out_channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Run the step."""
        shortcut = x if self.downsample is None else self.downsample(x)
        branch = relu(self.bn1(self.conv1(x)))
        branch = relu(self.bn2(self.conv2(branch)))
        return relu(self.bn3(self.conv3(branch)) + shortcut)


def _projection(in_channels: int, out_channels: int, stride: int) -> nn.Sequential | None:
    if stride == 1 and in_channels == out_channels:
        return None
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False), nn.BatchNorm2d(out_channels)
    )


@register_backbone("resnet18", block=BasicBlock, depths=(2, 2, 2, 2))
@register_backbone("resnet34", block=BasicBlock, depths=(3, 4, 6, 3))
@register_backbone("resnet50", block=Bottleneck, depths=(3, 4, 6, 3))
class ImageNetResNet(Backbone):
    """The ImageNet ResNet.

    A stem that divides the size by 4 and four stages of residual blocks. The output is the feature map
    (N, 8 width expansion, H/32, W/32).

    Args:
        block: the residual block, :class:`BasicBlock` or :class:`Bottleneck`.
        depths: number of residual blocks per stage.
        width: channels of the stem; published weights have 64.
        input_shape: (C, H, W) of one image.
        generator: source of the initial weights.

    Raises:
        ValueError: if the width is below 1.

    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: Sequence[int],
        *,
        width: int = 64,
        input_shape: tuple[int, int, int] = (3, 224, 224),
        generator: torch.Generator | None = None,
    ) -> None:
        if width < 1:
            raise ValueError(f"width must be at least 1, got {width}")
        super().__init__(input_shape, feature_dim=8 * width * block.expansion)
        self.conv1 = nn.Conv2d(input_shape[0], width, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        channels = width
        for index, depth in enumerate(depths):
            stage = nn.Sequential()
            for position in range(depth):
                stride = 2 if index > 0 and position == 0 else 1
                stage.append(block(channels, width * 2**index, stride))
                channels = width * 2**index * block.expansion
            self.add_module(f"layer{index + 1}", stage)
        self.stages = [f"layer{index + 1}" for index in range(len(depths))]
        initialise_convolutions(self, generator)

    def blocks(self) -> list[Block]:
        """Return the stem and every residual block."""
        # A fresh container around the registered modules: it makes the stem callable alone and adds no keys.
        stem = nn.Sequential(self.conv1, self.bn1, self.relu, self.maxpool)
        blocks = [Block("stem", stem)]
        for stage in self.stages:
            blocks += [Block(f"{stage}.{name}", block) for name, block in self.get_submodule(stage).named_children()]
        return blocks
