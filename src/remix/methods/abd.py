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
from remix.learning.method import Method
from remix.learning.replay import Replay
from remix.learning.sgd import Sgd
from remix.learning.stage import Batch, Objective, Stage
from remix.methods.deepinversion import LONG, LONG_GENERATOR
from remix.methods.generated import GENERATOR, dream_generator, generator_work, restore_generator
from remix.methods.plain import first_task
from remix.methods.registry import method

__all__ = ["Abd"]


@method("abd")
@dataclass(frozen=True)
class Abd(Method):
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

    def dream(self, learner: Learner) -> Replay:
        """The generator of the last task, trained further."""
        return dream_generator(learner, self.generator)

    def dream_work(self, learner: Learner) -> tuple[int, int]:
        """The images that the generator is trained on."""
        return generator_work(self.generator)

    def restore_replay(self, learner: Learner) -> Replay:
        """From the generator as it was saved."""
        return restore_generator(learner, self.generator)

    def stages(self, learner: Learner) -> list[Stage]:
        """Everything at once."""
        if learner.teacher is None:
            return first_task(learner, self.first)
        return [Stage("train", [learner.student], self.later, self._objective(learner))]

    def _objective(self, learner: Learner) -> Objective:
        teacher, old, head = learner.teacher, learner.old_classes, learner.student.head
        classes = head.num_classes
        assert teacher is not None

        def terms(batch: Batch) -> dict[str, Tensor]:
            assert batch.replayed is not None
            real, generated = learner.pooled(batch.images), learner.pooled(batch.replayed.images)
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
