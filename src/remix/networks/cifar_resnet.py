"""ResNet-20/32/44/56 for small images: three widths, parameter-free shortcuts, one inversion block per addition."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, relu

from remix.networks.backbone import Backbone, Block, initialise_convolutions
from remix.networks.registry import register_backbone

Padding = Literal["append", "symmetric"]


class Stem(nn.Module):
    """Convolution, BatchNorm, ReLU: images (N, C, H, W) -> (N, width, H / stride, W / stride), rounded up."""

    def __init__(self, in_channels: int, width: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, width, 3, stride=stride, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        """Run the step."""
        return relu(self.bn(self.conv(x)))


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with BatchNorm, plus the shortcut.

    Where the width grows, the stride is 2 and the shortcut takes every second pixel and adds channels of zeros, either
    after the existing ones (``append``) or half before and half after them (``symmetric``). Without ``final_relu`` the
    sum is returned as it is, so the residual stream is signed.
    """

    def __init__(self, in_width: int, width: int, final_relu: bool, padding: Padding) -> None:
        super().__init__()
        self.stride = 1 if in_width == width else 2
        self.final_relu = final_relu
        missing = width - in_width
        self.zero_channels = (0, missing) if padding == "append" else (missing // 2, missing - missing // 2)
        self.conv1 = nn.Conv2d(in_width, width, 3, stride=self.stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)

    def shortcut(self, x: Tensor) -> Tensor:
        """Bring the block's input to the shape of its output, without parameters."""
        if self.stride == 1:
            return x
        before, after = self.zero_channels
        return pad(x[:, :, ::2, ::2], (0, 0, 0, 0, before, after))

    def forward(self, x: Tensor) -> Tensor:
        """Run the step."""
        branch = self.bn2(self.conv2(relu(self.bn1(self.conv1(x)))))
        total: Tensor = branch + self.shortcut(x)
        return relu(total) if self.final_relu else total


@register_backbone("resnet20", depth=20)
@register_backbone("resnet32", depth=32)
@register_backbone("resnet44", depth=44)
@register_backbone("resnet56", depth=56)
class CifarResNet(Backbone):
    """The CIFAR ResNet of depth 6n + 2.

    A stem and 3n residual blocks, in stages of n, n, n - 1 and 1 blocks; the last block is a stage of its own because
    staged training treats it apart. The output is the feature map (N, 4 width, H/4, W/4), divided by the stem's stride.

    Args:
        depth: 6n + 2 with n >= 2, for example 20, 32, 44, 56.
        width: channels of the first stage; doubled by each of the next two.
        final_relu: whether a ReLU follows the addition in every residual block.
        padding: where the shortcut puts its zero channels when the width grows.
        stem_stride: of the first convolution; 2 gives images of 64 pixels the cost and the maps of 32.
        input_shape: (C, H, W) of one image.
        generator: source of the initial weights.

    Raises:
        ValueError: for a depth that is not 6n + 2, a width or stride below 1 or an unknown padding.

    """

    def __init__(
        self,
        depth: int,
        *,
        width: int = 16,
        final_relu: bool = False,
        padding: Padding = "append",
        stem_stride: int = 1,
        input_shape: tuple[int, int, int] = (3, 32, 32),
        generator: torch.Generator | None = None,
    ) -> None:
        if depth < 14 or (depth - 2) % 6:
            raise ValueError(f"depth must be 6n + 2 with n >= 2 (14, 20, 26, 32, ...), got {depth}")
        if width < 1:
            raise ValueError(f"width must be at least 1, got {width}")
        if padding not in ("append", "symmetric"):
            raise ValueError(f"padding must be 'append' or 'symmetric', got {padding!r}")
        if stem_stride < 1:
            raise ValueError(f"stem_stride must be at least 1, got {stem_stride}")
        super().__init__(input_shape, feature_dim=4 * width)
        per_stage = (depth - 2) // 6

        def stage(in_width: int, out_width: int, count: int) -> nn.Sequential:
            widths = [in_width] + [out_width] * count
            return nn.Sequential(*(ResidualBlock(a, b, final_relu, padding) for a, b in pairwise(widths)))

        self.stem = Stem(input_shape[0], width, stem_stride)
        self.stage_1 = stage(width, width, per_stage)
        self.stage_2 = stage(width, 2 * width, per_stage)
        self.stage_3 = stage(2 * width, 4 * width, per_stage - 1)
        self.stage_4 = stage(4 * width, 4 * width, 1)
        self.initialise(generator)

    def initialise(self, generator: torch.Generator | None = None) -> None:
        """Draw new weights; every residual branch starts at zero, so the network starts as its shortcuts."""
        initialise_convolutions(self, generator)
        for module in self.modules():
            if isinstance(module, ResidualBlock):
                nn.init.zeros_(module.bn2.weight)

    def blocks(self) -> list[Block]:
        """Return the stem and every residual block: 3n + 1 blocks."""
        blocks = [Block("stem", self.stem)]
        for stage in ("stage_1", "stage_2", "stage_3", "stage_4"):
            blocks += [Block(f"{stage}.{name}", block) for name, block in getattr(self, stage).named_children()]
        return blocks
