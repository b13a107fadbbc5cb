"""Learning from a few dozen images per class: as the method does, with targets drawn wider."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from remix.data import ImageDataset
from remix.inversion import Targets, feature_targets, random_labels
from remix.learning import Learner, Stage, TensorReplay
from remix.methods.pmi import Pmi
from remix.methods.remix import Remix
from remix.statistics import ClassGaussians, ClassMeter, feature_point, run_meters

__all__ = ["FewImagesDiagonal", "FewImagesLaplace", "bounded_rates"]

# Most that one step may move a logit, for a gradient of 1. The curvature of these losses is at most about half the
# squared length of the features, and with a momentum of 0.9 rates are stable up to 3.8 over the curvature. Of 0.5 and
# 4, tried on photographs that are in no table, 4 was better.
_LOGIT_STEP = 4.0
_MOST_SCALED = 2.0  # that the spread of a feature may grow or shrink in a step: a few dreams may tell more by chance


@dataclass(frozen=True)
class FewImagesDiagonal(Pmi):
    """PMI, or REMIX for a model that has no covariances.

    Args:
        spread: how far target features lie from the mean of their class, in its standard deviations. A class that was
            measured on a few dozen images is wider than it looks, and dreams in its middle leave too much room to the
            new classes.

    Other settings as in PMI; features are drawn, not selected: selectors need more images than there are.

    """

    selection: bool = False
    spread: float = 1.0

    def targets(self, learner: Learner) -> Targets:
        """Every class that the old model knows with the same chance, its features from its Gaussian, widened."""
        teacher, gaussians = learner.teacher, learner.memory.gaussians
        assert teacher is not None
        assert gaussians is not None
        labels = random_labels(range(teacher.head.num_classes), self.count(learner), learner.generator)
        wide = replace(gaussians, std=self.spread * gaussians.std)
        return feature_targets(labels, wide, None, learner.generator)

    def stages(self, learner: Learner) -> list[Stage]:
        """As in PMI, with `bounded_rates`."""
        return bounded_rates(super().stages(learner), learner)

    def remember(self, learner: Learner, data: ImageDataset) -> None:
        """As in PMI; selectors of a run are of features that have moved."""
        super().remember(learner, data)
        learner.memory.selectors = None

    def followed(self, learner: Learner, dreamed: ClassGaussians) -> ClassGaussians:
        """The Gaussians of the old classes, moved and scaled as the features of their dreams were in this step.

        Dreams lie nearer together than images do, so that a class that is measured on them shrinks with every step. How
        they moved from the old network to the new one is what they are fit to tell.
        """
        before, replay = learner.memory.gaussians, learner.replay
        assert before is not None
        assert learner.teacher is not None
        assert isinstance(replay, TensorReplay)
        teacher: Any = learner.teacher.backbone
        meter = ClassMeter(feature_point(teacher), teacher.pool)
        run_meters(teacher, replay.batches(500), [meter])
        then = meter.gaussians()
        rows = before.rows(then.labels)
        scale = torch.where(then.std > 0, dreamed.std / then.std.clamp_min(1e-12), 1.0)
        std = before.std[rows] * scale.clamp(1 / _MOST_SCALED, _MOST_SCALED).to(before.std)
        mean = before.mean[rows] + (dreamed.mean - then.mean).to(before.mean)
        return ClassGaussians(then.labels, tuple(before.counts[int(row)] for row in rows), mean, std)


@dataclass(frozen=True)
class FewImagesLaplace(FewImagesDiagonal, Remix):
    """REMIX."""


def bounded_rates(stages: Sequence[Stage], learner: Learner) -> list[Stage]:
    """The same stages, in which classifiers learn no faster than the length of features allows.

    A step of a linear classifier moves a logit by the rate times the squared length of the feature. Features of large
    networks are long (some 3,000 squared for a ResNet-34): a rate that suits short ones makes the classifiers of new
    classes grow until they drown the old ones, or until numbers are not finite any more.
    """
    gaussians, head = learner.memory.gaussians, learner.student.head
    if learner.teacher is None or gaussians is None:
        return list(stages)
    energy = float((gaussians.mean.square() + gaussians.std.square()).sum(1).mean())
    return [
        replace(stage, factors=[(head, min(1.0, _LOGIT_STEP / (energy * stage.sgd.lr)))]) if stage.sgd.lr else stage
        for stage in stages
    ]
