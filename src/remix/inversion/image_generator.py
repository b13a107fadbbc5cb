"""A network that turns noise into images."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

__all__ = ["DoublingConvolution", "ImageGenerator", "doublings_to", "initialise_uniformly"]


def doublings_to(height: int, width: int) -> int:
    """How often a generator doubles small maps to reach images of this size. Raises ValueError if it cannot."""
    doublings = max(2, (max(height, width) // 8).bit_length() - 1)
    if height % 2**doublings or width % 2**doublings:
        raise ValueError(f"a generator makes images with sides divisible by {2**doublings}, not {height} x {width}")
    return doublings


class ImageGenerator(nn.Module):
    """Noise (N, noise) -> images (N, C, H, W), normalised over the batch by a last BatchNorm without parameters.

    A linear layer to the first maps, then doublings of the size with a convolution each, then Tanh. For 3 x 32 x 32
    images the first maps are 8 x 8 and there are two doublings: 8,423,939 parameters; for 64 pixels three: 8,571,779.
    The eps 0.8 of the inner BatchNorm layers is a slip of the original that its results were made with.

    Args:
        input_shape: (C, H, W) of one image; H and W divisible by 4 (by 8 from 64 pixels up, and so on).
        noise: length of the noise.
        generator: source of the initial weights.
        maps: how many there are before the doublings and after each of two; of further ones, which come first, as
            many as before.
        eps: of the inner BatchNorm layers.

    Raises:
        ValueError: for a size that the doublings do not reach.

    """

    def __init__(
        self,
        input_shape: tuple[int, int, int],
        noise: int = 1000,
        generator: torch.Generator | None = None,
        *,
        maps: tuple[int, int, int] = (128, 128, 64),
        eps: float = 0.8,
    ) -> None:
        super().__init__()
        channels, height, width = input_shape
        doublings = doublings_to(height, width)
        if noise < 1:
            raise ValueError(f"noise needs a length of at least 1, got {noise}")
        self.first_size = (height >> doublings, width >> doublings)
        self.noise = noise
        self.project = nn.Linear(noise, maps[0] * self.first_size[0] * self.first_size[1])
        self.normalise = nn.BatchNorm2d(maps[0])
        widths = [maps[0]] * (doublings - 2) + [*maps]
        self.doublings = nn.ModuleList(
            nn.Sequential(
                DoublingConvolution(a, b),
                nn.BatchNorm2d(b, eps=eps),
                nn.LeakyReLU(0.2),
            )
            for a, b in itertools.pairwise(widths)
        )
        self.paint = nn.Conv2d(maps[-1], channels, 3, padding=1)
        self.finish = nn.BatchNorm2d(channels, affine=False)
        initialise_uniformly(self, generator)

    def forward(self, noise: Tensor) -> Tensor:
        """(N, noise) -> (N, C, H, W)."""
        x = self.normalise(self.project(noise).unflatten(1, (-1, *self.first_size)))
        for step in self.doublings:
            x = step(x)
        images: Tensor = self.finish(torch.tanh(self.paint(x)))
        return images


def initialise_uniformly(network: nn.Module, generator: torch.Generator | None) -> None:
    """Uniform weights and biases within 1 / sqrt(fan in), as torch does by default, from the given generator."""
    for module in network.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            bound = module.weight[0].numel() ** -0.5
            nn.init.uniform_(module.weight, -bound, bound, generator=generator)
            assert module.bias is not None
            nn.init.uniform_(module.bias, -bound, bound, generator=generator)


class DoublingConvolution(nn.Conv2d):
    """(N, C, H, W) -> (N, D, 2 H, 2 W): what ``Upsample(scale_factor=2)`` and ``Conv2d(C, D, 3, padding=1)`` give.

    Enlarging repeats every pixel, so an output pixel depends on 2 x 2 small ones only, through sums of kernel entries
    that differ between even and odd rows and columns. Four kernels of 2 x 2 on the small image give the same as one of
    3 x 3 on the large one with 16 instead of 36 products per small pixel.

    Attributes:
        weight: (D, C, 3, 3), of the kernel on the large image.
        bias: (D,).

    """

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__(channels_in, channels_out, 3)

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        kernels = _halves(_halves(self.weight, 2), 4).flatten(0, 2)  # of (column parity, row parity, D, C, 2, 2)
        assert self.bias is not None
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
