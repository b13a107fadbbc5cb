"""Learning without Forgetting (Li and Hoiem, 2016)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from remix.learning.engine import Engine
from remix.learning.losses import local_cross_entropy, soft_distillation
from remix.learning.method import Step
from remix.learning.stage import Batch, Losses, Stage
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

    def stages(self, step: Step) -> list[Stage]:
        """Everything at once."""
        if step == "extend":
            raise ValueError(
                "the method lwf has no place for images of known classes: extend with remix, pmi or finetune"
            )
        return super().stages(step)

    def losses(self, engine: Engine) -> Losses:
        """Cross-entropy among the new classes, distillation among the old."""
        teacher, old = engine.teacher, engine.old_classes
        assert teacher is not None

        def losses(batch: Batch) -> dict[str, Tensor]:
            logits = engine.student.head(engine.pooled(batch.real))
            with torch.no_grad():
                answers = teacher(*batch.real)
            return {
                "local": local_cross_entropy(logits, batch.labels, old),
                "distillation": self.distillation * soft_distillation(logits[:, :old], answers, self.temperature),
            }

        return losses
