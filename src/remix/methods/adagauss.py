"""AdaGauss (Rypesc et al., 2024): class Gaussians drawn through a learned map, features kept from collapsing."""

# ruff: noqa: RUF009 (frozen dataclasses can be defaults)

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from remix.data import ImageDataset
from remix.learning.engine import Engine
from remix.learning.feature_losses import anti_collapse, feature_distillation
from remix.learning.feature_maps import FeatureMlp
from remix.learning.method import Method, Step
from remix.learning.stage import Stage, Training, Work
from remix.methods.drifted import drawn_through, learn_map
from remix.methods.held_features import check_batches, held_features
from remix.methods.prototypes import refuse_extending, refuse_single_classes
from remix.methods.registry import method
from remix.methods.rotations import ROTATIONS, check_rotations
from remix.methods.solved_heads import SolvedKind, last_block, solved_head
from remix.methods.task_heads import TASK_HEAD
from remix.networks import Backbone, ExactHead, Items
from remix.networks.probe import evaluating
from remix.statistics import ClassGaussians, class_gaussians

__all__ = ["AdaGauss"]

_DRAWS = 10_000  # of every class, through the map
_RESTING = 100  # of so many epochs, the network rests in one, the first


@method("adagauss")
@dataclass(frozen=True)
class AdaGauss(Method):
    """AdaGauss: what new features say of the old ones is kept; class Gaussians are drawn through a learned map.

    Args:
        first: training of the first task.
        later: training of every later task.
        adapt: training of the map from old to new features, the network frozen.
        distillation: weight of the squared distance between what a learned map makes of features and the old model's.
        collapse: weight of the term that keeps the features of a batch from collapsing.
        rotations: whether the first task is learned in four rotations, each of which makes classes of its own.
        head: "bayes", as published; or one of the others of `drift`.

    """

    by_steps: ClassVar[bool] = False
    first: Training = Training(200, 0.1, (60, 120, 180), clip=1.0)
    later: Training = Training(200, 0.01, (60, 120, 180), clip=1.0)
    adapt: Training = Training(100, 0.01, (30, 60, 90), clip=1.0)
    distillation: float = 10.0
    collapse: float = 1.0
    rotations: bool = True
    head: SolvedKind = "bayes"

    def __post_init__(self) -> None:
        if min(self.distillation, self.collapse) < 0:
            raise ValueError(
                f"distillation and collapse must not be negative, got {self.distillation} and {self.collapse}"
            )

    def check(self, backbone: Backbone, start: int = 0) -> None:
        """Images that are turned must be square, and come to the network as images."""
        if self.rotations:
            check_rotations(self.name, backbone, start)

    def check_tasks(self, tasks: Sequence[Sequence[str]]) -> None:
        """Every task needs classes to tell apart."""
        refuse_single_classes(self.name, tasks)

    def begin(self, engine: Engine) -> None:
        """The covariance of a batch must have a factor."""
        check_batches(engine, self.collapse)

    def stages(self, step: Step) -> list[Stage]:
        """The network; then the map from the features that were to those that are."""
        refuse_extending(self.name, step)
        if step == "first":
            return [Stage("first task", self.first, self._train, ROTATIONS if self.rotations else 1)]
        return [Stage("train", self.later, self._train), Stage("adapt", self.adapt, self._adapt)]

    def _train(self, engine: Engine) -> Work:
        first = engine.teacher is None
        epochs = (self.first if first else self.later).epochs
        distiller = None if first else _mlp(engine, "distiller")

        def distance(features: Tensor, before: Tensor) -> Tensor:
            assert distiller is not None
            return self.distillation * feature_distillation(distiller(features), before)

        losses = held_features(
            engine,
            distance,
            turns=ROTATIONS if self.rotations and first else 1,
            collapse=self.collapse,
            resting=lambda: engine.stage_state.epoch < epochs // _RESTING,
        )
        beside = [] if distiller is None else [distiller]
        return Work([*engine.learning(), engine.modules[TASK_HEAD], *beside], losses)

    def _adapt(self, engine: Engine) -> Work:
        def loss(found: Tensor, after: Tensor) -> dict[str, Tensor]:
            terms = {"drift": feature_distillation(found, after)}
            if self.collapse and len(found) > found.shape[1]:
                terms["anti-collapse"] = self.collapse * anti_collapse(found)
            return terms

        return learn_map(engine, _mlp(engine, "adapter"), loss)

    def remember(self, engine: Engine, data: ImageDataset) -> None:
        """Draw the old classes through the map, measure the new ones, solve the head of all."""
        found, known = _with_mirror_images(engine, data), engine.memory.gaussians
        if known is not None:
            found = drawn_through(known, _mlp(engine, "adapter"), _DRAWS, engine.generator).replace(found)
        engine.memory.gaussians = found
        map, sizes = last_block(engine.backbone), engine.student.head.task_sizes
        engine.student.head = solved_head(self.head, map, sizes, found).to(engine.team.device)

    def refitted(self, engine: Engine, features: Tensor, labels: Tensor) -> ExactHead:
        """The same head from the Gaussians of real features."""
        found = class_gaussians(features, labels, correlated=True)
        return solved_head(self.head, last_block(engine.backbone), engine.student.head.task_sizes, found)


def _mlp(engine: Engine, name: str) -> FeatureMlp:
    return engine.module(name, lambda: FeatureMlp(engine.backbone.feature_dim, engine.generator))


def _with_mirror_images(engine: Engine, data: ImageDataset) -> ClassGaussians:
    """The Gaussians of images as they are and mirrored; counts are of images."""
    features, labels = [], []
    with torch.no_grad(), evaluating(engine.student), engine.team.precision():
        for items, known in engine.images(data):
            for view in (items,) if items.start else (items, Items(items.x.flip(-1))):
                features.append(engine.backbone.pooled(*view).float())
                labels.append(known)
    found = class_gaussians(torch.cat(features), torch.cat(labels), correlated=True)
    counts = data.labels.bincount(minlength=max(found.labels) + 1)
    return replace(found, counts=tuple(int(counts[label]) for label in found.labels))
