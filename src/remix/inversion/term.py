"""The terms of an objective."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from remix.inversion.measurements import Measurement, Reading

__all__ = ["Boost", "Penalty", "Term"]


class Penalty(Protocol):
    """A smooth function of batch averages."""

    @property
    def measurements(self) -> Sequence[Measurement]:
        """The averages it needs."""
        ...

    def value(self, readings: Sequence[Reading], count: int) -> Tensor:
        """The penalty (a scalar) of a batch of ``count`` images, from the averages in the order it named them."""
        ...


@dataclass(frozen=True)
class Boost:
    """Multiply a term's weight by ``factor`` in every step in which the term is larger than it was in step 0.

    The weight never exceeds ``cap`` times its first value and never shrinks again.
    """

    cap: float = 10.0
    factor: float = 2.0

    def __post_init__(self) -> None:
        if self.cap < 1 or self.factor <= 1:
            raise ValueError(f"a boost needs a cap of at least 1 and a factor above 1, got {self}")


@dataclass(frozen=True)
class Term:
    """A named, weighted part of an objective. ``boost`` is None for a weight that stays.

    Raises:
        ValueError: if the weight is negative or not finite.

    """

    name: str
    weight: float
    penalty: Penalty
    boost: Boost | None = None

    def __post_init__(self) -> None:
        if not (self.weight >= 0 and math.isfinite(self.weight)):
            raise ValueError(f"the weight of term {self.name!r} must not be negative, got {self.weight}")
