"""The learning rate of every step."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Schedule"]


@dataclass(frozen=True)
class Schedule:
    """A number of steps and their learning rates: warm-up, then milestones or half a cosine.

    During warm-up, step k has the rate ``rate * max(k, 1) / warm_up``: the first value appears twice. Milestones count
    from the end of the warm-up; each multiplies the rate by ``factor``. With ``cosine_period`` the rate falls as half a
    cosine that reaches zero after so many steps.

    Raises:
        ValueError: for numbers out of range, or milestones that do not ascend.

    """

    steps: int
    rate: float
    warm_up: int = 0
    milestones: tuple[int, ...] = ()
    factor: float = 0.5
    cosine_period: int | None = None

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"steps must be at least 1, got {self.steps}")
        if not (self.rate > 0 and math.isfinite(self.rate)):
            raise ValueError(f"rate must be positive, got {self.rate}")
        if self.warm_up < 0:
            raise ValueError(f"warm_up must not be negative, got {self.warm_up}")
        if list(self.milestones) != sorted(set(self.milestones)) or any(m < 0 for m in self.milestones):
            raise ValueError(f"milestones must ascend from 0 up, got {self.milestones}")
        if self.cosine_period is not None and self.cosine_period < 1:
            raise ValueError(f"cosine_period must be at least 1, got {self.cosine_period}")

    def __call__(self, step: int) -> float:
        """The rate of step 0, 1, ..., steps - 1."""
        if step < self.warm_up:
            return self.rate * max(step, 1) / self.warm_up
        after = step - self.warm_up
        rate = self.rate * self.factor ** sum(after >= milestone for milestone in self.milestones)
        if self.cosine_period is not None:
            rate *= 0.5 * (1 + math.cos(math.pi * min(after, self.cosine_period) / self.cosine_period))
        return rate
