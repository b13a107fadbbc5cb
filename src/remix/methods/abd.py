"""ABD: always be dreaming (Smith et al., 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from remix.inversion import GeneratorSettings
from remix.learning.class_balance import old_new_weights
from remix.learning.learner import Learner
from remix.learning.losses import head_cross_entropy, local_cross_entropy, projected_feature_distillation
from remix.learning.sgd import Sgd
from remix.learning.stage import Batch, Objective
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
        generator: training of the generator, which is carried from task to task.

    """

    carried: ClassVar[tuple[str, ...]] = (GENERATOR,)
    first: Sgd = LONG
    later: Sgd = LONG
    distillation: float = 0.1
    generator: GeneratorSettings = LONG_GENERATOR

    def objective(self, learner: Learner) -> Objective:
        """New classes among themselves, the head on everything, features as the old head sees them."""
        teacher, old, head = learner.teacher, learner.old_classes, learner.student.head
        classes = head.num_classes
        assert teacher is not None

        def terms(batch: Batch) -> dict[str, Tensor]:
            assert batch.replayed is not None
            real, generated = learner.pooled_together(batch.images, batch.replayed.images)
            features, labels = torch.cat([real, generated]), torch.cat([batch.labels, batch.replayed.labels])
            with torch.no_grad():
                before = torch.cat([teacher.backbone.pooled(x) for x in (batch.images, batch.replayed.images)])
            weights = old_new_weights(labels, old, classes)
            return {
                "local": (1 - old / classes) * local_cross_entropy(head(real), batch.labels, old),
                "head": head_cross_entropy(head, features, labels, weights),
                "features": self.distillation * projected_feature_distillation(features, before, teacher.head),
            }

        return terms
