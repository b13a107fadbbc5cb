"""What the network should make of the images: given features, given labels, balanced classes."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from torch import Tensor
from torch.nn.functional import cross_entropy, softmax

from remix.inversion.measurements import ImageAverage, Measurement, Reading
from remix.inversion.observed import Observed

__all__ = ["ClassBalance", "FeatureMatch", "LabelMatch", "SelfConfidence", "class_balance"]

Classify = Callable[[Tensor], Tensor]
"""From pooled features (n, D) to logits (n, K)."""


class _Average(ABC):
    """A penalty that is the mean of a number per image."""

    def __init__(self) -> None:
        self.measurements: Sequence[Measurement] = [ImageAverage(self._per_image)]

    @abstractmethod
    def _per_image(self, seen: Observed) -> Tensor:
        """(n,)."""

    def value(self, readings: Sequence[Reading], count: int) -> Tensor:
        """The mean."""
        return readings[0].average


class FeatureMatch(_Average):
    """Mean squared difference between the network's output and targets (N, ...) of the same shape."""

    def __init__(self, targets: Tensor) -> None:
        super().__init__()
        self.targets = targets

    def _per_image(self, seen: Observed) -> Tensor:
        return (seen.output - self.targets[seen.part]).square().flatten(1).mean(1)


class LabelMatch(_Average):
    """Cross-entropy with labels (N,)."""

    def __init__(self, classify: Classify, labels: Tensor) -> None:
        super().__init__()
        self.classify, self.labels = classify, labels

    def _per_image(self, seen: Observed) -> Tensor:
        return cross_entropy(self.classify(seen.output), self.labels[seen.part], reduction="none")


class SelfConfidence(_Average):
    """Cross-entropy of logits / temperature with their own largest entry as label."""

    def __init__(self, classify: Classify, temperature: float) -> None:
        super().__init__()
        self.classify, self.temperature = classify, temperature

    def _per_image(self, seen: Observed) -> Tensor:
        logits = self.classify(seen.output)
        return cross_entropy(logits / self.temperature, logits.argmax(1), reduction="none")


class ClassBalance:
    """How far the batch is from showing all classes equally: 0 if it does, 1 if it shows a single one."""

    def __init__(self, classify: Classify) -> None:
        self.measurements: Sequence[Measurement] = [ImageAverage(lambda seen: softmax(classify(seen.output), 1))]

    def value(self, readings: Sequence[Reading], count: int) -> Tensor:
        """The imbalance."""
        return class_balance(readings[0].average)


def class_balance(mean: Tensor) -> Tensor:
    """1 + sum_k p_k ln p_k / ln K for the mean probabilities p (K,) of a batch; 0 for a single class."""
    if len(mean) == 1:
        return mean.sum() * 0
    tiny = 1e-30  # p ln p is 0 at p = 0
    return 1 + (mean * mean.clamp_min(tiny).log()).sum() / math.log(len(mean))
