"""Layer-by-layer inversion: the input of every block from the top down, then all of the network at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from remix.inversion.appendix import SquaredVariation, move_by_labels, spread_of_outputs
from remix.inversion.dream import Dream, OnProgress, dream_in_chunks, noise
from remix.inversion.knowledge import Knowledge
from remix.inversion.loop import Checkpoint, Optimisation
from remix.inversion.losses import FeatureMatch, LabelMatch, TotalVariation
from remix.inversion.phases import Phase
from remix.inversion.priors import CovariancePrior
from remix.inversion.settings import LayerwiseSettings
from remix.inversion.statistics_losses import StatisticsKl
from remix.inversion.targets import Targets
from remix.inversion.terms import Boost, Term
from remix.inversion.variables import GrowingVariable, TensorVariable
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
        settings: those of the authors' code by default.
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
    if (settings.labels or settings.top == "labels") and knowledge.classify is None:
        raise ValueError("the weight labels and top=labels need a classifier: give Knowledge(..., classify=head)")
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
        inputs = {layer.point for layer in self.inputs.values()}
        self.refined = inputs if settings.refine_at == "blocks" else None
        self.prior = knowledge.prior_terms(settings.prior, self.refined)

    def phases(self, targets: Targets, prefix: str) -> list[Phase]:
        top = len(self.blocks) - 1
        assert targets.features is not None
        features, labels = targets.features.to(self.knowledge.like), targets.labels.to(self.knowledge.like.device)
        given = None if self.settings.top == "labels" else features
        phases = [
            Phase(
                f"{prefix}{self.blocks[i].name}",
                self._block(i, given if i == top else None),
                fresh=i == top and given is not None,
            )
            for i in reversed(self.reached)
        ]
        if given is None:
            phases.insert(0, Phase(f"{prefix}labels", self._labels(features, labels), fresh=True))
        return [*phases, Phase(f"{prefix}refine", self._refine(features, labels), keep=True, usable=True)]

    @property
    def _in_block(self) -> float:
        """How much more than in the refinement statistics weigh in a block."""
        return len(self.reached) * self.settings.block_factor

    def _boost(self, cap: float) -> Boost | None:
        return Boost(cap) if self.settings.boosting else None

    def _match(self, weight: float, target: Tensor, above: LayerStatistics | None) -> list[Term]:
        """The output is the target; ``above`` are statistics of what the next block receives."""
        if not weight:
            return []
        spread = spread_of_outputs(above, target) if self.settings.normalised else None
        return [Term("features", weight, FeatureMatch(target, spread), self._boost(10))]

    def _statistics(self, weight: float, number: int | None, entering: LayerStatistics | None) -> list[Term]:
        """Layers of one block, or of all, have the moments of real data; the unknown itself is another term's."""
        knowledge, prior = self.knowledge, self.settings.prior
        likely = self.settings.statistics_form == "nll"
        layers = knowledge.prior_layers(prior) if likely else knowledge.moments
        at = self.refined if number is None else self.reached[number]
        layers = [layer for layer in layers if at is None or layer.point in at]
        inside = [layer for layer in layers if entering is None or layer.key != entering.key]
        if not inside or not weight:
            return []
        loss = CovariancePrior(inside, prior.kind, "nll", summed=True) if likely else StatisticsKl(inside)
        return [Term("statistics", weight, loss, self._boost(10))]

    def _input(self, weight: float, entering: LayerStatistics | None) -> list[Term]:
        """The unknown has its moments, if they are known; images have none."""
        if entering is None or not weight:
            return []
        return [Term("input", weight, StatisticsKl([entering], of_variable=True), self._boost(5))]

    def _labels(self, features: Tensor, labels: Tensor) -> Build:
        settings, knowledge = self.settings, self.knowledge
        classify = knowledge.classify
        assert classify is not None
        return lambda _, __: move_by_labels(features.clone(), labels, classify, knowledge.backbone, settings)

    def _block(self, number: int, features: Tensor | None) -> Build:
        settings, knowledge, backbone = self.settings, self.knowledge, self.knowledge.backbone
        entering, above = self._entering(number), self._entering(number + 1)
        forward = partial(backbone.features, start=number, stop=number + 1)
        if number + 1 == len(self.blocks):
            forward = partial(backbone.pooled, start=number)
        inside = [
            *self._statistics(settings.statistics * self._in_block, number, entering),
            *self._input(settings.input * self._in_block, entering),
            *([Term("image", settings.variation, SquaredVariation())] if settings.variation and not number else []),
            *self.block_priors[number],
        ]

        def build(found: Tensor | None, generator: torch.Generator) -> Optimisation:
            target = features if features is not None else found
            assert target is not None
            target = target.to(knowledge.like)  # what a checkpoint held is not on a device yet
            first = number == knowledge.start
            shape, side = knowledge.block_shapes[number], settings.entry_side if first else None
            grows = side is not None and len(shape) == 3
            begun = (shape[0], min(side, shape[1]), min(side, shape[2])) if grows and side is not None else shape
            start = noise((len(target), *begun), knowledge.like, generator)
            if entering is not None:
                start = _spread(start, entering)
            schedule = settings.entry if first and settings.entry is not None else settings.block
            return Optimisation(
                [*self._match(settings.features, target, above), *inside],
                backbone,
                forward,
                GrowingVariable(start, (shape[1], shape[2]), schedule.steps) if grows else TensorVariable(start),
                schedule,
                keep_best=not grows,
                micro_batch=settings.micro_batch,
            )

        return build

    def _entering(self, number: int) -> LayerStatistics | None:
        """What is known of the input of a block; of images, and of what leaves the last block, nothing."""
        return self.inputs.get(self.blocks[number].name) if number < len(self.blocks) else None

    def _refine(self, features: Tensor, labels: Tensor) -> Build:
        settings, knowledge = self.settings, self.knowledge
        entering = self._entering(knowledge.start)
        terms = [
            *self._match(settings.refine_features, features, None),
            *self._statistics(settings.statistics, None, entering),
            *self.prior,
            *(self._input(settings.input, entering) if settings.refine_at == "all" else []),
        ]
        if settings.refine_variation:
            terms.append(Term("variation", settings.refine_variation, TotalVariation("map-norms")))
        if settings.labels and knowledge.classify is not None:
            terms.append(Term("labels", settings.labels, LabelMatch(knowledge.classify, labels)))

        def build(found: Tensor | None, _: torch.Generator) -> Optimisation:
            assert found is not None
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
