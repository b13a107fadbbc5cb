"""What a model is confused about, in a sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["most_mistaken"]

_MOST, _FEWEST = 3, 2  # pairs that are told, images that make one worth telling
_LONGEST = 60  # characters of a name


def most_mistaken(scores: Tensor, labels: Tensor, names: Sequence[str]) -> list[str]:
    """A sentence about the classes whose images are taken for another one most often; or none.

    Args:
        scores: (N, K) of images that the model had not seen.
        labels: (N,) their classes.
        names: of the classes.

    """
    told, said = labels.tolist(), scores.argmax(1).tolist()
    images = torch.bincount(labels, minlength=len(names)).tolist()
    pairs = Counter((true, answer) for true, answer in zip(told, said, strict=True) if true != answer)
    often = sorted((-count, *pair) for pair, count in pairs.items() if count >= _FEWEST)[:_MOST]
    if not often:
        return []
    listed = (f"{names[a][:_LONGEST]} for {names[b][:_LONGEST]} ({-less} of {images[a]})" for less, a, b in often)
    return [f"most often mistaken: {', '.join(listed)}"]
