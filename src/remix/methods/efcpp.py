"""EFC++, elastic feature consolidation (Magistri et al., 2025): features stay where answers depend on them."""

# ruff: noqa: RUF009 (frozen dataclasses can be defaults)

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.modules.batchnorm import _BatchNorm

from remix.data import ImageDataset
from remix.learning.engine import Engine
from remix.learning.feature_losses import matrix_distillation
from remix.learning.feature_maps import seeded_linear
from remix.learning.method import Method, Step
from remix.learning.stage import Batch, Stage, Training, Work
from remix.methods.drifted import balance_head_on_gaussians, paired_features, student_features
from remix.methods.plain import everything
from remix.methods.prototypes import refuse_extending, refuse_single_classes
from remix.methods.registry import method
from remix.methods.rotations import ROTATIONS, check_rotations, rotated
from remix.methods.task_heads import turned_labels
from remix.networks import Backbone, Items
from remix.statistics import ClassGaussians, FeatureMatrix, class_gaussians, feature_matrix, shifted_means

__all__ = ["Efcpp"]


@method("efcpp")
@dataclass(frozen=True)
class Efcpp(Method):
    """EFC++: features stay where old answers depend on them; heads are balanced on draws of class Gaussians.

    Args:
        first: training of the first task, in four rotations that are told apart.
        later: training of every later task: the newest head and the network, BatchNorm frozen.
        balance: of all heads, on new images and draws of the old classes.
        importance: weight of the squared distance of features from the old model's, in the feature matrix.
        rigidity: weight of the same distance in all directions alike.
        width: of what counts as near to a mean, when that moves as features near to it moved.

    """

    by_steps: ClassVar[bool] = False
    first: Training = Training(100, 1e-3, (45, 90), weight_decay=2e-4, optimiser="adam")
    later: Training = Training(100, 1e-4, weight_decay=2e-4, optimiser="adam")
    balance: Training = Training(50, 1e-3)
    importance: float = 10.0
    rigidity: float = 0.1
    width: float = 0.2

    def __post_init__(self) -> None:
        if min(self.importance, self.rigidity) < 0 or not self.width > 0:
            raise ValueError(
                "importance and rigidity must not be negative and width above 0, got "
                f"{self.importance}, {self.rigidity} and {self.width}"
            )

    def check(self, backbone: Backbone, start: int = 0) -> None:
        """Images are turned in the first task."""
        check_rotations(self.name, backbone, start)

    def head_kind(self, asked: str) -> str:
        """Its matrix is that of a linear head."""
        if asked != "linear":
            raise ValueError(f"the method {self.name} learns with a linear head, not with one of the kind {asked!r}")
        return asked

    def check_tasks(self, tasks: Sequence[Sequence[str]]) -> None:
        """Every task needs classes to tell apart."""
        refuse_single_classes(self.name, tasks)

    def stages(self, step: Step) -> list[Stage]:
        """The network with the newest head; then all heads."""
        refuse_extending(self.name, step)
        if step == "first":
            return [Stage("first task", self.first, self._first, ROTATIONS)]
        return [Stage("train", self.later, self._later), Stage("balance the heads", self.balance, self._balance)]

    def _first(self, engine: Engine) -> Work:
        head, dim, classes = engine.student.head, engine.backbone.feature_dim, engine.new_classes
        turned = engine.module(
            "turned head", lambda: seeded_linear(dim, (ROTATIONS - 1) * classes, engine.generator, bias=False)
        )

        def losses(batch: Batch) -> dict[str, Tensor]:
            features = engine.pooled(Items(rotated(batch.real.x)))
            logits = torch.cat([head(features), turned(features)], dim=1)
            return {"cross-entropy": cross_entropy(logits, turned_labels(engine, batch.labels, ROTATIONS))}

        return Work([*everything(engine), turned], losses)

    def _later(self, engine: Engine) -> Work:
        teacher, newest, old = engine.teacher, engine.student.head.newest(), engine.old_classes
        assert teacher is not None
        metric = self.importance * _matrix(engine)
        metric = metric + self.rigidity * torch.eye(len(metric)).to(metric)

        def losses(batch: Batch) -> dict[str, Tensor]:
            features = engine.pooled(batch.real)
            with torch.no_grad():
                before = teacher.backbone.pooled(*batch.real).float()
            return {
                "local": cross_entropy(newest(features), batch.labels - old),
                "features": matrix_distillation(features, before, metric),
            }

        held = [module for module in engine.backbone.modules() if isinstance(module, _BatchNorm)]
        return Work([*engine.learning(), newest], losses, held=held)

    def _balance(self, engine: Engine) -> Work:
        assert engine.present is not None
        return balance_head_on_gaussians(engine, self._moved(engine, engine.present))

    def _moved(self, engine: Engine, data: ImageDataset) -> ClassGaussians:
        """The old classes: means follow, covariances stay as they were measured."""
        before, after, _ = paired_features(engine, data)
        known = engine.memory.gaussians
        assert known is not None
        return replace(known, mean=shifted_means(known.mean, before, after, _matrix(engine), self.width))

    def remember(self, engine: Engine, data: ImageDataset) -> None:
        """Means of old classes as they moved, the new classes, and the feature matrix of this task."""
        moved = None if engine.teacher is None else self._moved(engine, data)
        features, labels = student_features(engine, data)
        found = class_gaussians(features, labels, correlated=True)
        engine.memory.gaussians = found if moved is None else moved.replace(found)
        head = engine.student.head.plain()
        assert isinstance(head, nn.Linear)
        engine.memory.keep(feature_matrix(features, head))


def _matrix(engine: Engine) -> Tensor:
    found = engine.memory.get(FeatureMatrix.name)
    assert isinstance(found, FeatureMatrix)
    return found.matrix
