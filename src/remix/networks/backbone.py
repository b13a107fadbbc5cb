"""What the rest of the package may ask of a network: ordered blocks, features from any block to any other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d
from torch.nn.modules.batchnorm import _BatchNorm

from remix.networks.hooks import Point
from remix.networks.views import CHANNELS, View

__all__ = [
    "Backbone", "Block", "Items", "Pooling", "average_pool", "detail_pool", "detail_size", "image_shape",
    "initialise_convolutions",
]  # fmt: skip


_LEAST_SPREAD = 1e-8  # so that the root of the spread of a constant map has a gradient


class Block(NamedTuple):
    """One named step of a backbone. Calling it runs this step alone.

    Attributes:
        name: of the step.
        module: that does it.
        view: how its input is read where statistics of it are taken.

    """

    name: str
    module: nn.Module
    view: View = CHANNELS

    def __call__(self, x: Tensor) -> Tensor:
        """Map the block's input to its output, batch first."""
        result: Tensor = self.module(x)
        return result


class Items(NamedTuple):
    """What a network receives: images, where ``start`` is 0, or the inputs (N, ...) of a later block.

    A network takes them as ``backbone.pooled(*items)``.
    """

    x: Tensor
    start: int = 0


class Pooling(NamedTuple):
    """Which features are read: of blocks, ascending, side by side.

    Attributes:
        blocks: numbers of the blocks.
        detail: pool their outputs by `detail_pool` instead of averaging them.

    """

    blocks: tuple[int, ...]
    detail: bool = False


class Backbone(nn.Module):
    """Base class of backbones: everything is derived from ``blocks()``, the one method to implement.

    Args:
        input_shape: (C, H, W) of one image.
        feature_dim: length of a pooled feature.

    Raises:
        ValueError: if ``input_shape`` is not three numbers from 1 up.

    """

    def __init__(self, input_shape: Sequence[int], feature_dim: int) -> None:
        super().__init__()
        self.input_shape = image_shape(input_shape)
        self.feature_dim = feature_dim

    def blocks(self) -> list[Block]:
        """Return the network's steps in the order in which data flows through them."""
        raise NotImplementedError(f"{type(self).__name__} must implement blocks()")

    def trainable(self, start: int = 0) -> list[nn.Module]:
        """What learns when all from block ``start`` on may: those blocks, unless most of a network stays as it is."""
        return [block.module for block in self.blocks()[start:]]

    def begin_task(self, task: int) -> None:
        """New classes are about to be learned, in a task counted from 0: what keeps a part for each makes room."""

    @property
    def has_batchnorm(self) -> bool:
        """Whether it has BatchNorm layers that keep running statistics."""
        return any(isinstance(module, _BatchNorm) and module.running_mean is not None for module in self.modules())

    def watched(self, start: int = 0) -> list[tuple[Point, View]]:
        """Where the statistics of activations are taken from block ``start`` on, and how they are read.

        Those are the inputs of BatchNorm layers, which know their means and variances by themselves; in a network
        without any, the inputs of its blocks.
        """
        known = {id(module) for block in self.blocks()[start:] for module in block.module.modules()}
        layers: list[tuple[Point, View]] = [
            (Point(name, "input"), CHANNELS)
            for name, module in self.named_modules()
            if isinstance(module, _BatchNorm) and module.running_mean is not None and id(module) in known
        ]
        return layers or self.block_inputs(start)

    def block_inputs(self, start: int = 0) -> list[tuple[Point, View]]:
        """The input of every block from ``start`` on, but for images, and how it is read.

        Layer-wise inversion begins with these statistics. They are those of the residual stream itself: the scale and
        shift of the last BatchNorm before it describe only one branch of the sum.
        """
        blocks = self.blocks()
        return [(self.point(number, "input"), blocks[number].view) for number in range(max(start, 1), len(blocks))]

    def point(self, number: int, side: str) -> Point:
        """Where the input or output of a block can be read.

        Raises:
            ValueError: if the block's module is not part of the network, so that it cannot be watched.

        """
        block = self.blocks()[number]
        names = {id(module): name for name, module in self.named_modules()}
        module = block.module
        while id(module) not in names and isinstance(module, nn.Sequential) and len(module):
            module = module[0 if side == "input" else -1]  # a block of several modules begins with its first
        if id(module) not in names:
            raise ValueError(f"block {block.name!r} is not among the backbone's modules: it cannot be watched")
        return Point(names[id(module)], "input" if side == "input" else "output")

    def features(self, x: Tensor, start: int = 0, stop: int | None = None) -> Tensor:
        """Run the blocks from ``start`` up to, not including, ``stop``; by default all of them.

        Args:
            x: images (N, C, H, W), or what block ``start`` receives.
            start: the first block that runs.
            stop: the first that does not.

        Raises:
            ValueError: if images do not have the channels of ``input_shape``. Their height and width may differ from it
                where the network itself allows that.

        """
        channels = self.input_shape[0]
        if not start and (x.dim() != 4 or x.shape[1] != channels):
            kind = {1: "grey images", 3: "colour images"}.get(channels, "images")
            raise ValueError(
                f"{type(self).__name__} takes a batch of {kind} (N, {channels}, H, W), got shape {tuple(x.shape)}"
            )
        for block in self.blocks()[start:stop]:
            x = block(x)
        return x

    def pool(self, features: Tensor) -> Tensor:
        """Average the output of the last block over positions: (N, feature_dim)."""
        return average_pool(features)

    def pooled(self, x: Tensor, start: int = 0, at: Pooling | None = None) -> Tensor:
        """Pooled features (N, feature_dim) of images or of the inputs of block ``start``.

        Args:
            x: see `features`.
            start: see `features`.
            at: which features are wanted instead of those of the last block.

        Raises:
            ValueError: for a block that is not there, or that lies before ``start``.

        """
        if at is None:
            return self.pool(self.features(x, start))
        found = self.outputs(x, at.blocks, start)
        return torch.cat([self.pool_block(number, y, at.detail) for number, y in zip(at.blocks, found, strict=True)], 1)

    def outputs(self, x: Tensor, blocks: Sequence[int], start: int = 0) -> Iterator[Tensor]:
        """What each of these blocks, ascending, gives. Arguments and errors as of `pooled`."""
        last = len(self.blocks()) - 1
        if not start - 1 <= blocks[0] <= blocks[-1] <= last:
            raise ValueError(f"features of blocks {list(blocks)} cannot be had from block {start} to {last}")
        for number in blocks:
            x, start = self.features(x, start, number + 1), number + 1
            yield x

    def pool_block(self, number: int, output: Tensor, detail: bool = False) -> Tensor:
        """Pooled features (N, D) of what a block gives."""
        if detail and output.dim() == 4:
            return detail_pool(output)
        return self.pool(output) if number == len(self.blocks()) - 1 else average_pool(output)

    def forward(self, x: Tensor) -> Tensor:
        """Same as :meth:`features`."""
        return self.features(x)


