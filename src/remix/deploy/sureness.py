"""Whether a model is as often right as it is sure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

__all__ = ["Sureness"]

_BINS = 15  # of probabilities, as is usual


class Sureness:
    """Collects probabilities of answers and whether these were right, in bins."""

    def __init__(self) -> None:
        self._images, self._right, self._sure = torch.zeros(3, _BINS, dtype=torch.float64)

    def watched(self, answers: Iterable[tuple[Tensor, Sequence[int]]]) -> Iterator[tuple[Tensor, Sequence[int]]]:
        """Batches of probabilities (N, K) and labels, as they go by."""
        for chances, labels in answers:
            self.add(chances, torch.as_tensor(labels))
            yield chances, labels

    def add(self, chances: Tensor, labels: Tensor) -> None:
        """Probabilities (N, K) of images, and their labels (N,)."""
        sure, answers = chances.double().cpu().max(1)
        bins = (sure * _BINS).long().clamp_max(_BINS - 1)
        self._images += torch.bincount(bins, minlength=_BINS)
        self._right += torch.bincount(bins, (answers == labels.cpu()).double(), _BINS)
        self._sure += torch.bincount(bins, sure, _BINS)

    def error(self) -> float:
        """The expected calibration error in percent, of all images; 0 of none."""
        return 100 * float((self._right - self._sure).abs().sum() / self._images.sum().clamp_min(1))
