"""Nearest class mean."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from remix.methods.discriminant import Discriminant
from remix.methods.exact import Exact, Solved
from remix.methods.registry import method
from remix.networks import ExactLinearHead, FeatureMap, Head
from remix.statistics import ClassSums, ScatterKind

__all__ = ["Ncm"]


@method("ncm")
@dataclass(frozen=True)
class Ncm(Exact):
    """Nearest class mean: a frozen network, and of every class the mean of its features.

    Settings as in `Exact`. Distances are Euclidean, of features as they are or of roots of unit length: cosines.
    """

    keeps: ClassVar[str] = "the network, and of every class the mean of its features"
    word: ClassVar[str] = ""

    def kind(self, dim: int) -> ScatterKind:
        """Means are all."""
        return "none"

    def strengths(self, x: Tensor) -> Sequence[float]:
        """There is nothing to hold back."""
        return (0.0,)

    def tried(self, mean: Tensor, strengths: Sequence[float], x: Tensor, labels: Tensor, scored: Tensor) -> Tensor:
        """Against means without the image."""
        counts = torch.bincount(labels, minlength=len(mean)).to(x)
        return _nearest(mean).left_out(counts, x[scored], labels[scored])[None]

    def solved(self, sums: ClassSums, map: FeatureMap, before: Head, seen: Collection[int]) -> Solved:
        """A discriminant for which all features vary alike."""
        found = _nearest(sums.mean)
        head = ExactLinearHead(map, before.task_sizes, *found.weights())
        return Solved(head, partial(found.left_out, sums.weights()))


def _nearest(mean: Tensor) -> Discriminant:
    return Discriminant(mean, torch.ones_like(mean[0]), 1, 1.0)
