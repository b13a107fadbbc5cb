"""What is kept of rows that pass by once: mean, variance and covariance, and a fair sample of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor

__all__ = ["Reservoir", "RunningMoments", "mixture"]

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


class Reservoir:
    """Keeps ``capacity`` rows of a stream, every subset equally likely, in memory that does not grow.

    Every row draws a random key and the smallest keys stay. The keys come from a seed and the row's place in the
    stream, so the choice does not depend on how the stream is cut into batches.

    Args:
        capacity: most rows to keep.
        dim: D.
        seed: of the choice.

    """

    def __init__(self, capacity: int, dim: int, seed: int = 0) -> None:
        if capacity < 1 or dim < 1:
            raise ValueError(f"capacity and dim must be at least 1, got {capacity} and {dim}")
        self.capacity = capacity
        self.dim = dim
        self.seen = 0
        self._generator = torch.Generator().manual_seed(seed)
        self._keys = torch.empty(0, dtype=torch.float64)
        self._rows: Tensor | None = None

    @torch.no_grad()
    def update(self, rows: Tensor) -> None:
        """Offer rows (n, D). Raises ValueError for another shape."""
        if rows.dim() != 2 or rows.shape[1] != self.dim:
            raise ValueError(f"rows must have shape (n, {self.dim}), got {tuple(rows.shape)}")
        keys = torch.rand(len(rows), dtype=torch.float64, generator=self._generator)
        self.seen += len(rows)
        room = self.capacity - len(self._keys)
        if room > 0 and len(rows):
            self._extend(keys[:room], rows[:room])
        keys, rows = keys[max(room, 0) :], rows[max(room, 0) :]
        if not len(keys):
            return
        # Of the kept and the new keys together the smallest stay; each new winner takes the place of a loser.
        winners = torch.cat([self._keys, keys]).argsort()[: self.capacity]
        stays = torch.zeros(self.capacity, dtype=torch.bool)
        stays[winners[winners < self.capacity]] = True
        new = (winners[winners >= self.capacity] - self.capacity).sort().values
        free = (~stays).nonzero()[:, 0]
        assert self._rows is not None
        self._keys[free] = keys[new]
        self._rows[free.to(rows.device)] = rows.detach()[new.to(rows.device)]

    def _extend(self, keys: Tensor, rows: Tensor) -> None:
        if self._rows is None:
            self._rows = torch.empty(self.capacity, self.dim, dtype=rows.dtype, device=rows.device)
        start = len(self._keys)
        self._rows[start : start + len(keys)] = rows.detach()
        self._keys = torch.cat([self._keys, keys])

    def rows(self) -> Tensor:
        """The kept rows (min(seen, capacity), D), in random order.

        Raises:
            ValueError: if none was offered.

        """
        if self._rows is None:
            raise ValueError("the reservoir is empty: no row was offered")
        return self._rows[self._keys.argsort().to(self._rows.device)]
