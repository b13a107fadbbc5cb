"""How long a stage trains, and at which rates."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Sgd"]


@dataclass(frozen=True)
class Sgd:
    """Stochastic gradient descent with a rate that falls in steps.

    Args:
        epochs: passes over the task's training images; 0 leaves the stage out.
        lr: learning rate at the start.
        milestones: epochs after which the rate is multiplied by ``factor``.
        factor: see ``milestones``.
        momentum: of the gradient.
        weight_decay: L2 penalty on everything that is trained.

    Raises:
        ValueError: for negative numbers or such that are not finite, or milestones that do not rise.

    """

    epochs: int
    lr: float
    milestones: tuple[int, ...] = ()
    factor: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4

    def __post_init__(self) -> None:
        numbers = self.epochs, self.lr, self.momentum, self.weight_decay
        if not all(math.isfinite(value) and value >= 0 for value in numbers) or not 0 < self.factor < math.inf:
            raise ValueError(
                "epochs, lr, momentum and weight_decay must be finite and not negative, factor finite and positive: "
                f"{self}"
            )
        if list(self.milestones) != sorted(set(self.milestones)) or min(self.milestones, default=0) < 0:
            raise ValueError(f"milestones must rise from 0 or more, got {self.milestones}")

    def rate(self, epoch: int) -> float:
        """The learning rate of an epoch, counted from 0."""
        return self.lr * self.factor ** sum(epoch >= milestone for milestone in self.milestones)
