"""Weights that make up for classes, or groups of them, that are seen more often than others."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["LabelCounts", "balance_weights", "old_new_weights"]


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
        """Class weights (num_classes,) for :func:`~remix.learning.losses.balanced_cross_entropy`."""
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
