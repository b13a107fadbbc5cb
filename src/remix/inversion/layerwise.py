"""Layer-by-layer inversion: the input of every block from the top down, then all of the network at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from remix.inversion.checkpoint import Checkpoint
from remix.inversion.dream import Dream, OnProgress, dream_in_chunks, noise
from remix.inversion.knowledge import Knowledge
from remix.inversion.loop import Task
from remix.inversion.measurements import LayerMoments, Measurement, Reading
from remix.inversion.observed import Observed
from remix.inversion.phases import Phase
from remix.inversion.settings import LayerwiseSettings
from remix.inversion.statistics_penalties import StatisticsKl
from remix.inversion.target_penalties import FeatureMatch, LabelMatch
from remix.inversion.targets import Targets
from remix.inversion.term import Boost, Term
from remix.inversion.variables import TensorVariable
from remix.statistics import LayerStatistics, block_input_points

__all__ = ["invert_layerwise"]


def invert_layerwise(
    knowledge: Knowledge,
    targets: Targets,
    generator: torch.Generator,
    settings: LayerwiseSettings | None = None,
    *,
    progress: OnProgress | None = None,
    resume: Checkpoint | None = None,
) -> Dream:
    """Images whose pooled features are the targets'.

    Args:
        knowledge: the network, with statistics of its block inputs (measure `remix.statistics.block_input_points`) and,
            for a prior, covariances.
        targets: with features.
        generator: source of everything random.
        settings: the published ones by default.
        progress: called after every step.
        resume: the checkpoint of an unfinished run with the same arguments.

    Raises:
        ValueError: for targets without features or of another length, block inputs that were not measured, or a
            checkpoint of another run.
        InversionStoppedError: if numbers stop being finite.

    """
    settings = settings or LayerwiseSettings()
    _check(knowledge, targets, settings)
    plan = _Plan(knowledge, settings)
    empty = knowledge.like.new_empty(0, *knowledge.backbone.input_shape)
    return dream_in_chunks(
        knowledge.networks,
        targets,
        settings.batch,
        plan.phases,
        lambda images: images,
        empty,
        generator,
        progress,
        resume,
    )


def _check(knowledge: Knowledge, targets: Targets, settings: LayerwiseSettings) -> None:
    if settings.labels and knowledge.classify is None:
        raise ValueError("the weight labels needs a classifier: give Knowledge(..., classify=head)")
    dim = knowledge.backbone.feature_dim
    if targets.features is None:
        raise ValueError("layer-wise inversion matches features: make the targets with feature_targets(...)")
    if targets.features.shape[1] != dim:
        raise ValueError(
            f"the target features have length {targets.features.shape[1]}, those of this network {dim}: "
            "are they statistics of another network?"
        )
    missing = [name for name in block_input_points(knowledge.backbone) if name not in knowledge.block_inputs]
    if missing:
        raise ValueError(
            f"the input of block {missing[0]!r} was not measured: measure "
            "remix.statistics.block_input_points(backbone).values() with the channels view and add it to the layers"
        )


class _Plan:
    def __init__(self, knowledge: Knowledge, settings: LayerwiseSettings) -> None:
        self.knowledge, self.settings = knowledge, settings
        self.blocks = knowledge.backbone.blocks()
        self.reached = [knowledge.reached(i) for i in range(len(self.blocks))]
        # Bad names and missing covariances are found here, before any work.
        self.block_priors = [knowledge.prior_terms(settings.prior, reached) for reached in self.reached]
        self.prior = knowledge.prior_terms(settings.prior)

    def phases(self, targets: Targets, prefix: str) -> list[Phase]:
        top = len(self.blocks) - 1
        assert targets.features is not None
        features = targets.features.to(self.knowledge.like)
        phases = [
            Phase(f"{prefix}{self.blocks[i].name}", self._block(i, features if i == top else None), fresh=i == top)
            for i in range(top, -1, -1)
        ]
        return [*phases, Phase(f"{prefix}refine", self._refine(features, targets.labels), keep=True, usable=True)]

    def _boost(self, cap: float) -> Boost | None:
        return Boost(cap) if self.settings.boosting else None

    def _block(self, number: int, features: Tensor | None) -> Callable[[Tensor | None, torch.Generator], Task]:
        settings, knowledge = self.settings, self.knowledge
        block = self.blocks[number]
        weight = settings.statistics * len(self.blocks) * settings.block_factor
        inside = [layer for layer in knowledge.moments if layer.point in self.reached[number]]
        entering = knowledge.block_inputs.get(block.name)

        def build(above: Tensor | None, generator: torch.Generator) -> Task:
            target = features if features is not None else above
            assert target is not None
            target = target.to(knowledge.like)  # what a checkpoint held is not on a device yet
            terms = [Term("features", settings.features, FeatureMatch(target), self._boost(10))]
            if inside:
                terms.append(Term("statistics", weight, StatisticsKl(inside), self._boost(10)))
            if entering is not None:
                terms.append(Term("input", weight, _InputKl(entering), self._boost(5)))
            shape = (len(target), *knowledge.block_shapes[number])
            start = noise(shape, knowledge.like, generator)
            if entering is not None:
                start = _spread(start, entering)
            section = knowledge.section(block, last=features is not None)
            return Task(
                [*terms, *self.block_priors[number]],
                section,
                TensorVariable(start),
                settings.block,
                micro_batch=settings.micro_batch,
            )

        return build

    def _refine(self, features: Tensor, labels: Tensor) -> Callable[[Tensor | None, torch.Generator], Task]:
        settings, knowledge = self.settings, self.knowledge
        entering = knowledge.block_inputs.get(self.blocks[0].name)

        def build(images: Tensor | None, _: torch.Generator) -> Task:
            assert images is not None
            terms = [
                Term("features", settings.features, FeatureMatch(features), self._boost(10)),
                Term("statistics", settings.statistics, StatisticsKl(knowledge.moments), self._boost(10)),
                *self.prior,
            ]
            if entering is not None:  # images of a network that was cut are maps, and statistics of them are known
                terms.append(Term("input", settings.statistics, _InputKl(entering), self._boost(5)))
            if settings.labels and knowledge.classify is not None:
                match = LabelMatch(knowledge.classify, labels.to(features.device))
                terms.append(Term("labels", settings.labels, match))
            return Task(
                terms,
                knowledge.whole(),
                TensorVariable(images.to(knowledge.like)),
                settings.refine,
                micro_batch=settings.micro_batch,
            )

        return build


class _InputMoments(LayerMoments):
    """The moments of the unknown itself: no module needs to be watched for them."""

    points = ()

    def __call__(self, seen: Observed) -> Tensor:
        return self.passing(seen.variable)[1]


class _InputKl:
    """KL divergence of a block's input from the statistics of real inputs, channel by channel."""

    def __init__(self, layer: LayerStatistics) -> None:
        self._kl = StatisticsKl([layer])
        self.measurements: Sequence[Measurement] = [_InputMoments(layer, full=False)]

    def value(self, readings: Sequence[Reading], count: int) -> Tensor:
        return self._kl.value(readings, count)


def _spread(start: Tensor, layer: LayerStatistics) -> Tensor:
    """Standard normal numbers with the mean and variance of each channel (or position) of a layer."""
    axis = 2 if layer.view.name == "token-channels" else 1
    shape = [1] * start.dim()
    shape[axis] = -1
    return start * layer.variance.sqrt().to(start).reshape(shape) + layer.mean.to(start).reshape(shape)
