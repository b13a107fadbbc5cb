"""Pixel inversion: images are the unknowns, the whole network is the judge."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from remix.inversion.dream import Dream, OnProgress, dream_in_chunks, noise
from remix.inversion.knowledge import Knowledge
from remix.inversion.loop import Checkpoint, Optimisation
from remix.inversion.losses import FeatureMatch, ImageNorm, LabelMatch, TotalVariation
from remix.inversion.phases import Phase
from remix.inversion.settings import PixelSettings
from remix.inversion.statistics_losses import MomentDistance
from remix.inversion.targets import Targets
from remix.inversion.terms import Term
from remix.inversion.variables import Augmentation, TensorVariable

__all__ = ["check_normalisation", "invert_pixels", "target_terms"]


def invert_pixels(
    knowledge: Knowledge,
    targets: Targets,
    generator: torch.Generator,
    settings: PixelSettings | None = None,
    *,
    start: Tensor | None = None,
    progress: OnProgress | None = None,
    resume: Checkpoint | None = None,
) -> Dream:
    """Images that the network takes for the targets, in the manner of DeepInversion.

    Args:
        knowledge: the network, with a head (``classify``) where labels count, and covariances for a prior.
        targets: labels; features too, if ``settings.features`` is not 0.
        generator: source of everything random.
        settings: the published ones by default.
        start: images (N, C, H, W) to start from; by default standard normal noise.
        progress: called after every step.
        resume: the checkpoint of an unfinished run with the same arguments.

    Raises:
        ValueError: for a class the head does not have, targets that lack what the settings ask for, a start of
            another size, a start inside the network, or a checkpoint of another run.
        InversionStoppedError: if numbers stop being finite.

    """
    settings = settings or PixelSettings()
    knowledge.require_images("invert_pixels")
    input_shape = knowledge.backbone.input_shape
    if start is not None:
        _check_start(start, len(targets), input_shape)
    augmentation = replace(settings.augmentation, size=input_shape[1:])
    check_normalisation(augmentation, input_shape[0])
    target_terms(knowledge, targets, settings.labels, settings.features)
    statistics = [
        Term("statistics", settings.statistics, MomentDistance(knowledge.moments, "norm")),
        Term("variation", settings.variation, TotalVariation("batch-norms")),
        Term("norm", settings.norm, ImageNorm()),
        *knowledge.prior_terms(settings.prior),
    ]

    def phases(part: slice, prefix: str) -> list[Phase]:
        def build(_: Tensor | None, generator: torch.Generator) -> Optimisation:
            like, wanted = knowledge.like, targets[part]
            images = noise((len(wanted), *input_shape), like, generator) if start is None else start[part].to(like)
            return Optimisation(
                [*target_terms(knowledge, wanted, settings.labels, settings.features), *statistics],
                knowledge.backbone,
                knowledge.pooled,
                TensorVariable(images, augmentation),
                settings.schedule,
                micro_batch=settings.micro_batch,
            )

        return [Phase(f"{prefix}pixels", build, keep=True, usable=True)]

    return dream_in_chunks(knowledge, targets, settings.batch, phases, generator, progress, resume, augmentation.plain)


def target_terms(knowledge: Knowledge, targets: Targets, labels: float, features: float) -> list[Term]:
    """Terms for the labels and features of targets, with these weights.

    Raises:
        ValueError: for a class the head does not have, or where head or features are missing.

    """
    terms = []
    like = knowledge.like
    if labels:
        if knowledge.classify is None:
            raise ValueError("labels count in this objective: give the head as classify=..., or set their weight to 0")
        with torch.no_grad():
            classes = knowledge.classify(like.new_zeros(1, knowledge.backbone.feature_dim)).shape[1]
        if int(targets.labels.max()) >= classes:
            raise ValueError(f"there is no class {int(targets.labels.max())}: the head has classes 0..{classes - 1}")
        terms.append(Term("labels", labels, LabelMatch(knowledge.classify, targets.labels.to(like.device))))
    if features:
        if targets.features is None or targets.features.shape[1] != knowledge.backbone.feature_dim:
            shape = None if targets.features is None else tuple(targets.features.shape)
            raise ValueError(
                f"features count in this objective: the targets need features (N, {knowledge.backbone.feature_dim}), "
                f"got {shape}"
            )
        terms.append(Term("features", features, FeatureMatch(targets.features.to(like))))
    return terms


def _check_start(start: Tensor, count: int, input_shape: tuple[int, int, int]) -> None:
    if start.dim() != 4 or tuple(start.shape) != (count, *input_shape):
        kind = {1: "grey", 3: "colour"}.get(input_shape[0], f"{input_shape[0]}-channel")
        raise ValueError(
            f"start must be {count} {kind} images {(count, *input_shape)} for this network, got {tuple(start.shape)}"
        )
    if not bool(torch.isfinite(start).all()):
        raise ValueError("start must be finite, but holds NaN or infinite pixels")


def check_normalisation(augmentation: Augmentation, channels: int) -> None:
    """Check that mean and std are those of as many channels as the network's images have. Raises ValueError if not."""
    for name, numbers in (("mean", augmentation.mean), ("std", augmentation.std)):
        if numbers is not None and len(numbers) != channels:
            raise ValueError(
                f"{name} has {len(numbers)} channels, but the network takes images with {channels}: "
                f"give {channels} numbers, or None for images that are normalised already"
            )
