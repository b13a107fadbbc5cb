"""What the network should make of the images (given features or labels, balanced classes), and how smooth they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import conv2d, cross_entropy, pad, softmax

from remix.inversion.terms import Average, BatchAverage, Loss, Seen

__all__ = [
    "ClassBalance",
    "Classify",
    "FeatureMatch",
    "ImageNorm",
    "LabelMatch",
    "SelfConfidence",
    "Smoothness",
    "TotalVariation",
    "class_balance",
    "gaussian_kernel",
]

Classify = Callable[[Tensor], Tensor]
"""From pooled features (n, D) to logits (n, K)."""

Variation = Literal["batch-norms", "map-norms", "absolute"]


class FeatureMatch(Loss):
    """Mean squared difference between the network's output and targets (N, ...) of the same shape.

    Args:
        targets: that are wanted.
        spread: by which the differences are divided, broadcast against the targets; None for as they are.

    """

    def __init__(self, targets: Tensor, spread: Tensor | None = None) -> None:
        def per_image(seen: Seen) -> Tensor:
            difference = seen.output - targets[seen.part]
            return (difference if spread is None else difference / spread).square().flatten(1).mean(1)

        super().__init__(Average(per_image))
        self.targets = targets


class LabelMatch(Loss):
    """Cross-entropy with labels (N,)."""

    def __init__(self, classify: Classify, labels: Tensor) -> None:
        super().__init__(
            Average(lambda seen: cross_entropy(classify(seen.output), labels[seen.part], reduction="none"))
        )


class SelfConfidence(Loss):
    """Cross-entropy of logits / temperature with their own largest entry as label."""

    def __init__(self, classify: Classify, temperature: float) -> None:
        def per_image(seen: Seen) -> Tensor:
            logits = classify(seen.output)
            return cross_entropy(logits / temperature, logits.argmax(1), reduction="none")

        super().__init__(Average(per_image))


class ClassBalance(Loss):
    """How far the batch is from showing all classes equally: 0 if it does, 1 if it shows a single one."""

    def __init__(self, classify: Classify) -> None:
        super().__init__(Average(lambda seen: softmax(classify(seen.output), 1)))

    def value(self, measured: Sequence[BatchAverage], count: int) -> Tensor:
        """The imbalance."""
        return class_balance(measured[0].average)


def class_balance(mean: Tensor) -> Tensor:
    """1 + sum_k p_k ln p_k / ln K for the mean probabilities p (K,) of a batch; 0 for a single class."""
    if len(mean) == 1:
        return mean.sum() * 0
    tiny = 1e-30  # p ln p is 0 at p = 0
    return 1 + (mean * mean.clamp_min(tiny).log()).sum() / math.log(len(mean))


# --- images, whatever they show ---


class TotalVariation(Loss):
    """Differences between neighbouring pixels.

    ``batch-norms``: the Euclidean norms, over the whole batch, of the differences along x, y and both diagonals, summed
    (DeepInversion). ``map-norms``: the same norms of every map of every image, averaged. ``absolute``: mean |dx| +
    mean |dy|.

    Raises:
        ValueError: for an unknown kind.

    """

    def __init__(self, kind: Variation = "absolute") -> None:
        if kind not in get_args(Variation):
            raise ValueError(f"unknown total variation {kind!r}; there are: {', '.join(get_args(Variation))}")
        measures = {"batch-norms": _squared_differences, "map-norms": _norms_of_maps, "absolute": _absolute_differences}
        super().__init__(Average(measures[kind]))
        self.kind = kind

    def value(self, measured: Sequence[BatchAverage], count: int) -> Tensor:
        """The variation."""
        average = measured[0].average
        return _safe_root(average * count).sum() if self.kind == "batch-norms" else average


class Smoothness(Loss):
    """Mean squared difference between an image and its Gaussian blur: MSE(x, G * x), edges mirrored."""

    def __init__(self) -> None:
        def per_image(seen: Seen) -> Tensor:
            x = seen.variable
            channels = x.shape[1]
            kernel = gaussian_kernel().to(x).expand(channels, 1, 5, 5)
            blurred = conv2d(pad(x, (2, 2, 2, 2), mode="reflect"), kernel, groups=channels)
            return (x - blurred).square().mean((1, 2, 3))

        super().__init__(Average(per_image))


class ImageNorm(Loss):
    """Mean square of the pixels."""

    def __init__(self) -> None:
        super().__init__(Average(lambda seen: seen.variable.square().mean((1, 2, 3))))


def gaussian_kernel() -> Tensor:
    """The 5 x 5 kernel with exponents -((i - 2) / 2)^2 - ((j - 2) / 2)^2, summing to 1."""
    line = torch.exp(-((torch.arange(5, dtype=torch.float64) - 2) / 2).square())
    square = torch.outer(line, line)
    return square / square.sum()


def _differences(x: Tensor) -> list[Tensor]:
    """Of neighbours along x, y and the two diagonals."""
    return [
        x[..., :, :-1] - x[..., :, 1:],
        x[..., :-1, :] - x[..., 1:, :],
        x[..., :-1, 1:] - x[..., 1:, :-1],
        x[..., :-1, :-1] - x[..., 1:, 1:],
    ]


def _squared_differences(seen: Seen) -> Tensor:
    """Along four directions, summed over the pixels: (n, 4)."""
    return torch.stack([d.square().sum((1, 2, 3)) for d in _differences(seen.variable)], 1)


def _norms_of_maps(seen: Seen) -> Tensor:
    """Of the differences of every map, averaged over maps and summed over four directions: (n,)."""
    return torch.stack([_safe_root(d.square().sum((2, 3))).mean(1) for d in _differences(seen.variable)]).sum(0)


def _absolute_differences(seen: Seen) -> Tensor:
    """Along x and y, averaged over the pixels: (n,)."""
    x = seen.variable
    along_x, along_y = x[..., :, :-1] - x[..., :, 1:], x[..., :-1, :] - x[..., 1:, :]
    return along_x.abs().mean((1, 2, 3)) + along_y.abs().mean((1, 2, 3))


def _safe_root(squares: Tensor) -> Tensor:
    """The square root, with gradient 0 instead of NaN at 0."""
    zero = squares == 0
    return torch.where(zero, 0.0, squares.masked_fill(zero, 1.0).sqrt())
