"""The losses of training, as pure functions of logits or features; their weights, and those of classes.

Every one is a scalar, a mean over the samples, at least float32; an objective is a weighted sum of them. Labels are
positions in the class order, so those of the newest task are the last ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = [
    "LabelCounts",
    "LossScales",
    "balance_weights",
    "balanced_cross_entropy",
    "hard_distillation",
    "head_cross_entropy",
    "local_cross_entropy",
    "old_new_weights",
    "projected_feature_distillation",
    "soft_distillation",
]


def local_cross_entropy(logits: Tensor, labels: Tensor, old_classes: int) -> Tensor:
    """Cross entropy among the new classes only: what the logits of old classes say does not enter.

    A single new class would be certain among itself, and nothing would be learned: it is told from all classes instead.

    Args:
        logits: (N, classes) of all classes seen, the new ones last.
        labels: (N,), of new classes: ``old_classes <= label < classes``.
        old_classes: number of classes before the current task.

    Raises:
        ValueError: if a label is not of a new class, or the shapes do not fit.

    """
    classes = _classes(logits, labels)
    if not 0 <= old_classes < classes:
        raise ValueError(f"old_classes must be from 0 to {classes - 1} for {classes} logits, got {old_classes}")
    _check_range(labels, old_classes, classes)
    if classes - old_classes == 1:
        old_classes = 0
    return functional.cross_entropy(_wide(logits[:, old_classes:]), labels - old_classes)


def balanced_cross_entropy(logits: Tensor, labels: Tensor, class_weights: Tensor) -> Tensor:
    """Cross entropy over all classes, a weighted mean in which every sample counts as much as its class weighs.

    Args:
        logits: (N, classes).
        labels: (N,).
        class_weights: (classes,), for example `balance_weights`.

    Raises:
        ValueError: if a label is out of range or the shapes do not fit.

    """
    classes = _classes(logits, labels)
    if class_weights.shape != (classes,):
        raise ValueError(f"class_weights must be ({classes},), got {tuple(class_weights.shape)}")
    _check_range(labels, 0, classes)
    logits = _wide(logits)
    return functional.cross_entropy(logits, labels, weight=class_weights.to(logits))


def head_cross_entropy(
    head: Callable[[Tensor], Tensor], features: Tensor, labels: Tensor, sample_weights: Tensor | None = None
) -> Tensor:
    """Cross entropy over all classes that moves the head and leaves the features alone.

    Args:
        head: features (N, dim) to logits (N, classes).
        features: pooled features, (N, dim); no gradient reaches them.
        labels: (N,).
        sample_weights: (N,), or None for 1 each. The mean divides by N, not by the sum of the weights.

    Raises:
        ValueError: if a label is out of range or the shapes do not fit.

    """
    logits = _wide(head(features.detach()))
    classes = _classes(logits, labels)
    _check_range(labels, 0, classes)
    if sample_weights is None:
        return functional.cross_entropy(logits, labels)
    if sample_weights.shape != labels.shape:
        raise ValueError(f"sample_weights must be ({len(labels)},), got {tuple(sample_weights.shape)}")
    return (functional.cross_entropy(logits, labels, reduction="none") * sample_weights.to(logits)).mean()


def hard_distillation(logits: Tensor, teacher_logits: Tensor) -> Tensor:
    """Mean absolute difference of old-class logits (HKD of R-DFCIL).

    Args:
        logits: (N, at least C) of the student; the first C are compared, the old classes.
        teacher_logits: (N, C). No gradient reaches them.

    Raises:
        ValueError: if the shapes do not fit.

    """
    old = _old_classes(logits, teacher_logits)
    return functional.l1_loss(_wide(logits[:, :old]), _wide(teacher_logits.detach()))


def soft_distillation(logits: Tensor, teacher_logits: Tensor, temperature: float = 2.0) -> Tensor:
    """Cross entropy of the student's softened probabilities to the teacher's, not multiplied by temperature^2.

    The student's probabilities are over all classes it is given, the teacher's are 0 for those it does not know. To
    compare among the old classes only, as LwF does, give ``logits[:, :old_classes]``.

    Args:
        logits: (N, at least C) of the student.
        teacher_logits: (N, C). No gradient reaches them.
        temperature: divides both.

    Raises:
        ValueError: if the shapes do not fit or the temperature is not positive.

    """
    if not temperature > 0:
        raise ValueError(f"temperature must be above 0, got {temperature}")
    old = _old_classes(logits, teacher_logits)
    probabilities = (_wide(teacher_logits.detach()) / temperature).softmax(1)
    return -(probabilities * (_wide(logits) / temperature).log_softmax(1)[:, :old]).sum(1).mean()


def projected_feature_distillation(
    features: Tensor, teacher_features: Tensor, head: Callable[[Tensor], Tensor]
) -> Tensor:
    """Mean squared difference of what a frozen head makes of student and of teacher features (ABD).

    Features may move where the old classes do not look.

    Args:
        features: (N, dim) of the student.
        teacher_features: (N, dim). No gradient reaches them.
        head: that of the previous model, features to old-class logits; its parameters must be frozen.

    Raises:
        ValueError: if the shapes do not fit or the head is not frozen.

    """
    if features.dim() != 2 or features.shape != teacher_features.shape:
        raise ValueError(
            "features and teacher_features must both be (N, dim), "
            f"got {tuple(features.shape)} and {tuple(teacher_features.shape)}"
        )
    if isinstance(head, nn.Module) and any(parameter.requires_grad for parameter in head.parameters()):
        raise ValueError("the head must be frozen, or it would learn to agree: call head.requires_grad_(False)")
    return functional.mse_loss(_wide(head(features)), _wide(head(teacher_features.detach())))


# --- weights ---


@dataclass(frozen=True)
class LossScales:
    """Weights of the terms of a later task, those of REMIX and PMI by default. They enter a sum.

    Args:
        local: of the local cross entropy (lambda_ce; R-DFCIL has 0.5).
        head: of the cross entropy on detached features (lambda_ft; 1.0 in runs of 20 tasks, R-DFCIL has 0).
        hard: of the hard distillation of old logits (lambda_hkd).
        relational: of the angle loss (lambda_rkd).
        text: of the distillation of the texts of old classes, of a text head that learns (lambda_tkd).
        head_follows: whether the weight ``head`` follows the numbers of classes; for CLIP it does not.

    Raises:
        ValueError: if a weight is negative or not finite.

    """

    local: float = 0.75
    head: float = 1.5
    hard: float = 0.15
    relational: float = 0.5
    text: float = 0.0
    head_follows: bool = True

    def __post_init__(self) -> None:
        for name in ("local", "head", "hard", "relational", "text"):
            weight = getattr(self, name)
            if not (weight >= 0 and math.isfinite(weight)):
                raise ValueError(f"the weight {name} must be finite and not negative, got {weight}")

    def for_task(self, new_classes: int, old_classes: int) -> LossScales:
        """The weights of a task: the more old classes there are to one new, the more distillation counts.

        alpha = log2(new / 2 + 1), beta = sqrt(old / new). Terms of learning are multiplied by (1 + 1 / alpha) / beta,
        terms of keeping by alpha beta.

        Raises:
            ValueError: if either number is below 1: the first task has no such weights.

        """
        if new_classes < 1 or old_classes < 1:
            raise ValueError(
                f"loss scales are for a later task, with new and old classes; got {new_classes} and {old_classes}"
            )
        alpha = math.log2(new_classes / 2 + 1)
        beta = math.sqrt(old_classes / new_classes)
        learning, keeping = (1 + 1 / alpha) / beta, alpha * beta
        return LossScales(
            local=self.local * learning,
            head=self.head * (learning if self.head_follows else 1),
            hard=self.hard * keeping,
            relational=self.relational * keeping,
            text=self.text * keeping,
            head_follows=self.head_follows,
        )


def balance_weights(counts: Tensor) -> Tensor:
    """Class weights inverse to the counts (classes,); the most frequent class has weight 1.

    Raises:
        ValueError: if there is no class or a count is below 1.

    """
    if counts.dim() != 1 or len(counts) == 0 or bool((counts < 1).any()):
        raise ValueError(f"counts must be (classes,), each at least 1, got {counts.tolist()}")
    return counts.max() / counts


class LabelCounts:
    """How often each class was seen in the course of a task. Counting starts at 1, so that no weight is infinite.

    Args:
        num_classes: of all tasks so far.
        device: where the labels are.

    """

    def __init__(self, num_classes: int, device: torch.device | str | None = None) -> None:
        if num_classes < 1:
            raise ValueError(f"num_classes must be at least 1, got {num_classes}")
        self.counts = torch.ones(num_classes, dtype=torch.int64, device=device)

    def add(self, labels: Tensor) -> None:
        """Count a batch of labels (N,), real or pseudo.

        Raises:
            ValueError: if a label is out of range; nothing is counted then.

        """
        known = len(self.counts)
        if labels.numel() and not (int(labels.min()) >= 0 and int(labels.max()) < known):
            raise ValueError(f"labels must be from 0 to {known - 1}, got {int(labels.min())} to {int(labels.max())}")
        self.counts += torch.bincount(labels, minlength=known)

    def weights(self) -> Tensor:
        """Class weights (num_classes,) for `balanced_cross_entropy`."""
        return balance_weights(self.counts)


def old_new_weights(labels: Tensor, old_classes: int, num_classes: int) -> Tensor:
    """Sample weights of ABD: the share r of old classes for labels of old classes, 1 - r for new ones.

    Args:
        labels: (N,).
        old_classes: number of classes before the current task.
        num_classes: of all tasks so far.

    Returns:
        (N,), in the default dtype of torch.

    Raises:
        ValueError: if ``old_classes`` is not between 0 and ``num_classes``.

    """
    if not 0 <= old_classes <= num_classes or num_classes < 1:
        raise ValueError(f"old_classes must be from 0 to num_classes={num_classes}, got {old_classes}")
    share = old_classes / num_classes
    old = torch.full(labels.shape, share, device=labels.device)
    return torch.where(labels < old_classes, old, 1 - old)


# --- small things ---


def _wide(values: Tensor) -> Tensor:
    """Single precision at least: half precision has too few digits for a logarithm or a small difference."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def _classes(logits: Tensor, labels: Tensor) -> int:
    """Number of classes of logits (N, classes) that belong to labels (N,)."""
    if logits.dim() != 2 or labels.shape != logits.shape[:1] or len(labels) == 0:
        raise ValueError(
            f"logits must be (N, classes) and labels (N,) with N at least 1, "
            f"got {tuple(logits.shape)} and {tuple(labels.shape)}"
        )
    return logits.shape[1]


def _check_range(labels: Tensor, first: int, end: int) -> None:
    # Checked here because torch takes a label of -100 to mean "leave this sample out", and says nothing.
    smallest, largest = (int(label) for label in torch.aminmax(labels))
    if smallest < first or largest >= end:
        raise ValueError(f"labels must be from {first} to {end - 1} here, got {smallest} to {largest}")


def _old_classes(logits: Tensor, teacher_logits: Tensor) -> int:
    """Number of classes the teacher knows."""
    fits = logits.dim() == teacher_logits.dim() == 2 and len(logits) == len(teacher_logits) > 0
    if not fits or not 0 < teacher_logits.shape[1] <= logits.shape[1]:
        raise ValueError(
            "logits must be (N, classes) and teacher_logits (N, C) with C no larger and N at least 1, "
            f"got {tuple(logits.shape)} and {tuple(teacher_logits.shape)}"
        )
    return teacher_logits.shape[1]
