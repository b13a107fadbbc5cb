"""Nearest class mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from remix.methods.discriminant import discriminant, discriminant_left_out
from remix.methods.exact import Exact
from remix.methods.registry import method
from remix.networks import ExactHead, ExactLinearHead, FeatureMap
from remix.statistics import ClassSums, ScatterKind

__all__ = ["Ncm"]


@method("ncm")
@dataclass(frozen=True)
class Ncm(Exact):
    """Nearest class mean: a frozen network, and of every class the mean of its features.

    Settings as in `Exact`. Distances are Euclidean, of features as they are or of roots of unit length: cosines.
    """

    def kind(self, dim: int) -> ScatterKind:
        """Means are all."""
        return "none"

    def strengths(self, x: Tensor) -> Sequence[float]:
        """There is nothing to hold back."""
        return (0.0,)

    def tried(self, sums: ClassSums, x: Tensor, labels: Tensor, strengths: Sequence[float]) -> Tensor:
        """Against means without the image."""
        same = torch.ones(sums.dim, dtype=x.dtype)
        return discriminant_left_out(sums.mean, sums.weights(), same, 1, 1.0, x, labels)[None]

    def tested(self, sums: ClassSums, head: ExactHead, x: Tensor, labels: Tensor) -> Tensor:
        """The same."""
        return self.tried(sums, x, labels, (0.0,))[0]

    def solved(self, sums: ClassSums, map: FeatureMap, task_sizes: Sequence[int]) -> ExactHead:
        """A discriminant for which all features vary alike."""
        same = torch.ones(sums.dim, dtype=sums.mean.dtype)
        return ExactLinearHead(map, task_sizes, *discriminant(sums.mean, same, 1, 1.0))
