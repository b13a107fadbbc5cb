"""Fine-tuning: the lower bound."""

from __future__ import annotations

from dataclasses import dataclass

from remix.learning.learner import Learner
from remix.learning.method import Method
from remix.learning.sgd import Sgd
from remix.learning.stage import Stage
from remix.methods.plain import FIRST, first_task, global_cross_entropy
from remix.methods.registry import method

__all__ = ["Finetune"]


@method("finetune")
@dataclass(frozen=True)
class Finetune(Method):
    """Train on the new classes and do nothing about the old ones: the lower bound.

    Args:
        first: training of the first task.
        later: training of every later task.

    """

    first: Sgd = FIRST
    later: Sgd = FIRST

    def stages(self, learner: Learner) -> list[Stage]:
        """All of the network, cross-entropy over all classes seen."""
        if learner.teacher is None:
            return first_task(learner, self.first)
        return [Stage("train", [learner.student], self.later, global_cross_entropy(learner))]
