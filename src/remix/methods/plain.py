"""Parts that methods share: plain training, in one stage."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import cross_entropy

from remix.learning.learner import Learner
from remix.learning.method import Method
from remix.learning.sgd import Sgd
from remix.learning.stage import Batch, Objective, Stage

__all__ = ["FIRST", "OneStage", "first_task", "global_cross_entropy"]

FIRST = Sgd(200, 0.1, (80, 120))
"""Training of the first task of CIFAR-100, which is that of the upper bound too."""


def first_task(learner: Learner, sgd: Sgd) -> list[Stage]:
    """Plain training of the first task, the same for every method."""
    return [Stage("first task", [learner.student], sgd, global_cross_entropy(learner))]


def global_cross_entropy(learner: Learner) -> Objective:
    """Cross-entropy of the real images over all classes seen."""

    def terms(batch: Batch) -> dict[str, Tensor]:
        logits = learner.student.head(learner.pooled(batch.images))
        return {"cross-entropy": cross_entropy(logits, batch.labels)}

    return terms


@dataclass(frozen=True)
class OneStage(Method):
    """A method that trains all of the network at once in later tasks; how is its objective.

    Args:
        first: training of the first task.
        later: training of every later task.

    """

    first: Sgd = FIRST
    later: Sgd = FIRST

    @abstractmethod
    def objective(self, learner: Learner) -> Objective:
        """The terms of the loss in a later task."""

    def stages(self, learner: Learner) -> list[Stage]:
        """Everything at once."""
        if learner.teacher is None:
            return first_task(learner, self.first)
        return [Stage("train", [learner.student], self.later, self.objective(learner))]
