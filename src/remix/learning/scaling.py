"""Weights of the loss terms that follow the numbers of new and old classes."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["LossScales"]


@dataclass(frozen=True)
class LossScales:
    """Weights of the terms of a later task, those of REMIX and PMI by default. They enter a sum.

    Args:
        local: of the local cross entropy (lambda_ce; R-DFCIL has 0.5).
        head: of the cross entropy on detached features (lambda_ft; 1.0 in runs of 20 tasks, R-DFCIL has 0).
        hard: of the hard distillation of old logits (lambda_hkd).
        relational: of the angle loss (lambda_rkd).

    Raises:
        ValueError: if a weight is negative or not finite.

    """

    local: float = 0.75
    head: float = 1.5
    hard: float = 0.15
    relational: float = 0.5

    def __post_init__(self) -> None:
        for name in ("local", "head", "hard", "relational"):
            weight = getattr(self, name)
            if not (weight >= 0 and math.isfinite(weight)):
                raise ValueError(f"the weight {name} must be finite and not negative, got {weight}")

    def for_task(self, new_classes: int, old_classes: int) -> LossScales:
        """The weights of a task: the more old classes there are to one new, the more distillation counts.

        alpha = log2(new / 2 + 1), beta = sqrt(old / new). Terms of learning are multiplied by (1 + 1 / alpha) / beta,
        terms of keeping by alpha beta.

        Raises:
            ValueError: if either number is below 1: the first task has no such weights.

        """
        if new_classes < 1 or old_classes < 1:
            raise ValueError(
                f"loss scales are for a later task, with new and old classes; got {new_classes} and {old_classes}"
            )
        alpha = math.log2(new_classes / 2 + 1)
        beta = math.sqrt(old_classes / new_classes)
        learning, keeping = (1 + 1 / alpha) / beta, alpha * beta
        return LossScales(
            local=self.local * learning,
            head=self.head * learning,
            hard=self.hard * keeping,
            relational=self.relational * keeping,
        )
