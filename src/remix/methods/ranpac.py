"""RanPAC (McDonnell et al., 2023): random features and ridge regression on a frozen network."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from remix.methods.exact import Exact, Solved
from remix.methods.registry import method
from remix.methods.ridge import Ridge, ridges_left_out
from remix.networks import ExactLinearHead, FeatureMap, Head
from remix.statistics import ClassSums, ScatterKind

__all__ = ["Ranpac"]

_GRID = tuple(10 ** (power / 2) for power in range(-8, 5))
_EACH = 16  # random features for one of the network's: a small network has no use for thousands


@method("ranpac")
@dataclass(frozen=True)
class Ranpac(Exact):
    """RanPAC: a frozen network, random projections of its features, and ridge regression on the classes.

    Other settings as in `Exact`.

    Args:
        width: most random features; no more than 16 for one of the network's. 10,000 are published.
        penalty: of the regression, over the mean squared length of the random features; chosen by default.

    """

    word: ClassVar[str] = "penalty"
    width: int = 2000
    penalty: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.width <= 20_000:
            raise ValueError(f"width must be from 1 to 20,000 random features, got {self.width}")
        if self.penalty is not None and not 0 < self.penalty < 1e12:
            raise ValueError(f"penalty must be above 0 and finite, got {self.penalty}")

    def kind(self, dim: int) -> ScatterKind:
        """A matrix."""
        return "dense"

    def completed(self, map: FeatureMap, seed: int) -> FeatureMap:
        """With random projections, that the seed decides."""
        width = min(self.width, _EACH * sum(map.sizes))
        return map.with_projection(width, torch.Generator().manual_seed(seed))

    def strengths(self, x: Tensor) -> Sequence[float]:
        """Of the squared length of features."""
        length = float(x.square().sum(1).mean()) or 1.0
        return [part * length for part in (_GRID if self.penalty is None else (self.penalty,))]

    def tried(self, mean: Tensor, strengths: Sequence[float], x: Tensor, labels: Tensor, scored: Tensor) -> Tensor:
        """By the regression on all other images."""
        return ridges_left_out(len(mean), strengths, x, labels, scored)

    def solved(self, sums: ClassSums, map: FeatureMap, before: Head, seen: Collection[int]) -> Solved:
        """The regression."""
        found = Ridge(sums.mean, sums.weights(), sums.pooled(), sums.strength)
        head = ExactLinearHead(map, before.task_sizes, found.weight, found.weight.new_zeros(len(found.weight)))
        return Solved(head, found.left_out)
