"""ABD: always be dreaming (Smith et al., 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from remix.inversion import GeneratorSettings
from remix.learning.engine import Engine
from remix.learning.losses import (
    head_cross_entropy,
    local_cross_entropy,
    old_new_weights,
    projected_feature_distillation,
)
from remix.learning.stage import Batch, Losses, Training
from remix.methods.deepinversion import LONG, LONG_GENERATOR
from remix.methods.generated import GENERATOR, Generated
from remix.methods.plain import OneStage
from remix.methods.registry import method

__all__ = ["Abd"]


@method("abd")
@dataclass(frozen=True)
class Abd(Generated, OneStage):
    """ABD: new classes are learned among themselves, and features may move only where the old head does not look.

    Args:
        first: training of the first task.
        later: training of later tasks.
        distillation: weight of the feature distillation.
        image_generator: training of the generator, which is carried from task to task.

    """

    keeps: ClassVar[str] = "the network and its generator"
    carried: ClassVar[tuple[str, ...]] = (GENERATOR,)
    first: Training = LONG
    later: Training = LONG
    distillation: float = 0.1
    image_generator: GeneratorSettings = LONG_GENERATOR

    def losses(self, engine: Engine) -> Losses:
        """New classes among themselves, the head on everything, features as the old head sees them."""
        teacher, old, head = engine.teacher, engine.old_classes, engine.student.head
        classes = head.num_classes
        assert teacher is not None

        def losses(batch: Batch) -> dict[str, Tensor]:
            assert batch.replayed is not None
            real, generated = engine.pooled_together(batch.real, batch.replayed.items)
            features, labels = torch.cat([real, generated]), torch.cat([batch.labels, batch.replayed.labels])
            with torch.no_grad():
                before = torch.cat([teacher.backbone.pooled(*items) for items in (batch.real, batch.replayed.items)])
            weights = old_new_weights(labels, old, classes)
            return {
                "local": (1 - old / classes) * local_cross_entropy(head(real), batch.labels, old),
                "head": head_cross_entropy(head, features, labels, weights),
                "features": self.distillation * projected_feature_distillation(features, before, teacher.head),
            }

        return losses
