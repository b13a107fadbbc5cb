"""Holding the moments of a batch to those of real data, channel by channel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import torch
from torch import Tensor

from remix.inversion.gaussian_forms import Direction, diagonal_kl
from remix.inversion.layer_readings import Remembered, mean_and_squares
from remix.inversion.measurements import LayerMoments, Measurement, Reading
from remix.statistics import LayerStatistics

__all__ = ["MomentDistance", "StatisticsKl"]

Reduction = Literal["sum", "mean"]


class _LayerPenalty:
    def __init__(self, layers: Iterable[LayerStatistics]) -> None:
        self.layers = list(layers)
        if not self.layers:
            raise ValueError("a statistics term needs at least one layer, got none")
        self._moments = [LayerMoments(layer, full=False) for layer in self.layers]
        self._constants = Remembered(self._make)

    @property
    def measurements(self) -> Sequence[Measurement]:
        return self._moments

    @property
    def sizes(self) -> list[int]:
        """Coordinates of every layer."""
        return [layer.dim for layer in self.layers]

    def _make(self, readings: Sequence[Reading]) -> tuple[Tensor, Tensor, Tensor]:
        like = readings[0].average
        origins = [reading.by.layer.mean for reading in readings if isinstance(reading.by, LayerMoments)]
        pairs = zip(origins, self.layers, strict=True)
        shifts = [origin - layer.mean.to(origin) for origin, layer in pairs]
        variances = [layer.variance for layer in self.layers]
        weights = [1 / torch.full((size,), float(size), dtype=torch.float64) for size in self.sizes]
        shift, variance, weight = (
            torch.cat([part.to(like) for part in parts]) for parts in (shifts, variances, weights)
        )
        return shift, variance, weight

    def _read(self, readings: Sequence[Reading]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Of the coordinates of all layers, (sum D,): the batch's mean minus the statistics', the batch's variance,
        the statistics' variance, and 1 / D of the layer.
        """
        origin, variance, weight = self._constants(readings)
        mean, squares = mean_and_squares(readings)
        return mean + origin, (squares - mean.square()).clamp_min(0), variance, weight


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
        super().__init__(layers)
        self.direction: Direction = direction
        self.reduction: Reduction = reduction
        self.eps = eps

    def value(self, readings: Sequence[Reading], count: int) -> Tensor:
        """The divergence."""
        shift, batch, model, weight = self._read(readings)
        total = torch.dot(diagonal_kl(shift, batch, model, self.direction, self.eps), weight)
        return total if self.reduction == "sum" else total / len(self.layers)


class MomentDistance(_LayerPenalty):
    """Distance of batch means and variances to the statistics, summed over layers.

    ``norm``: the Euclidean norms of the two differences, as DeepInversion has it. ``square``: their mean squares.
    ``relative``: mean squares after dividing by the model's standard deviation and variance.
    """

    def __init__(
        self, layers: Iterable[LayerStatistics], measure: Literal["norm", "square", "relative"] = "norm"
    ) -> None:
        super().__init__(layers)
        if measure not in ("norm", "square", "relative"):
            raise ValueError(f"measure must be 'norm', 'square' or 'relative', got {measure!r}")
        self.measure = measure

    def value(self, readings: Sequence[Reading], count: int) -> Tensor:
        """The distance."""
        shift, batch, model, weight = self._read(readings)
        spread = batch - model
        if self.measure == "norm":
            parts = (*shift.split(self.sizes), *spread.split(self.sizes))
            return torch.stack([torch.linalg.vector_norm(part) for part in parts]).sum()
        if self.measure == "square":
            return torch.dot(shift.square() + spread.square(), weight)
        return torch.dot(shift.square() / model + (spread / model).square(), weight)
