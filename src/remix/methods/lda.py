"""Linear discriminant analysis."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal, get_args

from torch import Tensor

from remix.methods.discriminant import Discriminant, discriminants_left_out, reckoned_shrinkage
from remix.methods.exact import Exact, Solved
from remix.methods.registry import method
from remix.networks import ExactLinearHead, FeatureMap, Head
from remix.statistics import ClassSums, ScatterKind

__all__ = ["Lda"]

CovarianceChoice = Literal["auto", "dense", "laplace", "diagonal"]
_GRID = (0.003, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98)
_DENSE, _LAPLACE = 2048, 512  # features of a matrix; of a Laplace covariance that is fitted within seconds
_FITTED = 0.05  # shrinkage of a Laplace covariance, which has few numbers to be wrong in


@method("lda")
@dataclass(frozen=True)
class Lda(Exact):
    """Linear discriminant: a frozen network, class means, and one covariance of features, shrunk to its diagonal.

    Args:
        covariance: "dense", exact; "laplace", three vectors, fitted anew in every step, so that the order of steps
            matters a little; "diagonal", exact; "auto" for dense up to 2,048 features, else laplace.
        shrinkage: above 0, up to 1, instead of a choice; of a Laplace covariance 0.05 is taken.

    """

    keeps: ClassVar[str] = "the network, the mean features of every class, and one covariance"
    covariance: CovarianceChoice = "auto"
    shrinkage: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shrinkage is not None and not 0 < self.shrinkage <= 1:
            raise ValueError(f"shrinkage must be above 0 and at most 1, got {self.shrinkage}")
        if self.covariance not in get_args(CovarianceChoice):
            known = ", ".join(get_args(CovarianceChoice))
            raise ValueError(f"the covariance of lda is one of {known}, got {self.covariance!r}")
        if self.removable and self.covariance == "laplace":
            raise ValueError(
                "a Laplace covariance is of all classes together: removable (--removable) goes with --covariance dense "
                "or diagonal"
            )

    def most(self) -> int:
        """Fewer for a Laplace covariance."""
        return _LAPLACE if self.covariance == "laplace" else _DENSE

    def kind(self, dim: int) -> ScatterKind:
        """As set, or by the number of features."""
        if self.covariance == "auto":
            if self.removable and dim > _DENSE:
                raise ValueError(
                    f"removable (--removable) would keep a matrix of {dim:,} features per class: choose --covariance "
                    "diagonal, which keeps a vector"
                )
            return "dense" if dim <= _DENSE else "laplace"
        return self.covariance

    def strengths(self, x: Tensor) -> Sequence[float]:
        """From nearly the covariance to nearly its diagonal."""
        if self.covariance == "diagonal":
            return (1.0,)
        return _GRID if self.shrinkage is None else (self.shrinkage,)

    def reckoned(self, within: Tensor, freedom: int) -> Sequence[float]:
        """By how sure so many images are of correlations."""
        if self.covariance == "diagonal" or self.shrinkage is not None:
            return ()
        return (reckoned_shrinkage(within.T @ within, freedom),)

    def settled(self, strength: float, kind: ScatterKind) -> float:
        """Blocks for a Laplace covariance are chosen by the matrix that it is fitted to; the fit shrinks by itself."""
        return self.shrinkage or _FITTED if kind == "laplace" else strength

    def tried(self, mean: Tensor, strengths: Sequence[float], x: Tensor, labels: Tensor, scored: Tensor) -> Tensor:
        """By the covariance without the image."""
        return discriminants_left_out(mean, strengths, x, labels, scored)

    def solved(self, sums: ClassSums, map: FeatureMap, before: Head, seen: Collection[int]) -> Solved:
        """The discriminant; from a Laplace covariance no image can be taken."""
        found = Discriminant(sums.mean, sums.pooled(), sums.freedom, sums.strength)
        head = ExactLinearHead(map, before.task_sizes, *found.weights())
        return Solved(head, partial(found.left_out, sums.weights(), held=sums.scatter.kind == "laplace"))
