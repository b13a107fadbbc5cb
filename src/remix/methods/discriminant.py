"""Linear discriminants from sums: one covariance for all classes, shrunk towards its diagonal. All in float64.

With the scatter W of f degrees of freedom, v its diagonal over f and a small number e, the covariance is
(1 - a) W / f + a diag(v + e): positive definite for any a above 0, however few images there are. Features are divided
by the roots of v + e throughout.

Leaving an image x of a class of n images out moves the mean m of its class to m - d / (n - 1), d = x - m, and takes
n / (n - 1) d d' from W: a change of rank one, so that the scores of all images, each by a head without it, cost no more
than those of one head. What the covariance is shrunk towards, and f, stay those of all images.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Discriminant", "discriminants_left_out", "factorised", "reckoned_shrinkage"]

_FLOOR = 1e-4  # of the mean variance: what a feature that never varied is taken to vary
_LEAST = 1e-3  # shrinkage that is reckoned: no features are normal enough for less


class Discriminant:
    """One shrunk covariance, factorised once.

    Args:
        mean: (K, D).
        scatter: (D, D), or its diagonal (D,): then features are taken as uncorrelated.
        freedom: degrees of freedom of the scatter.
        shrinkage: above 0, up to 1.

    Raises:
        ValueError: if the scatter is none.

    """

    def __init__(self, mean: Tensor, scatter: Tensor, freedom: int, shrinkage: float) -> None:
        diagonal = scatter.dim() == 1
        self._space = _Space.of(mean, scatter if diagonal else scatter.diagonal(), freedom)
        self._means, self._share = self._space(mean), 0.0 if diagonal else (1 - shrinkage) / freedom
        self._root = None
        if not diagonal:
            matrix = (scatter * (self._share * self._space.scale)).mul_(self._space.scale[:, None])
            matrix.diagonal().add_(shrinkage)
            self._root = factorised(matrix)

    def _metric(self, rows: Tensor) -> Tensor:
        return rows if self._root is None else torch.cholesky_solve(rows.T, self._root).T

    def weights(self) -> tuple[Tensor, Tensor]:
        """Weights (K, D) and biases (K,), both 0 on average over classes: no answer depends on that."""
        weight = self._metric(self._means)
        bias = -0.5 * (self._means * weight).sum(1)
        weight = weight * self._space.scale
        bias = bias - weight @ self._space.centre
        return weight - weight.mean(0), bias - bias.mean()

    def left_out(self, counts: Tensor, x: Tensor, labels: Tensor, held: bool = False) -> Tensor:
        """Scores (N, K) of images, each by the discriminant of all others.

        Args:
            counts: (K,) images of each class.
            x: (N, D), some or all of the images that the sums are of.
            labels: (N,) their classes; each must have another image.
            held: leave them out of the means only: of a covariance that was fitted, nothing can be taken.

        """
        rows = self._space(x)
        of_rows, of_means = self._metric(torch.cat([rows, self._means])).split([len(rows), len(self._means)])
        products = _Products(rows @ of_means.T, self._means @ of_means.T, (rows * of_rows).sum(1))
        return _left_out(products, counts, labels, 0.0 if held else self._share)


def reckoned_shrinkage(scatter: Tensor, freedom: int) -> float:
    """How far to shrink a covariance to its diagonal, by how sure so many images are of its correlations.

    The shrinkage of least expected squared error (Schäfer and Strimmer, 2005), with the variance that a correlation r
    of normal features has, (1 - r^2)^2 / f. It looks at no class, so that it holds where leaving images out does not
    tell: of a network that learned from these very images.

    Args:
        scatter: (D, D) within classes.
        freedom: its degrees of freedom f.

    """
    variance = scatter.diagonal()
    variance = (variance + _FLOOR * variance.mean()).clamp_min(torch.finfo(scatter.dtype).tiny)
    squares = (scatter.square() / variance / variance[:, None]).clamp_max(1).fill_diagonal_(0)
    unsure = ((1 - squares).square().sum() - len(squares)) / max(freedom, 1)
    return float((unsure / squares.sum().clamp_min(1e-12)).clamp(_LEAST, 1)) if len(squares) > 1 else 1.0


def discriminants_left_out(
    mean: Tensor, shrinkages: Sequence[float], x: Tensor, labels: Tensor, scored: Tensor
) -> Tensor:
    """What `Discriminant.left_out` gives, (shrinkages, M, K) for several at once, by one eigenvalue problem.

    Args:
        mean: (K, D).
        shrinkages: each above 0, up to 1.
        x: (N, D), all of the images.
        labels: (N,) their classes.
        scored: (M,) places of those whose scores are wanted.

    """
    counts = torch.bincount(labels, minlength=len(mean)).to(x)
    freedom = max(len(x) - len(mean), 1)
    space = _Space.of(mean, (x - mean[labels]).square().sum(0), freedom)
    rows, means = space(x), space(mean)
    away = rows - means[labels]
    if len(x) < x.shape[1]:  # the same values, from a smaller matrix
        values, vectors = torch.linalg.eigh(away @ away.T / freedom)
        found = values > values.max() * 1e-12
        values = values[found]
        basis = away.T @ vectors[:, found] / (values * freedom).sqrt()
    else:
        values, basis = torch.linalg.eigh(away.T @ away / freedom)
        values = values.clamp_min(0)
    rows, labels = rows[scored], labels[scored]
    inside, means_inside = rows @ basis, means @ basis
    plain = _Products(rows @ means.T, means @ means.T, rows.square().sum(1))
    scores = []
    for a in shrinkages:  # the inverse of a I + (1 - a) B values B' is (I - B less B') / a
        less = (1 - a) * values / ((1 - a) * values + a)
        products = _Products(
            (plain.images_means - (inside * less) @ means_inside.T) / a,
            (plain.means - (means_inside * less) @ means_inside.T) / a,
            (plain.images - (inside.square() * less).sum(1)) / a,
        )
        scores.append(_left_out(products, counts, labels, (1 - a) / freedom))
    return torch.stack(scores)


def factorised(matrix: Tensor) -> Tensor:
    """The lower Cholesky factor of a matrix. Raises ValueError if it is not positive definite."""
    root, failed = torch.linalg.cholesky_ex(matrix)
    if int(failed):
        raise ValueError("the sums of the model are none: their scatter has negative eigenvalues")
    return root


class _Space(NamedTuple):
    """Features about their centre, in units of their spread within classes."""

    centre: Tensor
    scale: Tensor

    @classmethod
    def of(cls, mean: Tensor, squares: Tensor, freedom: int) -> _Space:
        variance = squares / freedom
        average = float(variance.mean())
        scale = (variance + _FLOOR * average).rsqrt() if average > 0 else torch.ones_like(variance)
        return cls(mean.mean(0), scale)

    def __call__(self, rows: Tensor) -> Tensor:
        return (rows - self.centre) * self.scale


class _Products(NamedTuple):
    """Inner products in the metric of a head: of images with means (N, K), of means (K, K), of images (N,)."""

    images_means: Tensor
    means: Tensor
    images: Tensor


def _left_out(products: _Products, counts: Tensor, labels: Tensor, share: float) -> Tensor:
    """Scores (N, K) x'P m - m'P m / 2, in which neither P nor the mean of its own class knows an image.

    Args:
        products: with P of all images.
        counts: (K,).
        labels: (N,).
        share: of an outer product in what P is the inverse of.

    """
    own, each = labels[:, None], counts[labels]
    away = products.images_means - products.means[labels]  # d'P m of every class
    with_image = products.images - products.images_means.gather(1, own)[:, 0]  # d'P x
    length = with_image - away.gather(1, own)[:, 0]  # d'P d
    gain = share * each / (each - 1)
    gain = gain / (1 - gain * length)  # of the inverse of a matrix from which d d' was taken
    images_means = products.images_means + (gain * with_image)[:, None] * away
    means = products.means.diagonal() + gain[:, None] * away.square()
    grown, part = 1 + gain * length, 1 / (each - 1)
    x_own = images_means.gather(1, own)[:, 0] - part * with_image * grown
    m_own = means.gather(1, own)[:, 0] - 2 * part * away.gather(1, own)[:, 0] * grown + part.square() * length * grown
    scores = images_means - 0.5 * means
    return scores.scatter(1, own, (x_own - 0.5 * m_own)[:, None])
