"""The losses of training, as pure functions of logits or features.

Every one is a scalar, a mean over the samples, at least float32; an objective is a weighted sum of them. Labels are
positions in the class order, so those of the newest task are the last ones.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = [
    "balanced_cross_entropy",
    "hard_distillation",
    "head_cross_entropy",
    "local_cross_entropy",
    "projected_feature_distillation",
    "soft_distillation",
]


def local_cross_entropy(logits: Tensor, labels: Tensor, old_classes: int) -> Tensor:
    """Cross entropy among the new classes only: what the logits of old classes say does not enter.

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
    return functional.cross_entropy(_wide(logits[:, old_classes:]), labels - old_classes)


def balanced_cross_entropy(logits: Tensor, labels: Tensor, class_weights: Tensor) -> Tensor:
    """Cross entropy over all classes, a weighted mean in which every sample counts as much as its class weighs.

    Args:
        logits: (N, classes).
        labels: (N,).
        class_weights: (classes,), for example :func:`~remix.learning.class_balance.balance_weights`.

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
