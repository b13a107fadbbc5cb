"""A convolution of an image enlarged twice, computed on the small image.

Enlarging repeats every pixel, so a 3 x 3 kernel meets each small pixel several times: an output pixel depends on 2 x 2
small ones only, through sums of kernel entries that differ between even and odd rows and columns. Four kernels of
2 x 2 on the small image give the same as one of 3 x 3 on the large one with 16 instead of 36 products per small pixel.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

__all__ = ["DoublingConvolution"]


class DoublingConvolution(nn.Module):
    """(N, C, H, W) -> (N, D, 2 H, 2 W): what ``Upsample(scale_factor=2)`` and ``Conv2d(C, D, 3, padding=1)`` give.

    Attributes:
        weight: (D, C, 3, 3), of the kernel on the large image.
        bias: (D,).

    """

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels_out, channels_in, 3, 3))
        self.bias = nn.Parameter(torch.empty(channels_out))
        for parameter in (self.weight, self.bias):
            bound = (9 * channels_in) ** -0.5
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        kernels = _halves(_halves(self.weight, 2), 4).flatten(0, 2)  # of (column parity, row parity, D, C, 2, 2)
        found = conv2d(x, kernels, self.bias.repeat(4), padding=1)
        images: Tensor = _Interleave.apply(found.unflatten(1, (2, 2, -1)))
        return images


def _halves(kernel: Tensor, axis: int) -> Tensor:
    """Along an axis of three entries, the two entries that count for even and for odd places; these come first."""
    before, at, after = kernel.unbind(axis)
    even, odd = torch.stack([before, at + after], axis), torch.stack([before + at, after], axis)
    return torch.stack([even, odd])


class _Interleave(torch.autograd.Function):
    """(N, 2, 2, D, H + 1, W + 1), by parity of column and row -> (N, D, 2 H, 2 W)."""

    @staticmethod
    def forward(ctx: Any, parts: Tensor) -> Tensor:
        count, _, _, maps, height, width = parts.shape
        height, width = height - 1, width - 1
        out = parts.new_empty(count, maps, height, 2, width, 2)
        for row in (0, 1):
            for column in (0, 1):
                out[:, :, :, row, :, column] = parts[:, column, row, :, row : row + height, column : column + width]
        return out.view(count, maps, 2 * height, 2 * width)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        count, maps, height, width = gradient.shape
        height, width = height // 2, width // 2
        fine = gradient.reshape(count, maps, height, 2, width, 2)
        parts = gradient.new_zeros(count, 2, 2, maps, height + 1, width + 1)
        for row in (0, 1):
            for column in (0, 1):
                parts[:, column, row, :, row : row + height, column : column + width] = fine[:, :, :, row, :, column]
        return parts
