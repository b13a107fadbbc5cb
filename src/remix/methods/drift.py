"""Drift: features are held where they were, the Gaussians of old classes move with them; pseudo-samples if wanted."""

# ruff: noqa: RUF009 (frozen dataclasses can be defaults)

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from remix.data import ImageDataset
from remix.inversion import LayerwiseSettings, PriorSettings, Targets, random_labels
from remix.learning.engine import Engine
from remix.learning.feature_losses import feature_distillation
from remix.learning.feature_maps import FeatureMlp
from remix.learning.items import TensorReplay
from remix.learning.method import Method, Step
from remix.learning.stage import Stage, Training, Work
from remix.methods.drifted import drawn_through, paired_dreams, paired_features, shrunk, tied
from remix.methods.held_features import check_batches, held_features
from remix.methods.plain import FIRST
from remix.methods.pmi import merged_layers
from remix.methods.prototypes import refuse_extending
from remix.methods.registry import method
from remix.methods.remix import Remix
from remix.methods.rotations import ROTATIONS, check_rotations
from remix.methods.solved_heads import SolvedKind, last_block, solved_head
from remix.methods.step_features import stage_ends
from remix.methods.task_heads import TASK_HEAD
from remix.networks import Backbone, ExactHead, FeatureMap
from remix.networks.probe import evaluating
from remix.statistics import (
    MLP_SHARE,
    ClassGaussians,
    class_gaussians,
    fit_drift,
    fit_mlp_drift,
    fit_shift,
    run_meters,
)

__all__ = ["Drift", "old_variance"]

_DRAWS = 2000  # of every class, where a map that is not affine moves it
_LEAST = 0.01  # of the mean variance: a feature that hardly varies must not outweigh all others


