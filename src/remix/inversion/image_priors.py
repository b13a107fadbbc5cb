"""What images look like, whatever they show: smooth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import conv2d, pad

from remix.inversion.measurements import ImageAverage, Measurement, Reading
from remix.inversion.observed import Observed

__all__ = ["ImageNorm", "Smoothness", "TotalVariation", "Variation", "gaussian_kernel"]

Variation = Literal["batch-norms", "map-norms", "absolute", "squared"]


class TotalVariation:
    """Differences between neighbouring pixels.

    ``batch-norms``: the Euclidean norms, over the whole batch, of the differences along x, y and both diagonals, summed
    (DeepInversion). ``map-norms``: the same norms per image and channel, averaged (CLIP inversion). ``absolute``: mean
    |dx| + mean |dy|. ``squared``: per image, the sum of dx^2 + dy^2, averaged over images.

    Raises:
        ValueError: for an unknown kind.

    """

    def __init__(self, kind: Variation = "absolute") -> None:
        if kind not in get_args(Variation):
            raise ValueError(f"unknown total variation {kind!r}; there are: {', '.join(get_args(Variation))}")
        self.kind = kind
        self.measurements: Sequence[Measurement] = [ImageAverage(self._per_image)]

    def _per_image(self, seen: Observed) -> Tensor:
        differences = _differences(seen.variable)
        if self.kind == "batch-norms":
            return torch.stack([d.square().sum((1, 2, 3)) for d in differences], 1)
        if self.kind == "map-norms":
            return torch.stack([_safe_root(d.square().sum((2, 3))).mean(1) for d in differences], 1).sum(1)
        if self.kind == "absolute":
            return sum((d.abs().mean((1, 2, 3)) for d in differences[:2]), seen.variable.new_zeros(()))
        return sum((d.square().sum((1, 2, 3)) for d in differences[:2]), seen.variable.new_zeros(()))

    def value(self, readings: Sequence[Reading], count: int) -> Tensor:
        """The variation."""
        average = readings[0].average
        return _safe_root(average * count).sum() if self.kind == "batch-norms" else average


class Smoothness:
    """Mean squared difference between an image and its Gaussian blur: MSE(x, G * x), edges mirrored."""

    def __init__(self) -> None:
        self.measurements: Sequence[Measurement] = [ImageAverage(self._per_image)]

    @staticmethod
    def _per_image(seen: Observed) -> Tensor:
        x = seen.variable
        channels = x.shape[1]
        kernel = gaussian_kernel().to(x).expand(channels, 1, 5, 5)
        blurred = conv2d(pad(x, (2, 2, 2, 2), mode="reflect"), kernel, groups=channels)
        return (x - blurred).square().mean((1, 2, 3))

    def value(self, readings: Sequence[Reading], count: int) -> Tensor:
        """The difference."""
        return readings[0].average


class ImageNorm:
    """Mean square of the pixels."""

    def __init__(self) -> None:
        self.measurements: Sequence[Measurement] = [ImageAverage(lambda seen: seen.variable.square().mean((1, 2, 3)))]

    def value(self, readings: Sequence[Reading], count: int) -> Tensor:
        """The mean square."""
        return readings[0].average


def gaussian_kernel() -> Tensor:
    """The 5 x 5 kernel with exponents -((i - 2) / 2)^2 - ((j - 2) / 2)^2, summing to 1."""
    line = torch.exp(-((torch.arange(5, dtype=torch.float64) - 2) / 2).square())
    square = torch.outer(line, line)
    return square / square.sum()


def _differences(x: Tensor) -> list[Tensor]:
    """Along x, y and the two diagonals."""
    return [
        x[..., :, :-1] - x[..., :, 1:],
        x[..., :-1, :] - x[..., 1:, :],
        x[..., :-1, 1:] - x[..., 1:, :-1],
        x[..., :-1, :-1] - x[..., 1:, 1:],
    ]


def _safe_root(squares: Tensor) -> Tensor:
    """The square root, with gradient 0 instead of NaN at 0."""
    zero = squares == 0
    return torch.where(zero, 0.0, squares.masked_fill(zero, 1.0).sqrt())
