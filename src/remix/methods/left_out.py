"""Parts that exact heads share: how good scores are that each image got from a head without that image."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

__all__ = ["Judged", "accuracy", "judge"]

_HALVINGS = 30
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
        return Judged(0, 0.0, 1.0)
    unit = scores / torch.where(spread > 0, spread, 1.0)[:, None, None]
    sure = len(labels) / (len(labels) + 1)
    right = sure * unit.gather(2, labels.expand(len(unit), -1)[:, :, None]).mean((1, 2))
    low, high = unit.new_full((len(unit),), 1 / _LARGEST), unit.new_full((len(unit),), _LARGEST)
    for _ in range(_HALVINGS):  # of the interval in which the slope of the cross-entropy, which is convex, is 0
        middle = (low * high).sqrt()
        slope = ((middle[:, None, None] * unit).softmax(2) * unit).sum(2).mean(1) - right
        low, high = torch.where(slope < 0, middle, low), torch.where(slope < 0, high, middle)
    scaled = (low * high).sqrt()[:, None, None] * unit
    losses = torch.stack([cross_entropy(one, labels, label_smoothing=1 - sure) for one in scaled])
    losses = torch.where(spread > 0, losses, torch.inf)
    place = int((losses <= losses.min() + 1e-9).nonzero()[0])
    return Judged(place, float(losses[place]), float((low * high).sqrt()[place] / spread[place]))


def accuracy(scores: Tensor, labels: Tensor) -> float:
    """Percent of the rows (N, K) whose highest score is that of their label (N,)."""
    return 100 * float((scores.argmax(1) == labels).double().mean())
