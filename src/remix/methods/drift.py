"""Drift: no pseudo-samples; features are held where they were, and the Gaussians of old classes move with them."""

# ruff: noqa: RUF009 (frozen dataclasses can be defaults)

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from remix.data import ImageDataset
from remix.learning.engine import Engine
from remix.learning.feature_losses import anti_collapse, feature_distillation
from remix.learning.method import Method, Step
from remix.learning.stage import Batch, Stage, Training, Work
from remix.methods.drifted import drawn_through, paired_features, shrunk, tied
from remix.methods.plain import FIRST
from remix.methods.prototypes import refuse_extending
from remix.methods.registry import method
from remix.methods.rotations import ROTATIONS, check_rotations, rotated
from remix.methods.solved_heads import SolvedKind, solved_head
from remix.methods.task_heads import task_head, turned_labels
from remix.networks import Backbone, ExactHead, Items
from remix.statistics import ClassGaussians, class_gaussians, fit_drift, fit_mlp_drift, fit_shift

__all__ = ["Drift", "total_variance"]

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
        collapse: weight of the term that keeps the features of a batch from collapsing (AdaGauss); 0 for none.
        rotations: whether the first task is learned in four rotations, each of which makes classes of its own.
        map: how class Gaussians move: all by the mean "shift" of features, by an "affine" map, or by one with an "mlp".
        covariance: of a class: "dense", one for all ("tied"), or "diagonal".
        head: "linear", fitted to draws from the Gaussians; the linear "discriminant"; or "bayes", as of AdaGauss.
        views: of every new image that the map and the Gaussians are fitted to, cropped and mirrored but for the first.

    """

    keeps: ClassVar[str] = "the network, and of every class a Gaussian of its features"
    by_steps: ClassVar[bool] = False
    first: Training = FIRST
    later: Training = replace(FIRST, clip=1.0)  # without a limit, features ran away at this rate
    distillation: float = 1.0
    collapse: float = 0.0
    rotations: bool = False
    map: Literal["shift", "affine", "mlp"] = "mlp"
    covariance: Literal["dense", "tied", "diagonal"] = "dense"
    head: SolvedKind = "linear"
    views: int = 2

    def __post_init__(self) -> None:
        if self.views < 1 or min(self.distillation, self.collapse) < 0:
            raise ValueError(
                "views must be at least 1, distillation and collapse not negative, got "
                f"{self.views}, {self.distillation} and {self.collapse}"
            )

    def check(self, backbone: Backbone, start: int = 0) -> None:
        """Images that are turned must be square, and come to the network as images."""
        if self.rotations:
            check_rotations(self.name, backbone, start)

    def stages(self, step: Step) -> list[Stage]:
        """Everything at once."""
        refuse_extending(self.name, step)
        if step == "first":
            return [Stage("first task", self.first, self._train, ROTATIONS if self.rotations else 1)]
        return [Stage("train", self.later, self._train)]

    def _train(self, engine: Engine) -> Work:
        teacher, dim = engine.teacher, engine.backbone.feature_dim
        turns = ROTATIONS if self.rotations and teacher is None else 1
        head = task_head(engine, turns)
        variance = None if teacher is None else total_variance(engine)

        def losses(batch: Batch) -> dict[str, Tensor]:
            items = Items(rotated(batch.real.x)) if turns > 1 else batch.real
            features = engine.pooled(items)
            found = {"local": cross_entropy(head(features), turned_labels(engine, batch.labels, turns))}
            if teacher is not None:
                with torch.no_grad():
                    before = teacher.backbone.pooled(*batch.real).float()
                found["features"] = self.distillation * feature_distillation(features, before, variance)
            if self.collapse and len(features) > dim:
                found["anti-collapse"] = self.collapse * anti_collapse(features)
            return found

        return Work([*engine.learning(), head], losses)

    def remember(self, engine: Engine, data: ImageDataset) -> None:
        """Move the Gaussians of the old classes, measure the new ones, solve the head of all."""
        before, after, labels = paired_features(engine, data, self.views)
        known, found = engine.memory.gaussians, self._measured(after, labels)
        if known is not None:
            found = self._moved(engine, known, before, after).replace(found)
        few = [count for count in found.counts if count <= found.dim]
        if few and self.covariance == "dense":
            engine.notes.append(
                f"{len(few)} classes have no more images than the network has features ({found.dim}), so their "
                "covariances are shrunk; covariance=tied has one for all classes"
            )
        engine.memory.gaussians = found = self._kept(found)
        sizes = engine.student.head.task_sizes
        engine.student.head = solved_head(self.head, engine.backbone, sizes, found).to(engine.team.device)

    def _measured(self, features: Tensor, labels: Tensor) -> ClassGaussians:
        found = class_gaussians(features, labels, self.covariance != "diagonal")
        return replace(found, counts=tuple(max(count // self.views, 1) for count in found.counts))

    def _moved(self, engine: Engine, known: ClassGaussians, before: Tensor, after: Tensor) -> ClassGaussians:
        if self.map == "shift":
            return known.moved(fit_shift(before, after))
        if self.map == "affine":
            return known.moved(fit_drift(before, after))
        return drawn_through(known, fit_mlp_drift(before, after, engine.generator), _DRAWS, engine.generator)

    def _kept(self, gaussians: ClassGaussians) -> ClassGaussians:
        return tied(gaussians) if self.covariance == "tied" else shrunk(gaussians)

    def refitted(self, engine: Engine, features: Tensor, labels: Tensor) -> ExactHead:
        """The same head from the Gaussians of real features."""
        found = self._kept(class_gaussians(features, labels, self.covariance != "diagonal"))
        return solved_head(self.head, engine.backbone, engine.student.head.task_sizes, found)


def total_variance(engine: Engine) -> Tensor:
    """Of every feature (D,) over the old classes: within them and between their means."""
    gaussians = engine.memory.gaussians
    assert gaussians is not None
    variance = gaussians.std.square().mean(0) + gaussians.mean.var(0, correction=0)
    return variance.clamp_min(_LEAST * variance.mean()).clamp_min(1e-12)
