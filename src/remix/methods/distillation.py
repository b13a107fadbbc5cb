"""Parts that methods share: the losses of R-DFCIL, PMI and REMIX, and the balancing of the head."""

from __future__ import annotations

import torch
from torch import Tensor

from remix.learning.learner import Learner
from remix.learning.losses import balanced_cross_entropy, hard_distillation, head_cross_entropy, local_cross_entropy
from remix.learning.relational import RelationalProjectors
from remix.learning.replay import Replayed
from remix.learning.scaling import LossScales
from remix.learning.sgd import Sgd
from remix.learning.stage import Batch, Objective, Stage

__all__ = ["PROJECTORS", "balance_head", "distil", "projectors"]

PROJECTORS = "projectors"
"""Name of the projectors among the learner's modules."""


def projectors(learner: Learner, dim: int = 128) -> RelationalProjectors:
    """The pair of linear maps in whose images angles are compared; new in every task."""
    return learner.module(
        PROJECTORS, lambda: RelationalProjectors(learner.backbone.feature_dim, dim, generator=learner.generator)
    )


def distil(
    learner: Learner, scales: LossScales, relational: bool = True, *, together: bool = False, views: bool = False
) -> Objective:
    """Learn the new classes among themselves and keep the old model's logits on pseudo-samples and its angles.

    Args:
        learner: in a later task.
        scales: weights, already those of this task; the head term is left out where its weight is 0.
        relational: whether angles are compared; they say nothing to a frozen backbone.
        together: whether real images and pseudo-samples go through the network as one batch, so that BatchNorm
            normalises both alike, as it will when it is used. Published is one after the other.
        views: whether pseudo-samples are cropped and mirrored at random as real images are.

    """
    teacher, old, head = learner.teacher, learner.old_classes, learner.student.head
    pair = projectors(learner)
    assert teacher is not None

    def terms(batch: Batch) -> dict[str, Tensor]:
        assert batch.replayed is not None
        replayed = _another_view(learner, batch.replayed) if views else batch.replayed
        if together:
            real, pseudo = learner.pooled_together(batch.images, replayed.images)
        else:
            real, pseudo = learner.pooled(batch.images), learner.pooled(replayed.images)
        found = {
            "local": scales.local * local_cross_entropy(head(real), batch.labels, old),
            "hard": scales.hard * hard_distillation(head(pseudo), replayed.logits),
        }
        if relational:
            with torch.no_grad():
                before = teacher.backbone.pooled(batch.images).float()
            found["relational"] = scales.relational * pair(real, before)
        if scales.head:
            labels = torch.cat([batch.labels, replayed.labels])
            found["head"] = scales.head * head_cross_entropy(head, torch.cat([real, pseudo]), labels)
        return found

    return terms


def _another_view(learner: Learner, replayed: Replayed) -> Replayed:
    """Pseudo-samples cropped and mirrored at random, and what the old model says of them."""
    if learner.augment is None:
        return replayed
    assert learner.teacher is not None
    images = learner.augment(replayed.images, learner.generator)
    with torch.no_grad():
        return Replayed(images, replayed.labels, learner.teacher(images).float())


def balance_head(learner: Learner, sgd: Sgd, local: float, hard: float) -> Stage:
    """The head alone, on everything, every class with the weight that makes up for how often it was seen.

    Args:
        learner: in a later task.
        sgd: epochs and rate.
        local: weight of the class-balanced cross-entropy.
        hard: weight of the distillation of old logits.

    """
    head = learner.student.head
    weights = learner.counts.weights()

    def renew_weights() -> None:
        weights.copy_(learner.counts.weights())

    def terms(batch: Batch) -> dict[str, Tensor]:
        assert batch.replayed is not None
        real, pseudo = head(learner.pooled(batch.images)), head(learner.pooled(batch.replayed.images))
        labels = torch.cat([batch.labels, batch.replayed.labels])
        return {
            "balanced": local * balanced_cross_entropy(torch.cat([real, pseudo]), labels, weights),
            "hard": hard * hard_distillation(pseudo, batch.replayed.logits),
        }

    return Stage("balance the head", [head], sgd, terms, on_epoch=renew_weights)
