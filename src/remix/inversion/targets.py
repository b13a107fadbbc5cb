"""What the pseudo-samples should be: labels, and features that the network should see in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from remix.statistics import ClassGaussians, Score, Selectors, select_features, select_from_pool

__all__ = ["Targets", "balanced_labels", "feature_targets", "random_labels"]


@dataclass(frozen=True, eq=False)
class Targets:
    """Labels (N,) and, for strategies that match features, pooled features (N, D).

    Raises:
        ValueError: for no labels, wrong shapes, or features that are not finite.

    """

    labels: Tensor
    features: Tensor | None = None

    def __post_init__(self) -> None:
        if self.labels.dim() != 1 or not len(self.labels) or self.labels.dtype != torch.int64:
            raise ValueError(
                f"labels must be at least one int64 (N,), got {tuple(self.labels.shape)} {self.labels.dtype}"
            )
        if int(self.labels.min()) < 0:
            raise ValueError(f"labels must not be negative, got {int(self.labels.min())}")
        if self.features is None:
            return
        if self.features.dim() != 2 or len(self.features) != len(self.labels):
            raise ValueError(f"features must be ({len(self.labels)}, D), got {tuple(self.features.shape)}")
        if not bool(torch.isfinite(self.features).all()):
            raise ValueError("the target features must be finite")

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, part: slice) -> Targets:
        return Targets(self.labels[part], None if self.features is None else self.features[part])


def random_labels(classes: Sequence[int], count: int, generator: torch.Generator) -> Tensor:
    """``count`` labels, each drawn uniformly from ``classes``. Raises ValueError for no classes or a count below 1."""
    _check(classes, count)
    places = torch.randint(len(classes), (count,), generator=generator, device=generator.device)
    return torch.tensor(list(classes))[places.cpu()]


def balanced_labels(classes: Sequence[int], count: int) -> Tensor:
    """``count`` labels, every class equally often as far as possible. Raises ValueError as `random_labels`."""
    _check(classes, count)
    return torch.tensor(list(classes)).repeat(-(-count // len(classes)))[:count]


def feature_targets(
    labels: Tensor,
    gaussians: ClassGaussians,
    selectors: Selectors | None = None,
    generator: torch.Generator | None = None,
    *,
    score: Score = "log-mean-exp",
    pool: bool = False,
) -> Targets:
    """A feature for every label, from its class's Gaussian.

    Args:
        labels: (N,).
        gaussians: of the classes.
        selectors: with them, the features of a class are chosen to differ from each other (contrastive feature
            selection); without, they are plain draws.
        generator: source of the draws.
        score: by which the selectors judge a candidate.
        pool: whether they choose with `select_from_pool`, else with `select_features`.

    Raises:
        ValueError: for a class that has no Gaussian or no selector.

    """
    places = gaussians.rows(labels)
    if selectors is None:
        return Targets(labels, gaussians.sample(labels, generator))
    select = select_from_pool if pool else select_features
    features = gaussians.mean.new_empty(len(labels), gaussians.dim)
    for place in places.unique():
        rows = (places == place).nonzero()[:, 0]
        label = gaussians.labels[int(place)]
        chosen = select(gaussians, selectors, label, len(rows), generator, score)
        # The order of the choice runs from plain draws to ever more remote ones: mix it.
        order = torch.randperm(len(rows), generator=generator, device=None if generator is None else generator.device)
        features[rows] = chosen[order.to(chosen.device)].to(features)
    return Targets(labels, features)


def _check(classes: Sequence[int], count: int) -> None:
    if not len(classes) or count < 1:
        raise ValueError(f"give at least one class and a count of at least 1, got {list(classes)} and {count}")
