"""FeCAM's classifier (Goswami et al., 2023): a covariance per class, on a frozen network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from remix.methods.class_metrics import class_metric, metric_left_out, metrics_left_out
from remix.methods.exact import Exact
from remix.methods.registry import method
from remix.networks import ExactHead, ExactQuadraticHead, FeatureMap
from remix.statistics import ClassSums, ScatterKind

__all__ = ["Fecam"]

_GRID = (0.3, 1.0, 3.0, 10.0, 30.0)
_SIDE_BY_SIDE, _MOST = 512, 1024  # features: a matrix per class of 1 MB, and of 4 MB


@method("fecam")
@dataclass(frozen=True)
class Fecam(Exact):
    """FeCAM: a frozen network, and of every class the mean and a covariance of its own, shrunk and made a correlation.

    Features are roots of unit length, unless ``rooted`` is false. Other settings as in `Exact`.

    Args:
        shrinkage: how often the mean variance is added to a class's covariance, and its mean covariance; 1 is
            published. Chosen by default.

    """

    own: ClassVar[bool] = True
    shrinkage: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shrinkage is not None and not 0 < self.shrinkage < 1e6:
            raise ValueError(f"shrinkage must be above 0 and below a million, got {self.shrinkage}")

    def most(self) -> int:
        """Fewer, since every class has a matrix."""
        return _SIDE_BY_SIDE

    def forms(self) -> Sequence[bool]:
        """Roots of unit length."""
        return (self.rooted is not False,)

    def kind(self, dim: int) -> ScatterKind:
        """Matrices."""
        if dim > _MOST:
            raise ValueError(
                f"the method fecam keeps a matrix per class, of at most {_MOST:,} features, and there are {dim:,}: "
                "choose lda, which keeps one"
            )
        return "dense"

    def strengths(self, x: Tensor) -> Sequence[float]:
        """About what is published."""
        return _GRID if self.shrinkage is None else (self.shrinkage,)

    def tried(self, mean: Tensor, x: Tensor, labels: Tensor, strengths: Sequence[float]) -> Tensor:
        """By the metric of its class without the image."""
        return metrics_left_out(mean, strengths, x, labels)

    def tested(self, sums: ClassSums, head: ExactHead, x: Tensor, labels: Tensor) -> Tensor:
        """The same."""
        assert isinstance(head, ExactQuadraticHead)
        scores = []
        for label, (mean, metric) in enumerate(zip(head.mean, head.precision, strict=True)):
            away, own = x - mean, labels == label
            distances = ((away @ metric) * away).sum(1)
            if bool(own.any()):
                covariance = _covariance(sums, label)
                distances[own] = metric_left_out(covariance, metric, sums.strength, sums.counts[label], away[own])
            scores.append(-distances)
        return torch.stack(scores, 1)

    def solved(self, sums: ClassSums, map: FeatureMap, task_sizes: Sequence[int]) -> ExactHead:
        """A metric per class."""
        metrics = [class_metric(_covariance(sums, label), sums.strength) for label in range(len(sums.labels))]
        return ExactQuadraticHead(map, task_sizes, sums.mean, torch.stack(metrics))


def _covariance(sums: ClassSums, label: int) -> Tensor:
    return sums.scatter.matrix(label) / sums.counts[label]
