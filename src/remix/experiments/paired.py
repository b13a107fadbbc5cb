"""Comparing two methods over the seeds that both were run with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from scipy.special import stdtrit

__all__ = ["CONFIDENCE", "PairedDifference", "Spread", "paired_difference", "spread"]

# With n seeds, all n differences have one sign by chance with probability 2 / 2^n: below 5 % from here on.
_ENOUGH_SEEDS = 6
CONFIDENCE, _RESAMPLES = 0.95, 10_000  # of the bootstrap


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation (None for a single value) of ``count`` values."""

    mean: float
    std: float | None
    count: int

    @property
    def interval(self) -> tuple[float, float] | None:
        """Of the mean, with a confidence of 95 %, by Student's t; None for a single value."""
        if self.std is None:
            return None
        half = float(stdtrit(self.count - 1, (1 + CONFIDENCE) / 2)) * self.std / math.sqrt(self.count)
        return self.mean - half, self.mean + half

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.std is None else f"{self.mean:.2f} ± {self.std:.2f}"


def spread(values: Sequence[float]) -> Spread:
    """Mean and sample standard deviation (divided by n - 1).

    Raises:
        ValueError: if there is no value or one is not finite.

    """
    if not values or not all(math.isfinite(value) for value in values):
        raise ValueError(f"need at least one value, all finite, got {list(values)}")
    count = len(values)
    mean = math.fsum(values) / count
    if count == 1:
        return Spread(mean, None, 1)
    return Spread(mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1)), count)


@dataclass(frozen=True)
class PairedDifference:
    """Differences ``first - second`` over common seeds, and a bootstrap interval of their mean (None for one seed)."""

    seeds: tuple[int, ...]
    differences: tuple[float, ...]
    spread: Spread
    interval: tuple[float, float] | None

    @property
    def higher(self) -> int:
        """Number of seeds with which the first is above the second."""
        return sum(difference > 0 for difference in self.differences)

    def sentence(self, first: str, second: str, unit: str = "points") -> str:
        """What may be said, in one or two sentences; no more is claimed than the number of seeds allows."""
        count, mean = self.spread.count, self.spread.mean
        if self.interval is None:
            return (
                f"{first} minus {second}: {mean:+.2f} {unit} with the one seed that both have "
                f"({self.seeds[0]}). One seed says nothing about chance."
            )
        low, high = self.interval
        fact = (
            f"{first} minus {second}: {mean:+.2f} {unit} on average over {count} paired seeds "
            f"({CONFIDENCE:.0%} bootstrap interval {low:+.2f} to {high:+.2f}; higher in {self.higher} of {count})."
        )
        if low <= 0 <= high:
            return f"{fact} The interval contains 0: no difference is shown."
        if count < _ENOUGH_SEEDS:
            return (
                f"{fact} The interval excludes 0, but {count} seeds are few: "
                f"all would agree in sign by chance with probability {2.0 ** (1 - count):.0%}."
            )
        return f"{fact} The interval excludes 0: {first} is {'higher' if mean > 0 else 'lower'}."


def paired_difference(first: Mapping[int, float], second: Mapping[int, float]) -> PairedDifference:
    """Differences between two methods, seed by seed, with a percentile bootstrap interval (95 %) of their mean.

    Pairing takes out what a seed does to both. With few seeds the interval is too narrow (that of n values never
    reaches beyond their range); :meth:`PairedDifference.sentence` takes this into account.

    Args:
        first: value by seed of the first method.
        second: value by seed of the second; only common seeds count.

    Raises:
        ValueError: if no seed is common, or a value is not finite.

    """
    seeds = tuple(sorted(first.keys() & second.keys()))
    if not seeds:
        raise ValueError(
            f"no common seed: the first has {sorted(first)}, the second {sorted(second)}; run both with the same seeds"
        )
    differences = tuple(first[each] - second[each] for each in seeds)
    interval = None
    if len(seeds) > 1:
        values = torch.tensor(differences, dtype=torch.float64)
        # The same values give the same interval.
        chosen = torch.randint(len(seeds), (_RESAMPLES, len(seeds)), generator=torch.Generator().manual_seed(0))
        tail = (1 - CONFIDENCE) / 2
        bounds = torch.quantile(values[chosen].mean(1), torch.tensor([tail, 1 - tail], dtype=torch.float64))
        interval = (float(bounds[0]), float(bounds[1]))
    return PairedDifference(seeds, differences, spread(differences), interval)
