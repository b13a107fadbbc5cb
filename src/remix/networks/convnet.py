"""A small plain network for small grey images, such as 8x8 digits and 28x28 clothes."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from remix.networks.backbone import Backbone, Block, initialise_convolutions
from remix.networks.registry import register_backbone


class ConvolutionBlock(nn.Module):
    """3x3 convolution, BatchNorm and, except in the last block, ReLU."""

    def __init__(self, in_channels: int, channels: int, stride: int, final_relu: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, channels, 3, stride=stride, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(channels)
        self.final_relu = final_relu

    def forward(self, x: Tensor) -> Tensor:
        """Run the step."""
        normalised: Tensor = self.bn(self.conv(x))
        return relu(normalised) if self.final_relu else normalised


@register_backbone("convnet8", input_shape=(1, 8, 8))
@register_backbone("convnet28", input_shape=(1, 28, 28))
class ConvNet(Backbone):
    """Five convolutions with BatchNorm, no shortcuts: width, 2 width, 2 width, 4 width, 4 width channels.

    The second and the fourth halve the image's size. The last has no ReLU, so the features are signed, as a Gaussian
    of a class's features expects. The output is the feature map (N, 4 width, H/4, W/4).

    Args:
        input_shape: (C, H, W) of one image.
        width: channels of the first block.
        generator: source of the initial weights.

    Raises:
        ValueError: if the width is below 1.

    """

    def __init__(
        self, input_shape: tuple[int, int, int], *, width: int = 16, generator: torch.Generator | None = None
    ) -> None:
        if width < 1:
            raise ValueError(f"width must be at least 1, got {width}")
        super().__init__(input_shape, feature_dim=4 * width)
        channels = [input_shape[0], width, 2 * width, 2 * width, 4 * width, 4 * width]
        self.convolutions = nn.ModuleList(
            ConvolutionBlock(channels[i], channels[i + 1], stride=2 if i in (1, 3) else 1, final_relu=i < 4)
            for i in range(5)
        )
        initialise_convolutions(self, generator)

    def blocks(self) -> list[Block]:
        """Return the five convolutions."""
        return [Block(f"convolutions.{name}", block) for name, block in self.convolutions.named_children()]
