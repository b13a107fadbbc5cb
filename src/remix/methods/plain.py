"""Parts that methods share: plain training."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import cross_entropy

from remix.learning.learner import Learner
from remix.learning.sgd import Sgd
from remix.learning.stage import Batch, Objective, Stage

__all__ = ["FIRST", "first_task", "global_cross_entropy"]

FIRST = Sgd(200, 0.1, (80, 120))
"""Training of the first task of CIFAR-100, which is that of the upper bound too."""


def first_task(learner: Learner, sgd: Sgd) -> list[Stage]:
    """Plain training of the first task, the same for every method."""
    return [Stage("first task", [learner.student], sgd, global_cross_entropy(learner))]


def global_cross_entropy(learner: Learner) -> Objective:
    """Cross-entropy of the real images over all classes seen."""

    def terms(batch: Batch) -> dict[str, Tensor]:
        logits = learner.student.head(learner.pooled(batch.images))
        return {"cross-entropy": cross_entropy(logits, batch.labels)}

    return terms
