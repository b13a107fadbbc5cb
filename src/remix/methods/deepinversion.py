"""DeepInversion as a learner of new classes (Yin et al., 2020; as compared with by ABD)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from remix.inversion import GeneratorSettings, Schedule
from remix.learning.learner import Learner
from remix.learning.losses import soft_distillation
from remix.learning.sgd import Sgd
from remix.learning.stage import Batch, Objective
from remix.methods.generated import GENERATOR, Generated
from remix.methods.plain import OneStage
from remix.methods.registry import method

__all__ = ["LONG", "LONG_GENERATOR", "DeepInversion"]

LONG = Sgd(250, 0.1, (100, 150, 200), weight_decay=2e-4)
LONG_GENERATOR = GeneratorSettings(schedule=Schedule(10_000, 1e-3))


@method("deepinversion")
@dataclass(frozen=True)
class DeepInversion(Generated, OneStage):
    """DeepInversion: a generator inverts the old model; its answers are distilled on real and generated images.

    Args:
        first: training of the first task.
        later: training of later tasks.
        distillation: weight of both distillation terms.
        temperature: that softens them.
        generator: training of the generator, which is carried from task to task.

    """

    carried: ClassVar[tuple[str, ...]] = (GENERATOR,)
    first: Sgd = LONG
    later: Sgd = LONG
    distillation: float = 1.0
    temperature: float = 2.0
    generator: GeneratorSettings = LONG_GENERATOR

    def objective(self, learner: Learner) -> Objective:
        """Cross-entropy over all classes; the old model's answers on real and on generated images."""
        teacher, old, head = learner.teacher, learner.old_classes, learner.student.head
        assert teacher is not None

        def terms(batch: Batch) -> dict[str, Tensor]:
            assert batch.replayed is not None
            real, generated = map(head, learner.pooled_together(batch.images, batch.replayed.images))
            with torch.no_grad():
                answers = teacher(batch.images)
            weight, temperature = self.distillation, self.temperature
            return {
                "cross-entropy": cross_entropy(real, batch.labels),
                "real": weight * soft_distillation(real[:, :old], answers, temperature),
                "generated": weight * soft_distillation(generated, batch.replayed.logits, temperature),
            }

        return terms
