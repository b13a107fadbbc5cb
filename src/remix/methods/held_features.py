"""Parts that methods share: the classes of a task learned among themselves, features held near the old model's."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from remix.learning.engine import Engine
from remix.learning.feature_losses import anti_collapse
from remix.learning.stage import Batch, Losses
from remix.methods.rotations import rotated
from remix.methods.task_heads import task_head, turned_labels
from remix.networks import Items

__all__ = ["Distance", "check_batches", "held_features"]

Distance = Callable[[Tensor, Tensor], Tensor]
"""From features (N, D) and those of the old model to a loss."""


def held_features(
    engine: Engine,
    distance: Distance,
    *,
    turns: int = 1,
    collapse: float = 0.0,
    dreams: bool = False,
    resting: Callable[[], bool] = lambda: False,
    drawn: Callable[[Tensor], Tensor] | None = None,
) -> Losses:
    """Cross-entropy among the classes of the task, the distance of features, and what keeps them from collapsing.

    A single new class would be certain among itself: it is told from draws of the old classes' Gaussians.

    Args:
        engine: in any task; in the first there is no distance.
        distance: weighted.
        turns: rotations, each of which makes classes of its own.
        collapse: weight of `anti_collapse`; batches of no more images than features are left out of it.
        dreams: whether the distance is of as many pseudo-samples too, in the same batch.
        resting: whether, at this moment, the network only lends its features to the classifier.
        drawn: from labels (N,) of old classes to features of the last block; by default of their Gaussians.

    """
    teacher, dim = engine.teacher, engine.backbone.feature_dim
    head, gaussians = task_head(engine, turns), engine.memory.gaussians if _alone(engine) else None

    def losses(batch: Batch) -> dict[str, Tensor]:
        real, replayed = batch.real, batch.replayed if dreams else None
        if replayed is None:
            features = every = engine.pooled(Items(rotated(real.x)) if turns > 1 else real)
        else:
            features, dreamed = engine.pooled_together(real, replayed.items)
            every = torch.cat([features, dreamed])
        if resting():
            features, every = features.detach(), every.detach()
        labels = turned_labels(engine, batch.labels, turns)
        if gaussians is None:
            found = {"local": cross_entropy(head(features), labels)}
        else:
            old = torch.arange(len(gaussians)).repeat(-(-len(labels) // len(gaussians)))
            others = gaussians.sample(old, engine.generator) if drawn is None else drawn(old)
            logits = head(torch.cat([features, others.to(features)]))
            found = {"local": cross_entropy(logits, torch.cat([labels, 1 + old.to(labels)]))}
        if teacher is not None:
            parts = [real] if replayed is None else [real, replayed.items]
            with torch.no_grad():
                before = torch.cat([teacher.backbone.pooled(*items).float() for items in parts])
            found["features"] = distance(every, before)
        if collapse and len(features) > dim:
            found["anti-collapse"] = collapse * anti_collapse(features)
        return found

    return losses


def _alone(engine: Engine) -> bool:
    return engine.teacher is not None and engine.new_classes == 1


def check_batches(engine: Engine, collapse: float) -> None:
    """Refuse batches too small for the term against collapse, before anything is learned. Raises ValueError."""
    dim = engine.backbone.feature_dim
    if collapse and engine.batch_size <= dim:
        raise ValueError(
            f"the term against collapse needs batches of more images than the network has features ({dim}), and "
            f"batch_size is {engine.batch_size}: set batch_size={2 * dim}, or settings.collapse=0"
        )
