"""Learning without Forgetting (Li and Hoiem, 2016)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from remix.learning.learner import Learner
from remix.learning.losses import local_cross_entropy, soft_distillation
from remix.learning.method import Method
from remix.learning.sgd import Sgd
from remix.learning.stage import Batch, Objective, Stage
from remix.methods.plain import FIRST, first_task
from remix.methods.registry import method

__all__ = ["Lwf"]


@method("lwf")
@dataclass(frozen=True)
class Lwf(Method):
    """Learning without Forgetting: the old model's answers to the new images are kept.

    Args:
        first: training of the first task.
        later: training of every later task.
        distillation: weight of the old model's answers.
        temperature: that softens them.

    """

    first: Sgd = FIRST
    later: Sgd = FIRST
    distillation: float = 1.0
    temperature: float = 2.0

    def stages(self, learner: Learner) -> list[Stage]:
        """All of the network: cross-entropy among the new classes, distillation among the old."""
        if learner.teacher is None:
            return first_task(learner, self.first)
        return [Stage("train", [learner.student], self.later, self._objective(learner))]

    def _objective(self, learner: Learner) -> Objective:
        teacher, old = learner.teacher, learner.old_classes
        assert teacher is not None

        def terms(batch: Batch) -> dict[str, Tensor]:
            logits = learner.student.head(learner.pooled(batch.images))
            with torch.no_grad():
                answers = teacher(batch.images)
            return {
                "local": local_cross_entropy(logits, batch.labels, old),
                "distillation": self.distillation * soft_distillation(logits[:, :old], answers, self.temperature),
            }

        return terms
