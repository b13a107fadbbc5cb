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
from remix.learning.method import Method
from remix.learning.replay import Replay
from remix.learning.sgd import Sgd
from remix.learning.stage import Batch, Objective, Stage
from remix.methods.generated import GENERATOR, dream_generator, generator_work, restore_generator
from remix.methods.plain import first_task
from remix.methods.registry import method

__all__ = ["LONG", "LONG_GENERATOR", "DeepInversion"]

LONG = Sgd(250, 0.1, (100, 150, 200), weight_decay=2e-4)
LONG_GENERATOR = GeneratorSettings(schedule=Schedule(10_000, 1e-3))


@method("deepinversion")
@dataclass(frozen=True)
class DeepInversion(Method):
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
        assert teacher is not None

        def terms(batch: Batch) -> dict[str, Tensor]:
            assert batch.replayed is not None
            real, generated = head(learner.pooled(batch.images)), head(learner.pooled(batch.replayed.images))
            with torch.no_grad():
                answers = teacher(batch.images)
            weight, temperature = self.distillation, self.temperature
            return {
                "cross-entropy": cross_entropy(real, batch.labels),
                "real": weight * soft_distillation(real[:, :old], answers, temperature),
                "generated": weight * soft_distillation(generated, batch.replayed.logits, temperature),
            }

        return terms
