"""Whether an image is of a class that a model knows."""

from __future__ import annotations

import torch
from torch import Tensor

from remix.learning import Model
from remix.methods.left_out import judge
from remix.networks import Classifier, ExactHead
from remix.statistics import Calibration, ClassSums, Familiarity, Memory

__all__ = ["UNKNOWN", "Recognition", "calibrated"]

UNKNOWN = "unknown"
"""What an image of no known class is called."""

_BEFORE = 50  # images that speak for a scale of 1: a few that are held out by chance ask for another


class Recognition:
    """Tells images of known classes from others, by what the model keeps of its own.

    Args:
        model: what is asked.
        kept: share of the images of known classes that are to be recognised.

    Raises:
        ValueError: for a share that is none, or a model that keeps too little.

    """

    def __init__(self, model: Model, kept: float) -> None:
        if not 0 < kept < 1:
            raise ValueError(
                f"unknown (--unknown) is the share of images of known classes to keep, above 0 and below 1 such as "
                f"0.95, got {kept}"
            )
        memory = model.memory or Memory()
        known, familiarity = memory.get(Calibration.name), Familiarity.of(memory, len(model.classes))
        if known is None or known.quantiles is None or familiarity is None:
            raise ValueError(
                "the model cannot tell images of no known class: an earlier version wrote it, or its last step held "
                "no images out or keeps no statistics of classes; leave unknown (--unknown) out"
            )
        self._classifier, self._calibration, self._familiarity = model.classifier, known, familiarity
        self._exact = memory.get(ClassSums.name) is not None
        self._least = 1 - kept

    def familiar(self, pooled: Tensor) -> Tensor:
        """The share of images of known classes that look no more familiar (N,), of what the head takes of images."""
        scores = self._familiarity(_features(self._classifier, pooled, self._exact))
        return self._calibration.share(scores)

    def known(self, familiar: Tensor) -> Tensor:
        """Whether that is enough (N,)."""
        return familiar >= self._least - 1e-9


def calibrated(classifier: Classifier, memory: Memory, pooled: Tensor, logits: Tensor, labels: Tensor) -> Calibration:
    """What images that were held out tell, with what was known before: the scale of logits, how familiar they look.

    Args:
        classifier: network and head.
        memory: what is kept of its classes.
        pooled: (N, ...) what the head takes of the images.
        logits: (N, K) what it makes of that.
        labels: (N,) their classes.

    """
    exact = memory.get(ClassSums.name) is not None  # whose head has a scale
    scale = 1.0 if exact else judge(logits.double().cpu()[None], labels.cpu()).scale
    scale **= len(labels) / (len(labels) + _BEFORE)
    familiarity = Familiarity.of(memory, logits.shape[1])
    scores = None if familiarity is None else familiarity(_features(classifier, pooled, exact))
    found, known = Calibration.of(scores, len(labels), scale), memory.get(Calibration.name)
    return found if known is None else known.merge(found)


def _features(classifier: Classifier, pooled: Tensor, exact: bool) -> Tensor:
    """Those that statistics of classes are of: that an exact head is solved on, or that the network gives."""
    head = classifier.head
    with torch.no_grad():
        mapped: Tensor = head.map(pooled) if exact and isinstance(head, ExactHead) else pooled
    return mapped
