"""Layer-by-layer inversion: the input of every block from the top down, then all of the network at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from remix.inversion.dream import Dream, OnProgress, dream_in_chunks, noise
from remix.inversion.knowledge import Knowledge
from remix.inversion.loop import Checkpoint, Optimisation
from remix.inversion.losses import FeatureMatch, LabelMatch
from remix.inversion.phases import Phase
from remix.inversion.settings import LayerwiseSettings
from remix.inversion.statistics_losses import StatisticsKl
from remix.inversion.targets import Targets
from remix.inversion.terms import Boost, Term
from remix.inversion.variables import TensorVariable
from remix.statistics import LayerStatistics

__all__ = ["invert_layerwise"]

Build = Callable[[Tensor | None, torch.Generator], Optimisation]


def invert_layerwise(
    knowledge: Knowledge,
    targets: Targets,
    generator: torch.Generator,
    settings: LayerwiseSettings | None = None,
    *,
    progress: OnProgress | None = None,
    resume: Checkpoint | None = None,
) -> Dream:
    """Images, or inputs of the block ``knowledge.start``, whose pooled features are the targets'.

    Args:
        knowledge: the network, with statistics of its block inputs (measure `Backbone.block_inputs`) and, for a prior,
            covariances.
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
    return dream_in_chunks(
        knowledge,
        targets,
        settings.batch,
        lambda part, prefix: plan.phases(targets[part], prefix),
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
    known = knowledge.block_inputs
    missing = [block for block in knowledge.inner_blocks.values() if block.name not in known]
    if missing:
        raise ValueError(
            f"the input of block {missing[0].name!r} was not measured: measure backbone.block_inputs("
            f"{knowledge.start or ''}) with the {missing[0].view.name} view and add it to the layers"
        )


class _Plan:
    def __init__(self, knowledge: Knowledge, settings: LayerwiseSettings) -> None:
        self.knowledge, self.settings = knowledge, settings
        self.blocks = knowledge.backbone.blocks()
        self.inputs = knowledge.block_inputs
        self.reached = {i: knowledge.reached(i) for i in range(knowledge.start, len(self.blocks))}
        # Bad names and missing covariances are found here, before any work.
        self.block_priors = {i: knowledge.prior_terms(settings.prior, self.reached[i]) for i in self.reached}
        self.prior = knowledge.prior_terms(settings.prior)

    def phases(self, targets: Targets, prefix: str) -> list[Phase]:
        top = len(self.blocks) - 1
        assert targets.features is not None
        features = targets.features.to(self.knowledge.like)
        phases = [
            Phase(f"{prefix}{self.blocks[i].name}", self._block(i, features if i == top else None), fresh=i == top)
            for i in reversed(self.reached)
        ]
        return [*phases, Phase(f"{prefix}refine", self._refine(features, targets.labels), keep=True, usable=True)]

    def _boost(self, cap: float) -> Boost | None:
        return Boost(cap) if self.settings.boosting else None

    def _terms(
        self, target: Tensor, weight: float, layers: list[LayerStatistics], entering: LayerStatistics | None
    ) -> list[Term]:
        """The output is the target, and layers have their moments; the unknown itself is another term's."""
        terms = [Term("features", self.settings.features, FeatureMatch(target), self._boost(10))]
        inside = [layer for layer in layers if entering is None or layer.key != entering.key]
        return [*terms, *([Term("statistics", weight, StatisticsKl(inside), self._boost(10))] if inside else [])]

    def _input(self, weight: float, entering: LayerStatistics | None) -> list[Term]:
        """The unknown has its moments, if they are known; images have none."""
        if entering is None:
            return []
        return [Term("input", weight, StatisticsKl([entering], of_variable=True), self._boost(5))]

    def _block(self, number: int, features: Tensor | None) -> Build:
        settings, knowledge, backbone = self.settings, self.knowledge, self.knowledge.backbone
        weight = settings.statistics * len(self.reached) * settings.block_factor
        inside = [layer for layer in knowledge.moments if layer.point in self.reached[number]]
        entering = self.inputs.get(self.blocks[number].name)
        forward = partial(backbone.features, start=number, stop=number + 1)
        if features is not None:
            forward = partial(backbone.pooled, start=number)

        def build(above: Tensor | None, generator: torch.Generator) -> Optimisation:
            target = features if features is not None else above
            assert target is not None
            target = target.to(knowledge.like)  # what a checkpoint held is not on a device yet
            terms = [*self._terms(target, weight, inside, entering), *self._input(weight, entering)]
            start = noise((len(target), *knowledge.block_shapes[number]), knowledge.like, generator)
            if entering is not None:
                start = _spread(start, entering)
            return Optimisation(
                [*terms, *self.block_priors[number]],
                backbone,
                forward,
                TensorVariable(start),
                settings.block,
                micro_batch=settings.micro_batch,
            )

        return build

    def _refine(self, features: Tensor, labels: Tensor) -> Build:
        settings, knowledge = self.settings, self.knowledge
        entering = self.inputs.get(self.blocks[knowledge.start].name)

        def build(found: Tensor | None, _: torch.Generator) -> Optimisation:
            assert found is not None
            terms = [
                *self._terms(features, settings.statistics, knowledge.moments, entering),
                *self.prior,
                *self._input(settings.statistics, entering),
            ]
            if settings.labels and knowledge.classify is not None:
                match = LabelMatch(knowledge.classify, labels.to(features.device))
                terms.append(Term("labels", settings.labels, match))
            return Optimisation(
                terms,
                knowledge.backbone,
                knowledge.pooled,
                TensorVariable(found.to(knowledge.like)),
                settings.refine,
                micro_batch=settings.micro_batch,
            )

        return build


def _spread(start: Tensor, layer: LayerStatistics) -> Tensor:
    """Standard normal numbers with the mean and variance of each channel (or position) of a layer."""
    assert layer.view.axis is not None
    shape = [1] * start.dim()
    shape[layer.view.axis] = -1
    return start * layer.variance.sqrt().to(start).reshape(shape) + layer.mean.to(start).reshape(shape)
