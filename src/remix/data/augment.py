"""Random crops and flips of a whole batch at once, on its device, from an explicit generator."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from remix.data.errors import DataError

__all__ = ["Augment"]


@dataclass(frozen=True)
class Augment:
    """Each image is cropped at random out of itself with a border of zeros, and mirrored with probability 1/2.

    It is applied after normalisation, so that the border is the mean colour.

    Attributes:
        crop_padding: width of the border in pixels; 0 means no crop.
        flip: whether images are mirrored left to right. Not for digits.

    """

    crop_padding: int = 4
    flip: bool = True

    def __post_init__(self) -> None:
        if self.crop_padding < 0:
            raise DataError(f"crop_padding must be 0 or more pixels, got {self.crop_padding}")

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """A random view of each image, (B, C, H, W) to the same shape.

        Draws the same numbers whatever the images are, from ``generator`` (of any device).
        """
        count, channels, height, width = images.shape
        source, device = generator.device, images.device
        border = self.crop_padding
        shifts = torch.randint(0, 2 * border + 1, (2, count, 1), generator=generator, device=source).to(device)
        mirrored = torch.rand(count, 1, generator=generator, device=source).to(device) < 0.5
        if not border and not self.flip:
            return images
        columns = torch.arange(width, device=device)
        if self.flip:
            columns = torch.where(mirrored, columns.flip(0), columns)
        rows = torch.arange(height, device=device) + shifts[0]
        pixels = (rows * (width + 2 * border)).unsqueeze(2) + (columns + shifts[1]).unsqueeze(1)
        bordered = pad(images, (border,) * 4).flatten(2)
        return bordered.gather(2, pixels.view(count, 1, -1).expand(-1, channels, -1)).view_as(images)
