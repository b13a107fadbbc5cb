"""DeepInversion as its authors have it: every pseudo-sample is noise that is optimised by itself (Yin et al., 2020)."""

# ruff: noqa: RUF009 (frozen dataclasses can be defaults)

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from remix.inversion import Knowledge, PixelSettings, Targets, invert_pixels, random_labels
from remix.learning.engine import Engine, InterruptedInversion
from remix.learning.items import TensorReplay
from remix.learning.stage import Losses, Training
from remix.methods.deepinversion import LONG, distil_answers
from remix.methods.plain import OneStage, check_prior_kind
from remix.methods.registry import method
from remix.networks import Backbone, Items

__all__ = ["DeepInversionNoise"]


@method("deepinversion-noise")
@dataclass(frozen=True)
class DeepInversionNoise(OneStage):
    """DeepInversion without a generator: noise becomes images of old classes; then trained as `deepinversion`.

    Args:
        first: training of the first task.
        later: training of later tasks.
        distillation: weight of both distillation terms.
        temperature: that softens them.
        samples: pseudo-samples, besides those per task.
        samples_per_task: more of them for every task learned before.
        inversion: of the pixels.

    """

    by_steps: ClassVar[bool] = False
    first: Training = LONG
    later: Training = LONG
    distillation: float = 1.0
    temperature: float = 2.0
    samples: int = 3000
    samples_per_task: int = 2000
    inversion: PixelSettings = PixelSettings()

    def __post_init__(self) -> None:
        if self.samples < 0 or self.samples_per_task < 0 or self.samples + self.samples_per_task < 1:
            raise ValueError(
                "samples and samples_per_task must not be negative, and one of them above 0, got "
                f"{self.samples} and {self.samples_per_task}"
            )
        if self.inversion.features:
            raise ValueError("deepinversion-noise keeps no features of old classes: set inversion.features to 0")

    def check(self, backbone: Backbone, start: int = 0) -> None:
        """Images are sought, held to the statistics of BatchNorm layers, without covariances."""
        if start:
            raise ValueError(f"the method {self.name} makes images, so no block of the network can be frozen")
        if not backbone.has_batchnorm:
            raise ValueError(
                f"the method {self.name} holds images to the statistics of BatchNorm layers, and "
                f"{type(backbone).__name__} has none: choose another network, or the method pmi"
            )
        check_prior_kind(self.name, self.inversion.prior)

    def dream(self, engine: Engine) -> TensorReplay:
        """Noise, optimised until the old model sees a class in it that was drawn at random."""
        teacher = engine.teacher
        assert teacher is not None
        labels = random_labels(range(engine.old_classes), self._count(engine.tasks), engine.generator)
        dream = invert_pixels(
            Knowledge(teacher.backbone, classify=teacher.head),
            Targets(labels),
            engine.generator,
            self.inversion,
            progress=engine.inversion_step,
            resume=engine.inversion,
        )
        if not dream.finished:
            raise InterruptedInversion(dream.checkpoint)
        return TensorReplay.of(Items(dream.images), dream.labels.to(dream.images.device), teacher)

    def _count(self, tasks: int) -> int:
        """Pseudo-samples after so many tasks."""
        return self.samples + self.samples_per_task * tasks

    def dream_work(self, tasks: int) -> tuple[int, int]:
        """Every image once per step."""
        count = self._count(tasks)
        return count, count * self.inversion.schedule.steps

    def losses(self, engine: Engine) -> Losses:
        """As those of `deepinversion`."""
        return distil_answers(engine, self.distillation, self.temperature)
