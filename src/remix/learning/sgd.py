"""How long a stage trains, and at which rates."""

from __future__ import annotations

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
        ValueError: for negative numbers, or milestones that do not rise.

    """

    epochs: int
    lr: float
    milestones: tuple[int, ...] = ()
    factor: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4

    def __post_init__(self) -> None:
        if self.epochs < 0 or not self.lr >= 0 or not self.factor > 0 or self.momentum < 0 or self.weight_decay < 0:
            raise ValueError(f"epochs, lr, momentum and weight_decay must not be negative, factor positive: {self}")
        if list(self.milestones) != sorted(set(self.milestones)):
            raise ValueError(f"milestones must rise, got {self.milestones}")

    def rate(self, epoch: int) -> float:
        """The learning rate of an epoch, counted from 0."""
        return self.lr * self.factor ** sum(epoch >= milestone for milestone in self.milestones)
