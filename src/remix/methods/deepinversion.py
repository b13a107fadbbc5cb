"""DeepInversion as ABD compares with it: a generator inverts (Smith et al., 2021; after Yin et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from remix.inversion import GeneratorSettings, Schedule
from remix.learning.engine import Engine
from remix.learning.losses import soft_distillation
from remix.learning.stage import Batch, Losses, Training
from remix.methods.generated import GENERATOR, Generated
from remix.methods.plain import OneStage
from remix.methods.registry import method

__all__ = ["LONG", "LONG_GENERATOR", "DeepInversion", "distil_answers"]

LONG = Training(250, 0.1, (100, 150, 200), weight_decay=2e-4)
LONG_GENERATOR = GeneratorSettings(schedule=Schedule(10_000, 1e-3))


@method("deepinversion")
@dataclass(frozen=True)
class DeepInversion(Generated, OneStage):
    """DeepInversion, ABD's version: a generator inverts the old model, whose answers are distilled on both kinds.

    DeepInversion itself optimises noise, image by image: that is `deepinversion-noise`.

    Args:
        first: training of the first task.
        later: training of later tasks.
        distillation: weight of both distillation terms.
        temperature: that softens them.
        image_generator: training of the generator, which is carried from task to task.

    """

    keeps: ClassVar[str] = "the network and its generator"
    carried: ClassVar[tuple[str, ...]] = (GENERATOR,)
    first: Training = LONG
    later: Training = LONG
    distillation: float = 1.0
    temperature: float = 2.0
    image_generator: GeneratorSettings = LONG_GENERATOR

    def losses(self, engine: Engine) -> Losses:
        """Cross-entropy over all classes; the old model's answers on real and on generated images."""
        return distil_answers(engine, self.distillation, self.temperature)


def distil_answers(engine: Engine, weight: float, temperature: float) -> Losses:
    """Cross-entropy of real images over all classes; the old model's answers on them and on pseudo-samples.

    Args:
        engine: in a later task.
        weight: of both distillation terms.
        temperature: that softens them.

    """
    teacher, old, head = engine.teacher, engine.old_classes, engine.student.head
    assert teacher is not None

    def losses(batch: Batch) -> dict[str, Tensor]:
        assert batch.replayed is not None
        real, generated = map(head, engine.pooled_together(batch.real, batch.replayed.items))
        with torch.no_grad():
            answers = teacher(*batch.real)
        return {
            "cross-entropy": cross_entropy(real, batch.labels),
            "real": weight * soft_distillation(real[:, :old], answers, temperature),
            "generated": weight * soft_distillation(generated, batch.replayed.logits, temperature),
        }

    return losses
