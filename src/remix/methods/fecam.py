"""FeCAM's classifier (Goswami et al., 2023): a covariance per class, on a frozen network."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from remix.learning.engine import Engine
from remix.methods.class_metrics import class_metric, metric_left_out, metrics_left_out
from remix.methods.exact import Exact, Solved
from remix.methods.registry import method
from remix.networks import ExactQuadraticHead, FeatureMap, Head
from remix.statistics import ClassSums, ScatterKind

__all__ = ["Fecam"]

_GRID = (0.3, 1.0, 3.0, 10.0, 30.0)
_SIDE_BY_SIDE, _MOST = 512, 1024  # features: a matrix per class of 1 MB, and of 4 MB
_MOST_BYTES = 1 << 31  # of all matrices in double precision


@method("fecam")
@dataclass(frozen=True)
class Fecam(Exact):
    """FeCAM: a frozen network, and of every class the mean and a covariance of its own, shrunk and made a correlation.

    Features are roots of unit length, unless ``rooted`` is false. Other settings as in `Exact`.

    Args:
        shrinkage: how often the mean variance is added to a class's covariance, and its mean covariance; 1 is
            published. Chosen by default.

    """

    keeps: ClassVar[str] = "the network, and of every class the mean and the covariance of its features"
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

    def begin(self, engine: Engine) -> None:
        """Refuse more matrices than a machine holds, too."""
        super().begin(engine)
        classes, dim = engine.student.head.num_classes, engine.backbone.feature_dim
        size = 8 * classes * dim**2
        if size > _MOST_BYTES:
            raise ValueError(
                f"the method fecam would keep {classes:,} matrices of {dim} x {dim} numbers, {size / 1e9:.1f} GB: "
                "choose lda, which keeps one"
            )

    def strengths(self, x: Tensor) -> Sequence[float]:
        """About what is published."""
        return _GRID if self.shrinkage is None else (self.shrinkage,)

    def tried(self, mean: Tensor, strengths: Sequence[float], x: Tensor, labels: Tensor, scored: Tensor) -> Tensor:
        """By the metric of its class without the image."""
        return metrics_left_out(mean, strengths, x, labels, scored)

    def solved(self, sums: ClassSums, map: FeatureMap, before: Head, seen: Collection[int]) -> Solved:
        """A metric per class; those of classes without new images stay."""
        kept = before.precision.cpu().double() if isinstance(before, ExactQuadraticHead) else None
        metrics = [
            class_metric(_covariance(sums, label), sums.strength) if kept is None or label in seen else kept[label]
            for label in range(len(sums.labels))
        ]
        head = ExactQuadraticHead(map, before.task_sizes, sums.mean, torch.stack(metrics))
        return Solved(head, partial(_left_out, sums, metrics))


def _left_out(sums: ClassSums, metrics: Sequence[Tensor], x: Tensor, labels: Tensor) -> Tensor:
    """Minus squared distances (N, K) of images (N, D), those from their own classes without them."""
    scores = []
    for label, metric in enumerate(metrics):
        away, own = x - sums.mean[label], labels == label
        distances = ((away @ metric) * away).sum(1)
        if bool(own.any()):
            covariance, count = _covariance(sums, label), sums.counts[label]
            distances[own] = metric_left_out(covariance, metric, sums.strength, count, away[own])
        scores.append(-distances)
    return torch.stack(scores, 1)


def _covariance(sums: ClassSums, label: int) -> Tensor:
    return sums.scatter.matrix(label) / sums.counts[label]
