"""Measuring class Gaussians, in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from remix.networks import Backbone
from remix.networks.hooks import Point
from remix.statistics.blocks import feature_point
from remix.statistics.class_gaussians import ClassGaussians, as_correlation
from remix.statistics.measure import Batch, run_meters

__all__ = ["ClassMeter", "class_gaussians", "measure_classes"]


def measure_classes(backbone: Backbone, batches: Iterable[Batch]) -> ClassGaussians:
    """The Gaussians of a backbone's pooled features, from pairs of images and labels.

    Raises:
        ValueError: see `run_meters`; and for batches without labels.

    """
    if not isinstance(backbone, nn.Module):
        raise TypeError(f"a backbone must be an nn.Module, got {type(backbone).__name__}")
    meter = ClassMeter(feature_point(backbone), backbone.pool)
    run_meters(backbone, batches, [meter])
    return meter.gaussians()


def class_gaussians(features: Tensor, labels: Tensor) -> ClassGaussians:
    """The Gaussians of features (N, D) with labels (N,), on the device of the features.

    A class with one sample has no spread of its own: it is given the mean variance of the classes with more samples; if
    there are none, the variance of the class means; and if it is the only class, 0.

    Raises:
        ValueError: for wrong shapes, labels that are not integers from 0 up, or features that are not finite.

    """
    moments = _ClassMoments()
    moments.update(features, labels)
    return moments.gaussians()


class ClassMeter:
    """A meter of pooled features by class.

    Args:
        point: where the feature map is.
        pool: from the feature map to features (N, D).
        keep_features: also keep the features themselves, in memory, for training selectors.
        correlated: whether the Gaussians have correlations; then the features are kept in memory as well.

    """

    def __init__(
        self,
        point: str | Point,
        pool: Callable[[Tensor], Tensor],
        *,
        keep_features: bool = False,
        correlated: bool = False,
    ) -> None:
        self.points = [Point.parse(point)]
        self._pool, self._keep, self._correlated = pool, keep_features or correlated, correlated
        self._moments = _ClassMoments()
        self._features: list[tuple[Tensor, Tensor]] = []

    def update(self, captured: Mapping[Point, Tensor], labels: Tensor | None) -> None:
        """Take in one batch."""
        if labels is None:
            raise ValueError("class Gaussians need labels: give batches of (images, labels)")
        features = self._pool(captured[self.points[0]]).detach()
        self._moments.update(features, labels)
        if self._keep:
            self._features.append((features, labels))

    def gaussians(self) -> ClassGaussians:
        """The Gaussians of what was seen so far. Raises ValueError if nothing was."""
        found = self._moments.gaussians()
        if not self._correlated:
            return found
        features = self.features()
        covariances = [torch.cov(features[label].cpu().double().T, correction=0) for label in found.labels]
        correlation = as_correlation(torch.stack(covariances)).to(found.mean.dtype)
        return replace(found, correlation=correlation.to(found.mean.device))

    def features(self) -> dict[int, Tensor]:
        """By class, the features (n, D) that were kept."""
        if not self._features:
            raise ValueError("no features were kept: make the meter with keep_features=True and run it")
        features = torch.cat([part for part, _ in self._features])
        labels = torch.cat([part for _, part in self._features])
        return {int(label): features[(labels == label).to(features.device)] for label in labels.unique()}


class _ClassMoments:
    """Count, mean and scatter per class in float64, merged batch by batch; rows are in order of first appearance."""

    def __init__(self) -> None:
        self.labels: dict[int, int] = {}
        self.count = torch.zeros(0, dtype=torch.float64)
        self.mean = torch.zeros(0, 0, dtype=torch.float64)
        self.scatter = torch.zeros(0, 0, dtype=torch.float64)
        self.dtype, self.device = torch.float32, torch.device("cpu")

    @torch.no_grad()
    def update(self, features: Tensor, labels: Tensor) -> None:
        self._check(features, labels)
        self.dtype, self.device = torch.promote_types(features.dtype, torch.float32), features.device
        rows = features.detach().to("cpu", torch.float64)
        classes, which, counts = labels.cpu().unique(return_inverse=True, return_counts=True)
        count = counts.double()[:, None]
        mean = torch.zeros(len(classes), rows.shape[1], dtype=torch.float64).index_add_(0, which, rows) / count
        scatter = torch.zeros_like(mean).index_add_(0, which, (rows - mean[which]).square())
        places = self._places(classes.tolist(), rows.shape[1])
        before, shift = self.count[places][:, None], mean - self.mean[places]
        total = before + count
        self.scatter[places] += scatter + shift.square() * before * count / total
        self.mean[places] += shift * count / total
        self.count[places] = total[:, 0]

    def _check(self, features: Tensor, labels: Tensor) -> None:
        if features.dim() != 2 or not features.is_floating_point():
            raise ValueError(f"features must be floating point (N, D), got {tuple(features.shape)} {features.dtype}")
        if self.labels and features.shape[1] != self.mean.shape[1]:
            raise ValueError(f"features changed their length from {self.mean.shape[1]} to {features.shape[1]}")
        if labels.shape != features.shape[:1] or labels.is_floating_point() or labels.dtype == torch.bool:
            raise ValueError(f"labels must be {len(features)} integers, got {tuple(labels.shape)} {labels.dtype}")
        if len(labels) and int(labels.min()) < 0:
            raise ValueError(f"labels must not be negative, got {int(labels.min())}")
        if not bool(torch.isfinite(features).all()):
            raise ValueError("features must be finite, but hold NaN or infinite values")

    def _places(self, classes: list[int], dim: int) -> Tensor:
        new = [label for label in classes if label not in self.labels]
        self.labels.update({label: len(self.labels) + i for i, label in enumerate(new)})
        if new:
            zeros = torch.zeros(len(new), dim, dtype=torch.float64)
            self.count = torch.cat([self.count, zeros[:, 0]])
            self.mean = torch.cat([self.mean.reshape(-1, dim), zeros])
            self.scatter = torch.cat([self.scatter.reshape(-1, dim), zeros])
        return torch.tensor([self.labels[label] for label in classes], dtype=torch.int64)

    def gaussians(self) -> ClassGaussians:
        if not self.labels:
            raise ValueError("no features were seen, so there is no class to describe")
        variance = self.scatter / self.count[:, None]
        single = self.count == 1
        if bool(single.any()):
            variance[single] = variance[~single].mean(0) if not bool(single.all()) else self.mean.var(0, correction=0)
        labels = sorted(self.labels)
        order = torch.tensor([self.labels[label] for label in labels])
        counts = tuple(int(count) for count in self.count[order])
        mean, std = (tensor.to(self.dtype).to(self.device) for tensor in (self.mean[order], variance[order].sqrt()))
        return ClassGaussians(tuple(labels), counts, mean, std)