def average_pool(features: Tensor) -> Tensor:
    """Average over positions: (N, C, H, W) -> (N, C), tokens (N, L, C) -> (N, C), (N, C) stays as it is.

    Raises:
        ValueError: for any other number of axes.

    """
    if features.dim() == 4:
        return features.mean((2, 3))
    if features.dim() == 3:
        return features.mean(1)
    if features.dim() == 2:
        return features
    raise ValueError(
        f"cannot pool features of shape {tuple(features.shape)}: expected (N, C, H, W), (N, L, C) or (N, C)"
    )


def detail_pool(maps: Tensor) -> Tensor:
    """Means over the quarters of maps (N, C, H, W), and deviations over all positions: (N, 5 C), or less of small maps.

    A class is told by where in the image something is, and by how much it varies; an average forgets both.
    """
    height, width = maps.shape[2:]
    quarters = adaptive_avg_pool2d(maps, (min(height, 2), min(width, 2))).flatten(1)
    if height * width == 1:
        return quarters
    spread = (maps - maps.mean((2, 3), keepdim=True)).square().mean((2, 3))
    return torch.cat([quarters, (spread + _LEAST_SPREAD).sqrt()], 1)


def detail_size(shape: Sequence[int]) -> int:
    """Numbers that `detail_pool` makes of a map (C, H, W)."""
    channels, height, width = shape
    return channels * (min(height, 2) * min(width, 2) + (height * width > 1))


def image_shape(shape: Sequence[int]) -> tuple[int, int, int]:
    """Return ``shape`` as (C, H, W). Raises ValueError if it is not three numbers from 1 up."""
    if len(shape) != 3 or any(size < 1 for size in shape):
        raise ValueError(f"input_shape must be (channels, height, width), each at least 1, got {tuple(shape)}")
    channels, height, width = shape
    return channels, height, width


def initialise_convolutions(network: nn.Module, generator: torch.Generator | None = None) -> None:
    """Give every convolution Kaiming-normal weights (fan-out) and every BatchNorm weight 1 and bias 0, in place."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu", generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
