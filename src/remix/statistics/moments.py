"""Mean, variance and covariance of rows that pass by once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor

__all__ = ["RunningMoments", "mixture"]

_CHUNK = 1 << 20  # numbers converted to float64 at a time, so that a large batch needs no second copy of itself


class RunningMoments:
    """Weighted mean and scatter of rows (n, D), accumulated in float64 in one pass.

    Batches are combined by the update of Chan, Golub and LeVeque, so any division of the rows into batches, and any
    merging of the parts, gives the same result up to rounding.

    Args:
        dim: D.
        covariance: keep the full (D, D) scatter instead of its diagonal.
        device: where to accumulate; devices without float64 are replaced by the CPU.

    """

    def __init__(self, dim: int, covariance: bool = False, device: torch.device | str | None = None) -> None:
        if dim < 1:
            raise ValueError(f"dim must be at least 1, got {dim}")
        place = torch.device(device or "cpu")
        place = torch.device("cpu") if place.type == "mps" else place
        shape = (dim, dim) if covariance else (dim,)
        self.weight = 0.0
        self.mean = torch.zeros(dim, dtype=torch.float64, device=place)
        self.scatter = torch.zeros(shape, dtype=torch.float64, device=place)

    @classmethod
    def of(cls, weight: float, mean: Tensor, spread: Tensor) -> RunningMoments:
        """The moments of ``weight`` rows with this mean (D,) and population variance (D,) or covariance (D, D)."""
        moments = cls(len(mean), spread.dim() == 2, mean.device)
        moments.weight = float(weight)
        moments.mean = mean.detach().to(moments.mean, copy=True)
        moments.scatter = spread.detach().to(moments.scatter) * moments.weight
        return moments

    @property
    def dim(self) -> int:
        """D."""
        return len(self.mean)

    @property
    def has_covariance(self) -> bool:
        """Whether the full scatter is kept."""
        return self.scatter.dim() == 2

    @torch.no_grad()
    def update(self, rows: Tensor, weights: Tensor | None = None) -> None:
        """Take in rows (n, D), each counted ``weights`` (n,) times (once by default).

        Raises:
            ValueError: for a wrong shape, a negative or non-finite weight, or rows that are not finite. The moments are
                unchanged then.

        """
        if rows.dim() != 2 or rows.shape[1] != self.dim:
            raise ValueError(f"rows must have shape (n, {self.dim}), got {tuple(rows.shape)}")
        if weights is not None:
            if weights.shape != rows.shape[:1]:
                raise ValueError(f"weights must have shape ({len(rows)},), got {tuple(weights.shape)}")
            if not bool((weights >= 0).all() & torch.isfinite(weights).all()):
                raise ValueError("weights must be finite and not negative")
        size = max(1, _CHUNK // self.dim)
        batch = self._empty()
        for start in range(0, len(rows), size):
            part = rows[start : start + size].to(self.mean, copy=True)
            batch._absorb(self._summary(part, None if weights is None else weights[start : start + size]))
        if not bool(torch.isfinite(batch.mean.sum())):
            raise ValueError("rows must be finite, but hold NaN or infinite values")
        self._absorb(batch)

    def merge(self, other: RunningMoments) -> RunningMoments:
        """The moments of the rows of both; neither is changed.

        Raises:
            ValueError: if they differ in dimension or in keeping a covariance.

        """
        if self.scatter.shape != other.scatter.shape:
            raise ValueError(
                f"moments with scatter {tuple(self.scatter.shape)} and {tuple(other.scatter.shape)} cannot be merged"
            )
        merged = self._empty()
        merged._absorb(self)
        merged._absorb(other)
        return merged

    def variance(self, correction: float = 0.0) -> Tensor:
        """(D,) float64; divided by weight - correction (0: population, 1: unbiased).

        Raises:
            ValueError: if no more than ``correction`` rows were seen.

        """
        scatter = self.scatter.diagonal() if self.has_covariance else self.scatter
        return scatter / self._divisor(correction)

    def covariance(self, correction: float = 0.0) -> Tensor:
        """(D, D) float64. Raises ValueError as `variance`, and if no covariance was kept."""
        if not self.has_covariance:
            raise ValueError("only variances were kept: make the moments with covariance=True")
        return self.scatter / self._divisor(correction)

    def _divisor(self, correction: float) -> float:
        if self.weight <= correction:
            raise ValueError(f"the moments of {self.weight:g} rows have no variance with correction {correction:g}")
        return self.weight - correction

    def _empty(self) -> RunningMoments:
        return RunningMoments(self.dim, self.has_covariance, self.mean.device)

    def _summary(self, rows: Tensor, weights: Tensor | None) -> RunningMoments:
        """Moments of float64 rows, which are overwritten."""
        summary = self._empty()
        if weights is None:
            summary.weight = float(len(rows))
            summary.mean = rows.mean(0)
            weighted = rows.sub_(summary.mean)
        else:
            weights = weights.to(rows)[:, None]
            summary.weight = float(weights.sum())
            if summary.weight == 0:
                return summary
            summary.mean = (weights * rows).sum(0) / summary.weight
            weighted = weights * rows.sub_(summary.mean)
        summary.scatter = rows.mT @ weighted if self.has_covariance else torch.linalg.vecdot(rows, weighted, dim=0)
        return summary

    def _absorb(self, other: RunningMoments) -> None:
        total = self.weight + other.weight
        if other.weight == 0:
            return
        shift = other.mean.to(self.mean) - self.mean
        share = other.weight / total
        between = shift.square() if not self.has_covariance else torch.outer(shift, shift)
        self.mean = self.mean + share * shift
        self.scatter = self.scatter + other.scatter.to(self.scatter) + (self.weight * share) * between
        self.weight = total


def mixture(parts: Sequence[tuple[float, Tensor, Tensor]]) -> RunningMoments:
    """Moments of the mixture of weighted parts with means (D,) and variances (D,) or covariances (D, D)."""
    return reduce(RunningMoments.merge, (RunningMoments.of(*part) for part in parts))
