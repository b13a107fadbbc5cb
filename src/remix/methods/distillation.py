"""Parts that methods share: the losses of R-DFCIL, PMI and REMIX, and the balancing of the head."""

from __future__ import annotations

import torch
from torch import Tensor

from remix.learning.engine import Engine
from remix.learning.items import Replayed, TensorReplay
from remix.learning.losses import (
    LossScales,
    balanced_cross_entropy,
    hard_distillation,
    head_cross_entropy,
    local_cross_entropy,
)
from remix.learning.relational import RelationalProjectors
from remix.learning.stage import Batch, Losses, Work
from remix.networks import Items, TextHead

__all__ = ["PROJECTORS", "balance_head", "balance_head_by_formula", "distil", "distil_texts", "projectors"]

PROJECTORS = "projectors"
"""Name of the projectors among the engine's modules."""


def projectors(engine: Engine, dim: int = 128) -> RelationalProjectors:
    """The pair of linear maps in whose images angles are compared; new in every task."""
    return engine.module(
        PROJECTORS, lambda: RelationalProjectors(engine.backbone.feature_dim, dim, generator=engine.generator)
    )


def distil(
    engine: Engine, scales: LossScales, relational: bool = True, *, together: bool = False, augment: bool = False
) -> Losses:
    """Learn the new classes among themselves and keep the old model's logits on pseudo-samples and its angles.

    Args:
        engine: in a later task.
        scales: weights, already those of this task; the head term is left out where its weight is 0.
        relational: whether angles are compared; they say nothing to a frozen backbone.
        together: whether real images and pseudo-samples go through the network as one batch, so that BatchNorm
            normalises both alike, as it will when it is used. Published is one after the other.
        augment: whether pseudo-samples are cropped and mirrored at random as real images are.

    """
    teacher, old, head = engine.teacher, engine.old_classes, engine.student.head
    pair = projectors(engine)
    assert teacher is not None

    def losses(batch: Batch) -> dict[str, Tensor]:
        assert batch.replayed is not None
        replayed = _another_view(engine, batch.replayed) if augment else batch.replayed
        if together:
            real, pseudo = engine.pooled_together(batch.real, replayed.items)
        else:
            real, pseudo = engine.pooled(batch.real), engine.pooled(replayed.items)
        found = {
            "local": scales.local * local_cross_entropy(head(real), batch.labels, old),
            "hard": scales.hard * hard_distillation(head(pseudo), replayed.logits),
        }
        if relational:
            with torch.no_grad():
                before = teacher.backbone.pooled(*batch.real).float()
            found["relational"] = scales.relational * pair(real, before)
        if scales.head:
            labels = torch.cat([batch.labels, replayed.labels])
            found["head"] = scales.head * head_cross_entropy(head, torch.cat([real, pseudo]), labels)
        return found

    return losses


def distil_texts(engine: Engine, scales: LossScales) -> Losses:
    """The same for a head of texts, which are gone through once for all terms; angles are not compared.

    Args:
        engine: in a later task, with a text head.
        scales: weights, already those of this task. Texts are compared where they learn.

    """
    teacher, old, head = engine.teacher, engine.old_classes, engine.student.head
    assert teacher is not None
    assert isinstance(head, TextHead)
    assert isinstance(teacher.head, TextHead)
    with torch.no_grad():
        before = teacher.head.vectors()

    def losses(batch: Batch) -> dict[str, Tensor]:
        assert batch.replayed is not None
        real, pseudo = engine.pooled(batch.real), engine.pooled(batch.replayed.items)
        vectors = head.vectors()
        found = {
            "local": scales.local * local_cross_entropy(head.scores(real, vectors), batch.labels, old),
            "hard": scales.hard * hard_distillation(head.scores(pseudo, vectors), batch.replayed.logits),
        }
        if scales.text and vectors.requires_grad:
            found["text"] = scales.text * (vectors[:old] - before).abs().mean()
        if scales.head and vectors.requires_grad:
            features, labels = torch.cat([real, pseudo]), torch.cat([batch.labels, batch.replayed.labels])
            found["head"] = scales.head * head_cross_entropy(lambda x: head.scores(x, vectors), features, labels)
        return found

    return losses


def _another_view(engine: Engine, replayed: Replayed) -> Replayed:
    """Pseudo-samples cropped and mirrored at random, and what the old model says of them."""
    if engine.augment is None or replayed.items.start:
        return replayed
    assert engine.teacher is not None
    images = engine.augment(replayed.items.x, engine.generator)
    with torch.no_grad():
        return Replayed(Items(images), replayed.labels, engine.teacher(images).float())


def balance_head(engine: Engine, local: float, hard: float) -> Work:
    """The head alone, on everything, every class with the weight that makes up for how often it was seen.

    Args:
        engine: in a later task.
        local: weight of the class-balanced cross-entropy.
        hard: weight of the distillation of old logits; 0 for none.

    """
    head = engine.student.head
    weights = engine.counts.weights()

    def renew_weights() -> None:
        weights.copy_(engine.counts.weights())

    def losses(batch: Batch) -> dict[str, Tensor]:
        assert batch.replayed is not None
        real, pseudo = head(engine.pooled(batch.real)), head(engine.pooled(batch.replayed.items))
        labels = torch.cat([batch.labels, batch.replayed.labels])
        found = {"balanced": local * balanced_cross_entropy(torch.cat([real, pseudo]), labels, weights)}
        if hard:
            found["hard"] = hard * hard_distillation(pseudo, batch.replayed.logits)
        return found

    return Work([head], losses, before_epoch=renew_weights)


def balance_head_by_formula(engine: Engine, hard: float) -> Work:
    """The head alone, as the paper's appendix writes it: mean over all samples of w_y / sum_j w_j times cross-entropy.

    w_y is 1 over the number of samples that class y has in the data of this task: its images, or the pseudo-samples.

    Args:
        engine: in a later task, with a buffer of pseudo-samples.
        hard: weight of the distillation of old logits; 0 for none.

    """
    head, present, replay = engine.student.head, engine.present, engine.replay
    assert present is not None
    assert isinstance(replay, TensorReplay)
    labels = torch.cat([present.labels.to(replay.labels), replay.labels])
    inverse = 1 / torch.bincount(labels, minlength=head.num_classes).clamp_min(1).float()
    weights = inverse / inverse.sum()

    def losses(batch: Batch) -> dict[str, Tensor]:
        assert batch.replayed is not None
        features = torch.cat([engine.pooled(batch.real), engine.pooled(batch.replayed.items)])
        labels = torch.cat([batch.labels, batch.replayed.labels])
        found = {"balanced": head_cross_entropy(head, features, labels, weights.to(labels.device)[labels])}
        if hard:
            found["hard"] = hard * hard_distillation(head(features[len(batch.labels) :]), batch.replayed.logits)
        return found

    return Work([head], losses)
