"""Random views of the images that the network sees in a step; all parts of a batch see the same draw."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample, interpolate

__all__ = ["Augmentation", "Drawn"]

Drawn = Callable[[Tensor, slice], Tensor]
"""From a part of the batch, and which part it is, to what the network sees."""


@dataclass(frozen=True)
class Augmentation:
    """What happens to images on their way into the network, in this order.

    Attributes:
        jitter: the batch is rolled by up to so many pixels along each axis.
        flip: probability that an image is mirrored left to right.
        rotation: of each image, up to so many degrees.
        shift: of each image, up to this fraction of its size.
        scale: of each image, by a factor up to 1 +- this.
        size: (H, W) to which images are resized (bilinear), if they are not of that size already.
        mean: of each channel, taken off at the end.
        std: of each channel, divided by at the end.

    Raises:
        ValueError: for numbers out of range.

    """

    jitter: int = 0
    flip: float = 0.0
    rotation: float = 0.0
    shift: float = 0.0
    scale: float = 0.0
    size: tuple[int, int] | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.jitter < 0 or not 0 <= self.flip <= 1 or not 0 <= self.scale < 1:
            raise ValueError(f"jitter must be 0 or more, flip within 0..1 and scale within 0..1, got {self}")
        if (self.mean is None) != (self.std is None):
            raise ValueError("give both mean and std of the images' normalisation, or neither")
        if self.std is not None and min(self.std) <= 0:
            raise ValueError(f"std must be positive, got {self.std}")

    def draw(self, count: int, generator: torch.Generator) -> Drawn:
        """Draw what a batch of ``count`` images goes through in one step."""
        source = generator.device
        roll = [0, 0]
        if self.jitter:
            roll = torch.randint(-self.jitter, self.jitter + 1, (2,), generator=generator, device=source).tolist()
        mirrored = None
        if self.flip:
            mirrored = torch.rand(count, generator=generator, device=source) < self.flip
        warp = self._draw_warp(count, generator)

        def apply(images: Tensor, part: slice) -> Tensor:
            x = images
            if any(roll):
                x = torch.roll(x, roll, (-2, -1))
            if mirrored is not None:
                x = torch.where(mirrored[part].to(x.device)[:, None, None, None], x.flip(-1), x)
            if warp is not None:
                grid = affine_grid(warp[part].to(x), list(x.shape), align_corners=False)
                x = grid_sample(x, grid, padding_mode="reflection", align_corners=False)
            return self.plain(x, part)

        return apply

    def plain(self, images: Tensor, part: slice) -> Tensor:
        """What the network sees without anything random: resized and normalised images."""
        x = images
        if self.size is not None and tuple(x.shape[-2:]) != self.size:
            x = interpolate(x, self.size, mode="bilinear", align_corners=False)
        if self.mean is not None and self.std is not None:
            x = (x - x.new_tensor(self.mean)[:, None, None]) / x.new_tensor(self.std)[:, None, None]
        return x

    def _draw_warp(self, count: int, generator: torch.Generator) -> Tensor | None:
        """Affine matrices (count, 2, 3), or None."""
        if not (self.rotation or self.shift or self.scale):
            return None
        uniform = torch.rand(count, 4, generator=generator, device=generator.device) * 2 - 1
        angle = uniform[:, 0] * math.radians(self.rotation)
        factor = 1 + uniform[:, 1] * self.scale
        cos, sin = angle.cos() * factor, angle.sin() * factor
        move = 2 * self.shift * uniform[:, 2:]  # affine_grid's axes run from -1 to 1
        return torch.stack([cos, -sin, move[:, 0], sin, cos, move[:, 1]], 1).reshape(-1, 2, 3)
