"""Learning without Forgetting (Li and Hoiem, 2016)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from remix.learning.learner import Learner
from remix.learning.losses import local_cross_entropy, soft_distillation
from remix.learning.stage import Batch, Objective
from remix.methods.plain import OneStage
from remix.methods.registry import method

__all__ = ["Lwf"]


@method("lwf")
@dataclass(frozen=True)
class Lwf(OneStage):
    """Learning without Forgetting: the old model's answers to the new images are kept.

    Args:
        distillation: weight of the old model's answers.
        temperature: that softens them.

    """

    distillation: float = 1.0
    temperature: float = 2.0

    def objective(self, learner: Learner) -> Objective:
        """Cross-entropy among the new classes, distillation among the old."""
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
