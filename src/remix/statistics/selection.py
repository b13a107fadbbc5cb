"""Choosing diverse target features of a class."""

from __future__ import annotations

import torch
from torch import Tensor

from remix.statistics.class_gaussians import ClassGaussians
from remix.statistics.selectors import Selectors

__all__ = ["compensate", "crowding", "select_features"]

_STEPS = 40  # a class's features are chosen in about so many steps
_CANDIDATES = 2  # candidates per chosen feature


def select_features(
    gaussians: ClassGaussians, selectors: Selectors, label: int, count: int, generator: torch.Generator | None = None
) -> Tensor:
    """Features (count, D) of one class, chosen to differ from each other, with the class's mean and spread.

    The first max(count // 40, 2) are plain draws from the class Gaussian. Then in every step twice as many candidates
    are drawn, and the half least crowded among the features chosen so far is kept (`crowding`). At the end the choice
    is given back the mean and standard deviation of the class, which choosing outliers has changed (`compensate`).

    Raises:
        ValueError: for a class without Gaussian or selector, or a count below 1.

    """
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    place = int(gaussians.rows([label])[0])
    step = max(count // _STEPS, 2)
    chosen = gaussians.sample([label] * min(step, count), generator)
    embedded = selectors.embed(label, chosen)
    while len(chosen) < count:
        wanted = min(step, count - len(chosen))
        candidates = gaussians.sample([label] * (_CANDIDATES * step), generator)
        places = selectors.embed(label, candidates)
        kept = crowding(places, embedded).topk(wanted, largest=False).indices
        chosen, embedded = torch.cat([chosen, candidates[kept]]), torch.cat([embedded, places[kept]])
    return compensate(chosen, gaussians.mean[place], gaussians.std[place])


def crowding(candidates: Tensor, chosen: Tensor) -> Tensor:
    """log mean_j exp(cos(candidate, chosen_j)) of unit vectors (m, D) and (n, D): (m,), low where there is room."""
    return (candidates @ chosen.mT).exp().mean(1).log()


def compensate(features: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Features (n, D) moved and stretched to the given mean (D,) and (unbiased) standard deviation (D,).

    A single feature has no spread and is returned as it is. A coordinate in which all features agree gets the mean.
    """
    if len(features) == 1:
        return features
    centred = features - features.mean(0)
    spread = centred.square().sum(0).div(len(features) - 1).sqrt()
    return centred * (std / spread.clamp_min(torch.finfo(spread.dtype).tiny)) + mean
