"""Holding the moments of a batch to those of real data, channel by channel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import torch
from torch import Tensor

from remix.inversion.gaussian_forms import Direction, diagonal_kl
from remix.inversion.measurements import LayerMoments, Measurement, Reading
from remix.statistics import LayerStatistics

__all__ = ["MomentDistance", "StatisticsKl", "reduce_layers"]

Reduction = Literal["sum", "mean"]


def reduce_layers(values: Sequence[Tensor], reduction: Reduction) -> Tensor:
    """Sum or mean over layers."""
    stacked = torch.stack(list(values))
    return stacked.sum() if reduction == "sum" else stacked.mean()


class _LayerPenalty:
    def __init__(self, layers: Iterable[LayerStatistics], reduction: Reduction) -> None:
        self.layers = list(layers)
        if not self.layers:
            raise ValueError("a statistics term needs at least one layer, got none")
        self.reduction = reduction
        self._moments = [LayerMoments(layer, full=False) for layer in self.layers]

    @property
    def measurements(self) -> Sequence[Measurement]:
        return self._moments


class StatisticsKl(_LayerPenalty):
    """KL divergence between the diagonal Gaussians of the batch and of the statistics, summed or averaged over layers.

    A batch without spread (one image with one position) has a large but finite value.
    """

    def __init__(
        self,
        layers: Iterable[LayerStatistics],
        direction: Direction = "batch-to-model",
        reduction: Reduction = "sum",
        eps: float = 1e-8,
    ) -> None:
        super().__init__(layers, reduction)
        self.direction: Direction = direction
        self.eps = eps

    def value(self, readings: Sequence[Reading], count: int) -> Tensor:
        """The divergence."""
        values = []
        for layer, reading in zip(self.layers, readings, strict=True):
            moments = reading.moments(layer.mean)
            variance = layer.variance.to(moments.mean)
            values.append(diagonal_kl(moments.mean, moments.variance, variance, self.direction, self.eps))
        return reduce_layers(values, self.reduction)


class MomentDistance(_LayerPenalty):
    """Distance of batch means and variances to the statistics, summed over layers.

    ``norm``: the Euclidean norms of the two differences, as DeepInversion has it. ``square``: their mean squares.
    ``relative``: mean squares after dividing by the model's standard deviation and variance.
    """

    def __init__(
        self, layers: Iterable[LayerStatistics], measure: Literal["norm", "square", "relative"] = "norm"
    ) -> None:
        super().__init__(layers, "sum")
        if measure not in ("norm", "square", "relative"):
            raise ValueError(f"measure must be 'norm', 'square' or 'relative', got {measure!r}")
        self.measure = measure

    def value(self, readings: Sequence[Reading], count: int) -> Tensor:
        """The distance."""
        values = []
        for layer, reading in zip(self.layers, readings, strict=True):
            moments = reading.moments(layer.mean)
            variance = layer.variance.to(moments.mean)
            shift, spread = moments.mean, moments.variance - variance
            if self.measure == "norm":
                values.append(torch.linalg.vector_norm(shift) + torch.linalg.vector_norm(spread))
            elif self.measure == "square":
                values.append(shift.square().mean() + spread.square().mean())
            else:
                values.append((shift.square() / variance).mean() + (spread / variance).square().mean())
        return reduce_layers(values, "sum")
