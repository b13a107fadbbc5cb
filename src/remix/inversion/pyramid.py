"""Multi-resolution inversion: small images first, enlarged level by level, then polished."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, interpolate, pad

from remix.inversion.dream import Dream, OnProgress, dream_in_chunks
from remix.inversion.knowledge import Knowledge
from remix.inversion.loop import Checkpoint, Optimisation
from remix.inversion.losses import TotalVariation
from remix.inversion.phases import Phase
from remix.inversion.pixels import check_normalisation, target_terms
from remix.inversion.settings import PyramidSettings, Scale, Schedule
from remix.inversion.statistics_losses import MomentDistance, StatisticsKl
from remix.inversion.targets import Targets
from remix.inversion.terms import Term
from remix.inversion.variables import Augmentation, TensorVariable

__all__ = ["invert_pyramid"]


def invert_pyramid(
    knowledge: Knowledge,
    targets: Targets,
    generator: torch.Generator,
    settings: PyramidSettings | None = None,
    *,
    progress: OnProgress | None = None,
    resume: Checkpoint | None = None,
) -> Dream:
    """Images that the network takes for the targets, found from coarse to fine within the range 0..1.

    Args:
        knowledge: the network with a head. Statistics of maps among its layers are matched too, element by element.
        targets: labels.
        generator: source of everything random.
        settings: the published ones by default.
        progress: called after every step.
        resume: the checkpoint of an unfinished run with the same arguments.

    Returns:
        images as the network receives them: of its size, and normalised.

    Raises:
        ValueError: for a class the head does not have, a normalisation of another number of channels, a start inside
            the network, or a checkpoint of another run.
        InversionStoppedError: if numbers stop being finite.

    """
    settings = settings or PyramidSettings()
    knowledge.require_images("invert_pyramid")
    plan = _Plan(knowledge, settings)
    target_terms(knowledge, targets, settings.labels, 0.0)
    return dream_in_chunks(
        knowledge,
        targets,
        settings.batch,
        lambda part, prefix: plan.phases(targets[part], prefix),
        generator,
        progress,
        resume,
        plan.still.plain,
    )


class _Plan:
    def __init__(self, knowledge: Knowledge, settings: PyramidSettings) -> None:
        self.knowledge, self.settings = knowledge, settings
        channels, height, width = knowledge.backbone.input_shape
        arrival = {"size": (height, width), "mean": settings.mean, "std": settings.std}
        self.still = Augmentation(**arrival)  # type: ignore[arg-type]
        self.moving = replace(settings.augmentation, **arrival)  # type: ignore[arg-type]
        check_normalisation(self.still, channels)
        maps = [layer for layer in knowledge.layers.values() if layer.view.per_image]
        layers = [*knowledge.moments, *maps]
        distance = StatisticsKl(layers) if settings.statistics_form == "kl" else MomentDistance(layers, "square")
        self.statistics = [
            Term("statistics", settings.statistics, distance),
            *knowledge.prior_terms(settings.prior),
        ]

    def phases(self, targets: Targets, prefix: str) -> list[Phase]:
        settings = self.settings
        levels = [(f"{scale.size} pixels", scale, False) for scale in settings.scales]
        if settings.polish is not None:
            levels.append(("polish", settings.polish, True))
        last = len(levels) - 1
        return [
            Phase(f"{prefix}{name}", self._level(targets, scale, polish, first=i == 0), keep=i == last, usable=True)
            for i, (name, scale, polish) in enumerate(levels)
        ]

    def _level(
        self, targets: Targets, scale: Scale, polish: bool, first: bool
    ) -> Callable[[Tensor | None, torch.Generator], Optimisation]:
        settings, knowledge = self.settings, self.knowledge
        labels = settings.polish_labels if polish else settings.labels
        variation = settings.polish_variation if polish else settings.variation

        def build(smaller: Tensor | None, generator: torch.Generator) -> Optimisation:
            shape = (len(targets), knowledge.backbone.input_shape[0], scale.size, scale.size)
            return Optimisation(
                [
                    *target_terms(knowledge, targets, labels, 0.0),
                    Term("variation", variation, TotalVariation("absolute")),
                    *self.statistics,
                ],
                knowledge.backbone,
                knowledge.pooled,
                TensorVariable(
                    self._start(shape, None if first else smaller, generator), self.still if polish else self.moving
                ),
                Schedule(scale.steps, scale.rate, cosine_period=scale.steps),
                keep_best=polish,  # augmented losses of different steps cannot be compared
                micro_batch=settings.micro_batch,
                gradient_limit=settings.gradient_limit,
                adjust=_adjust(scale.steps, 0 if polish else settings.blur_every),
            )

        return build

    def _start(self, shape: tuple[int, ...], smaller: Tensor | None, generator: torch.Generator) -> Tensor:
        like = self.knowledge.like
        if smaller is None:
            return torch.rand(shape, generator=generator, device=generator.device, dtype=like.dtype).to(like.device)
        return interpolate(smaller.to(like), shape[2:], mode="bilinear", align_corners=False)


def _adjust(steps: int, blur_every: int) -> Callable[[int, Tensor], None]:
    def adjust(made: int, images: Tensor) -> None:
        if blur_every and made % blur_every == 0 and made <= steps // 2:
            images.copy_(avg_pool2d(pad(images, (1, 1, 1, 1), mode="replicate"), 3, stride=1))
        images.clamp_(0, 1)

    return adjust
