"""Nearest class mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

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

    word: ClassVar[str] = ""

    def kind(self, dim: int) -> ScatterKind:
        """Means are all."""
        return "none"

    def strengths(self, x: Tensor) -> Sequence[float]:
        """There is nothing to hold back."""
        return (0.0,)

    def tried(self, mean: Tensor, x: Tensor, labels: Tensor, strengths: Sequence[float]) -> Tensor:
        """Against means without the image."""
        counts = torch.bincount(labels, minlength=len(mean)).to(x)
        return discriminant_left_out(mean, counts, torch.ones_like(mean[0]), 1, 1.0, x, labels)[None]

    def tested(self, sums: ClassSums, head: ExactHead, x: Tensor, labels: Tensor) -> Tensor:
        """The same."""
        same = torch.ones_like(sums.mean[0])
        return discriminant_left_out(sums.mean, sums.weights(), same, 1, 1.0, x, labels)

    def solved(self, sums: ClassSums, map: FeatureMap, task_sizes: Sequence[int]) -> ExactHead:
        """A discriminant for which all features vary alike."""
        return ExactLinearHead(map, task_sizes, *discriminant(sums.mean, torch.ones_like(sums.mean[0]), 1, 1.0))
