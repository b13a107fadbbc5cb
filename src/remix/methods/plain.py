"""Parts that methods share: plain training, in one stage."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from remix.inversion import PriorSettings
from remix.learning.engine import Engine
from remix.learning.method import Method, Step
from remix.learning.stage import Batch, Losses, Stage, Training, Work
from remix.methods.rotations import ROTATIONS, rotated
from remix.methods.task_heads import task_head, turned_labels
from remix.networks import Items

__all__ = ["FIRST", "OneStage", "check_prior_kind", "everything", "first_task", "global_cross_entropy"]

FIRST = Training(200, 0.1, (80, 120))
"""Training of the first task of CIFAR-100, which is that of the upper bound too."""


def first_task(training: Training, rotations: bool = False) -> list[Stage]:
    """Plain training of the first task, the same for every method; or in ``rotations``, each of which makes classes."""
    if rotations:
        return [Stage("first task", training, _turned_cross_entropy, ROTATIONS)]
    return [Stage("first task", training, global_cross_entropy)]


def _turned_cross_entropy(engine: Engine) -> Work:
    """The backbone and a head that is thrown away, by the cross-entropy over classes times rotations."""
    head = task_head(engine, ROTATIONS)

    def losses(batch: Batch) -> dict[str, Tensor]:
        logits = head(engine.pooled(Items(rotated(batch.real.x))))
        return {"cross-entropy": cross_entropy(logits, turned_labels(engine, batch.labels, ROTATIONS))}

    return Work([*engine.learning(), head], losses)


def global_cross_entropy(engine: Engine) -> Work:
    """Everything, by the cross-entropy of the real images over all classes seen."""

    def losses(batch: Batch) -> dict[str, Tensor]:
        return {"cross-entropy": cross_entropy(engine.student.head(engine.pooled(batch.real)), batch.labels)}

    return Work(everything(engine), losses)


def everything(engine: Engine) -> list[nn.Module]:
    """All that may learn: backbone and head."""
    return [*engine.learning(), engine.student.head]


@dataclass(frozen=True)
class OneStage(Method):
    """A method that trains all of the network at once in later tasks; how is its losses.

    Args:
        first: training of the first task.
        later: training of every later task.

    """

    first: Training = FIRST
    later: Training = FIRST

    @abstractmethod
    def losses(self, engine: Engine) -> Losses:
        """The terms of the loss in a later task."""

    def stages(self, step: Step) -> list[Stage]:
        """Everything at once."""
        if step == "first":
            return first_task(self.first)
        return [Stage("train", self.later, lambda engine: Work(everything(engine), self.losses(engine)))]


def check_prior_kind(method: str, prior: PriorSettings) -> None:
    """Whether a method that measures no covariances can have a prior. Raises ValueError if not."""
    if prior.kind == "none" and prior.form == "frobenius":
        raise ValueError(
            f"the prior's form 'frobenius' compares covariances, and the method {method!r} has none to compare with: "
            "choose the method remix, or set prior.kind=diagonal"
        )
    if prior.kind not in ("none", "diagonal"):
        raise ValueError(
            f"the prior {prior.kind!r} needs covariances, which the method {method!r} does not measure: set prior.kind "
            "to none or diagonal, or choose the method remix"
        )
