"""Parts that exact heads share: how good scores are that each image got from a head without that image."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

__all__ = ["Judged", "accuracy", "judge"]

_STEPS = 12  # of Newton's method, which has come to its end long before
_LARGEST = 1e3  # logits of one standard deviation: surer than that nobody can be


class Judged(NamedTuple):
    """The best of several: which, the cross-entropy of its scores, and the scale that makes that least."""

    place: int
    loss: float
    scale: float


def judge(scores: Tensor, labels: Tensor) -> Judged:
    """Of several heads the one whose scores, scaled as suits it, give the right classes the highest probabilities.

    Probabilities tell more than right answers do: of a few hundred images, a handful more or less are right by chance.
    Of N images that are all right, another may still be wrong: one more is taken to be of any class.

    Args:
        scores: (heads, N, K) of N images.
        labels: (N,) places of their classes.

    Returns:
        the first of those that are equally good; scale 1 where there is nothing to tell apart.

    """
    scores = scores - scores.mean(2, keepdim=True)
    spread = scores.square().mean((1, 2)).sqrt() if scores.shape[1] else scores.new_zeros(len(scores))
    if not bool((spread > 0).any()):
        return Judged(0, math.log(scores.shape[2]), 1.0)
    unit = scores / torch.where(spread > 0, spread, 1.0)[:, None, None]
    sure = len(labels) / (len(labels) + 1)
    right = sure * unit.gather(2, labels.expand(len(unit), -1)[:, :, None]).mean((1, 2))
    scale = torch.ones_like(spread)
    for _ in range(_STEPS):  # towards where the slope of the cross-entropy, which is convex, is 0
        chances = (scale[:, None, None] * unit).softmax(2)
        mean = (chances * unit).sum(2)
        slope, curve = mean.mean(1) - right, ((chances * unit.square()).sum(2) - mean.square()).mean(1)
        step = (slope / (scale * curve).clamp_min(1e-12)).clamp(-1, 1)  # of its logarithm
        scale = (scale * (-step).exp()).clamp(1 / _LARGEST, _LARGEST)
    scaled = scale[:, None, None] * unit
    losses = torch.stack([cross_entropy(one, labels, label_smoothing=1 - sure) for one in scaled])
    place = int((losses <= losses.min() + 1e-9).nonzero()[0])
    return Judged(place, float(losses[place]), float(scale[place]) / float(spread[place] or 1.0))


def accuracy(scores: Tensor, labels: Tensor) -> float:
    """Percent of the rows (N, K) whose highest score is that of their label (N,)."""
    return 100 * float((scores.argmax(1) == labels).double().mean())
