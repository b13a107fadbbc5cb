"""A metric for every class from its own covariance, shrunk and made a correlation (Goswami et al., 2023). In float64.

To the covariance C, a times the mean of its diagonal is added on the diagonal, and a times the mean of the rest off it;
then it is divided by the standard deviations. A class that does not vary, as one of a single image, is given what that
would be without correlations.

Leaving an image out takes d d' / (n - 1) from C, d its distance from the mean of its class of n images. What is added,
and the standard deviations, stay those of all images.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from remix.methods.discriminant import factorised

__all__ = ["class_metric", "metric_left_out", "metrics_left_out"]

_FLOOR = 1e-4  # of the mean variance: a sum of features that never varies must not be divided by


def class_metric(covariance: Tensor, shrinkage: float) -> Tensor:
    """The inverse (D, D) of the shrunk correlation of a class.

    Args:
        covariance: (D, D).
        shrinkage: a, above 0.

    Raises:
        ValueError: if it is no covariance.

    """
    diagonal, rest, deviation = _added(covariance.diagonal(), float(covariance.sum()), shrinkage)
    shrunk = covariance + rest
    shrunk.diagonal().add_(diagonal)
    return torch.cholesky_inverse(factorised(shrunk / deviation / deviation[:, None]))


def metric_left_out(covariance: Tensor, metric: Tensor, shrinkage: float, count: int, away: Tensor) -> Tensor:
    """Squared distances (N,) of images of a class from the mean of the others, in the metric of the others.

    Args:
        covariance, shrinkage: as of `class_metric`, with these images.
        metric: what that gave.
        count: images of the class, at least 2.
        away: (N, D), some or all of them, about the mean of all.

    """
    scaled = away / _added(covariance.diagonal(), float(covariance.sum()), shrinkage)[2]
    found = away @ metric
    return _left_out((found * away).sum(1), (found * scaled).sum(1), ((scaled @ metric) * scaled).sum(1), count)


def metrics_left_out(mean: Tensor, shrinkages: Sequence[float], x: Tensor, labels: Tensor, scored: Tensor) -> Tensor:
    """Minus squared distances (shrinkages, M, K) of images from the means, each in metrics that do not know it.

    A class of n images has a covariance of rank n - 1, and no matrix of features by features is made.

    Args:
        mean: (K, D).
        shrinkages: each above 0.
        x: (N, D), all of the images.
        labels: (N,) their classes.
        scored: (M,) places of those whose scores are wanted.

    """
    some, theirs = x[scored], labels[scored]
    scores = x.new_zeros(len(shrinkages), len(some), len(mean))
    for label, centre in enumerate(mean):
        images, away, own = x[labels == label] - centre, some - centre, theirs == label
        for place, shrinkage in enumerate(shrinkages):
            metric = _LowRank(images, shrinkage)
            scores[place, :, label] = -metric(away, away)
            if len(images) > 1 and bool(own.any()):
                mine, scaled = away[own], away[own] / metric.deviation
                forms = metric(mine, mine), metric(mine, scaled), metric(scaled, scaled)
                scores[place, own, label] = -_left_out(*forms, len(images))
    return scores


class _LowRank:
    """The metric of a class from its images (n, D) about their mean."""

    def __init__(self, away: Tensor, shrinkage: float) -> None:
        count, dim = away.shape
        squares, total = away.square().sum(0) / count, float(away.sum(1).square().sum()) / count
        diagonal, rest, self.deviation = _added(squares, total, shrinkage)
        factor = torch.cat([away / count**0.5, away.new_full((1, dim), abs(rest) ** 0.5)]) / self.deviation
        self._diagonal = diagonal / self.deviation.square()
        self._factor = factor / self._diagonal
        inner = self._factor @ factor.T
        inner.diagonal().add_(1)
        inner[-1, -1] -= 2 * (rest < 0)
        self._inverse = torch.linalg.inv(inner)

    def __call__(self, one: Tensor, other: Tensor) -> Tensor:
        """Inner products (N,) of rows (N, D)."""
        within = ((one @ self._factor.T) @ self._inverse * (other @ self._factor.T)).sum(1)
        return (one * other / self._diagonal).sum(1) - within


def _added(squares: Tensor, total: float, shrinkage: float) -> tuple[float, float, Tensor]:
    """What is added to a covariance on its diagonal and everywhere, and the standard deviations (D,) after it.

    Args:
        squares: its diagonal.
        total: the sum of all of it.
        shrinkage: a.

    """
    dim, variance = len(squares), float(squares.mean())
    if not variance > 0:  # as if it varied by 1, but did not
        return shrinkage, 0.0, torch.full_like(squares, (1 + shrinkage) ** 0.5)
    rest = shrinkage * (total - dim * variance) / (dim * max(dim - 1, 1))
    diagonal = (shrinkage + _FLOOR) * variance - rest
    return diagonal, rest, (squares + diagonal + rest).sqrt()


def _left_out(whole: Tensor, mixed: Tensor, scaled: Tensor, count: int) -> Tensor:
    """From d'M d, d'M s and s'M s to the squared distance without the image; s is d over the deviations."""
    gain = 1 / (count - 1)
    return (count / (count - 1)) ** 2 * (whole + gain * mixed.square() / (1 - gain * scaled))