@method("drift")
@dataclass(frozen=True)
class Drift(Method):
    """Drift: features of new images are held near the old model's; class Gaussians move with them, and so the head.

    Args:
        first: training of the first task.
        later: training of every later task, of everything as well.
        distillation: weight of the squared distance of features from the old model's, in units of their variance.
        blocks: of whose features the head is made: the "last", or in detail the last of every one of the network's
            "stages", side by side.
        projector: whether that distance is of what a small network, learned beside, makes of the features.
        collapse: weight of the term that keeps the features of a batch from collapsing (AdaGauss); 0 for none.
        rotations: whether the first task is learned in four rotations, each of which makes classes of its own.
        batchnorm: whether BatchNorm layers "learn" in later tasks or are "held" as the first task left them.
        map: how class Gaussians move: all by the mean "shift" of features, by an "affine" map, or by one with an "mlp".
        covariance: of a class: "dense", "laplace" (two numbers per feature), one for all ("tied"), or "diagonal".
        head: "linear", fitted to draws from the Gaussians; the linear "discriminant"; or "bayes", as of AdaGauss.
        views: of every new image that the map and the Gaussians are fitted to, cropped and mirrored but for the first.
        distil_on: whose features are held: those of "new" images, or of "both" these and synthetic ones.
        witnesses: whose features tell the drift: those of "new" images, of "synthetic" ones, or of "both".
        samples: synthetic images, besides those per task, where they are used; made as by `remix`.
        samples_per_task: more of them for every task learned before.
        view: what the prior of the inversion looks at; see `remix`.
        inversion: layer by layer, then refined; see `remix`.

    """

    keeps: ClassVar[str] = "the network, and of every class a Gaussian of its features"
    solves: ClassVar[bool] = True
    first: Training = FIRST
    later: Training = replace(FIRST, clip=1.0)  # without a limit, features ran away at this rate
    distillation: float = 1.0
    blocks: Literal["last", "stages"] = "stages"
    projector: bool = False
    collapse: float = 0.0
    rotations: bool = False
    batchnorm: Literal["learn", "held"] = "learn"
    map: Literal["shift", "affine", "mlp"] = "affine"
    covariance: Literal["dense", "laplace", "tied", "diagonal"] = "tied"
    head: SolvedKind = "discriminant"
    views: int = 2
    distil_on: Literal["new", "both"] = "new"
    witnesses: Literal["new", "synthetic", "both"] = "new"
    samples: int = 3000
    samples_per_task: int = 2000
    view: Literal["channels", "map"] = "channels"
    inversion: LayerwiseSettings = LayerwiseSettings(prior=PriorSettings("none"))

    def __post_init__(self) -> None:
        if self.views < 1 or min(self.distillation, self.collapse) < 0:
            raise ValueError(
                "views must be at least 1, distillation and collapse not negative, got "
                f"{self.views}, {self.distillation} and {self.collapse}"
            )
        _ = self._inverter  # refuses numbers of samples that are none

    @cached_property
    def _inverter(self) -> Remix | None:
        """What makes synthetic images, if they are wanted."""
        if self.distil_on == self.witnesses == "new":
            return None
        return Remix(
            samples=self.samples,
            samples_per_task=self.samples_per_task,
            selection=False,
            view=self.view,
            inversion=self.inversion,
        )

    def check(self, backbone: Backbone, start: int = 0) -> None:
        """Images that are turned must be square, and come to the network as images; a prior must fit what it sees."""
        if self.rotations:
            check_rotations(self.name, backbone, start)
        if self._inverter is not None:
            self._inverter.check(backbone, start)

    def begin(self, engine: Engine) -> None:
        """Refuse batches that are too small; tell of a task with nothing to learn."""
        check_batches(engine, self.collapse)
        known = engine.memory.gaussians
        correlated = known is not None and (known.correlations is not None or self.covariance == "diagonal")
        if engine.teacher is not None and not correlated:
            raise ValueError(
                "the model keeps no covariances of its classes, so the method drift cannot go on with it: go on with "
                "the method that it has, or learn all classes anew with drift"
            )
        if known is not None and known.dim != self._map(engine).dim:
            raise ValueError(
                f"the Gaussians of the known classes are of {known.dim} features, and drift reads "
                f"{self._map(engine).dim}: they are of an earlier version or another setting of blocks; begin anew"
            )
        if self._inverter is not None:
            self._inverter.begin(engine)
        if engine.teacher is None and engine.new_classes == 1 and not self.rotations:
            engine.notes.append(
                "the first task has one class, so there was nothing to tell it from and the network learned nothing; "
                "begin with more classes, or with settings.rotations=true"
            )

    def dream(self, engine: Engine) -> TensorReplay | None:
        """Synthetic images of the old classes, if they are wanted: of averages of the last block."""
        if self._inverter is None:
            return None
        assert engine.memory.gaussians is not None
        count = self.samples + self.samples_per_task * engine.tasks
        labels = random_labels(range(engine.old_classes), count, engine.generator)
        features = engine.memory.gaussians.sample(labels, engine.generator)
        average = self._map(engine).last_average(features, engine.backbone.feature_dim)
        return self._inverter.dream_of(engine, Targets(labels, average))

    def dream_work(self, tasks: int) -> tuple[int, int]:
        """As of `remix`."""
        return (0, 0) if self._inverter is None else self._inverter.dream_work(tasks)

    def stages(self, step: Step) -> list[Stage]:
        """Everything at once."""
        refuse_extending(self.name, step)
        if step == "first":
            return [Stage("first task", self.first, self._train, ROTATIONS if self.rotations else 1)]
        return [Stage("train", self.later, self._train)]

    def _train(self, engine: Engine) -> Work:
        first, dim, map = engine.teacher is None, engine.backbone.feature_dim, self._map(engine)
        variance = None if first else old_variance(engine)
        projectors = []
        if self.projector and not first:
            projectors.append(engine.module("projector", lambda: FeatureMlp(dim, engine.generator)))

        def distance(features: Tensor, before: Tensor) -> Tensor:
            seen = projectors[0](features) if projectors else features
            return self.distillation * feature_distillation(seen, before, variance)

        turns = ROTATIONS if self.rotations and first else 1

        def drawn(labels: Tensor) -> Tensor:
            assert engine.memory.gaussians is not None
            return map.last_average(engine.memory.gaussians.sample(labels, engine.generator), dim)

        both = self.distil_on == "both"
        losses = held_features(engine, distance, turns=turns, collapse=self.collapse, dreams=both, drawn=drawn)
        holds = self.batchnorm == "held" and not first
        held = [module for module in engine.backbone.modules() if holds and isinstance(module, _BatchNorm)]
        return Work([*engine.learning(), engine.modules[TASK_HEAD], *projectors], losses, held=held)

    def remember(self, engine: Engine, data: ImageDataset) -> None:
        """Move the Gaussians of the old classes, measure the new ones, solve the head of all."""
        map = self._map(engine)
        before, after, labels = paired_features(engine, data, self.views, map.at)
        known, found = engine.memory.gaussians, self._measured(after, labels)
        if known is not None:
            found = self._moved(engine, known, *self._witnessed(engine, before, after)).replace(found)
        few = [count for count in found.counts if count <= found.dim]
        if few and self.covariance in ("dense", "laplace"):
            engine.notes.append(
                f"{len(few)} classes have no more images than the network has features ({found.dim}), so their "
                "covariances are shrunk; covariance=tied has one for all classes"
            )
        engine.memory.gaussians = found = self._kept(found)
        sizes = engine.student.head.task_sizes
        engine.student.head = solved_head(self.head, map, sizes, found).to(engine.team.device)
        if self._inverter is not None:
            meters = self._inverter.layer_meters(engine.backbone, engine.start)
            run_meters(engine.backbone, engine.images(data), meters)
            layers = {key: layer for meter in meters for key, layer in meter.statistics().items()}
            engine.memory.layers = merged_layers(engine, layers)

    def _map(self, engine: Engine) -> FeatureMap:
        return last_block(engine.backbone) if self.blocks == "last" else stage_ends(engine.backbone, engine.start)

    def _measured(self, features: Tensor, labels: Tensor) -> ClassGaussians:
        found = class_gaussians(features, labels, self.covariance != "diagonal")
        return replace(found, counts=tuple(max(count // self.views, 1) for count in found.counts))

    def _witnessed(self, engine: Engine, before: Tensor, after: Tensor) -> tuple[Tensor, Tensor]:
        """Features before and after of those that tell the drift."""
        if self.witnesses == "new":
            return before, after
        dreamed = paired_dreams(engine, self._map(engine).at)
        if self.witnesses == "synthetic":
            return dreamed
        return torch.cat([before, dreamed[0]]), torch.cat([after, dreamed[1]])

    def _moved(self, engine: Engine, known: ClassGaussians, before: Tensor, after: Tensor) -> ClassGaussians:
        if self.map == "shift":
            return known.moved(fit_shift(before, after))
        count, dim = before.shape
        if self.map == "affine":
            if count <= dim:
                engine.notes.append(
                    f"the drift of {dim} features was told by {count} images, so that what these do not show is taken "
                    "to have stayed; map=shift needs fewer"
                )
            return known.moved(fit_drift(before, after))
        if count < MLP_SHARE * dim:
            engine.notes.append(
                f"the drift of {dim} features was told by {count} images, too few for an mlp: it is the affine map"
            )
        found = fit_mlp_drift(before, after, engine.generator)
        moved = drawn_through(known, found, _DRAWS, engine.generator)
        return moved.moved(fit_shift(before, before)._replace(residual=found.residual))  # goes nowhere, and widens

    def _kept(self, gaussians: ClassGaussians) -> ClassGaussians:
        if self.covariance == "tied":
            return tied(gaussians)
        return shrunk(gaussians).compact() if self.covariance == "laplace" else shrunk(gaussians)

    def refitted(self, engine: Engine, features: Tensor, labels: Tensor) -> ExactHead:
        """The same head from the Gaussians of real features."""
        found = self._kept(class_gaussians(features, labels, self.covariance != "diagonal"))
        return solved_head(self.head, self._map(engine), engine.student.head.task_sizes, found)


def old_variance(engine: Engine) -> Tensor:
    """Of every feature (D,) of the old model over the new images: what holds a feature is in these units."""
    assert engine.present is not None
    assert engine.teacher is not None
    with evaluating(engine.teacher), engine.team.precision():
        parts = [engine.teacher.backbone.pooled(*items).float() for items, _ in engine.images(engine.present)]
    variance = torch.cat(parts).var(0, correction=0)
    return variance.clamp_min(_LEAST * variance.mean()).clamp_min(1e-12)
