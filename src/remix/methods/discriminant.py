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

__all__ = ["discriminant", "discriminant_left_out", "discriminants_left_out", "solved"]

_FLOOR = 1e-4  # of the mean variance: what a feature that never varied is taken to vary


def discriminant(mean: Tensor, scatter: Tensor, freedom: int, shrinkage: float) -> tuple[Tensor, Tensor]:
    """Weights and biases of the classes.

    Args:
        mean: (K, D).
        scatter: (D, D), or its diagonal (D,): then features are taken as uncorrelated.
        freedom: degrees of freedom of the scatter.
        shrinkage: above 0, up to 1.

    Returns:
        weight (K, D) and bias (K,); both are 0 on average over classes, which no answer depends on and keeps numbers
        small.

    """
    space = _Space.of(mean, scatter, freedom)
    rows = space(mean)
    weight = rows if scatter.dim() == 1 else solved(space.shrunk(scatter, shrinkage), rows)
    bias = -0.5 * (rows * weight).sum(1)
    weight = weight * space.scale
    bias = bias - weight @ space.centre
    return weight - weight.mean(0), bias - bias.mean()


def discriminant_left_out(
    mean: Tensor, counts: Tensor, scatter: Tensor, freedom: int, shrinkage: float, x: Tensor, labels: Tensor,
    held: bool = False,
) -> Tensor:  # fmt: skip
    """Scores (N, K) of images, each by the discriminant of all others.

    Args:
        mean, scatter, freedom, shrinkage: as of `discriminant`, with these images.
        counts: (K,) images of each class.
        x: (N, D), some or all of the images.
        labels: (N,) their classes; each must have another image.
        held: leave them out of the means only: of a covariance that was fitted, nothing can be taken.

    """
    space = _Space.of(mean, scatter, freedom)
    rows, means = space(x), space(mean)
    if scatter.dim() == 1:
        return _left_out(_Products(rows @ means.T, means @ means.T, rows.square().sum(1)), counts, labels, 0.0)
    metric = solved(space.shrunk(scatter, shrinkage), torch.cat([rows, means]))
    of_rows, of_means = metric[: len(rows)], metric[len(rows) :]
    products = _Products(rows @ of_means.T, means @ of_means.T, (rows * of_rows).sum(1))
    return _left_out(products, counts, labels, 0.0 if held else (1 - shrinkage) / freedom)


def discriminants_left_out(mean: Tensor, shrinkages: Sequence[float], x: Tensor, labels: Tensor) -> Tensor:
    """The same for several shrinkages at once, (shrinkages, N, K), for the price of one eigenvalue problem.

    Args:
        mean: (K, D).
        shrinkages: each above 0, up to 1.
        x: (N, D), all of the images.
        labels: (N,) their classes.

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


def solved(matrix: Tensor, rows: Tensor) -> Tensor:
    """rows (N, D) times the inverse of a positive definite matrix (D, D). Raises ValueError if it is none."""
    root, failed = torch.linalg.cholesky_ex(matrix)
    if int(failed):
        raise ValueError("the sums of the model are none: their scatter has negative eigenvalues")
    return torch.cholesky_solve(rows.T, root).T


class _Space(NamedTuple):
    """Features about their centre, in units of their spread within classes."""

    centre: Tensor
    scale: Tensor
    freedom: int

    @classmethod
    def of(cls, mean: Tensor, scatter: Tensor, freedom: int) -> _Space:
        variance = (scatter if scatter.dim() == 1 else scatter.diagonal()) / freedom
        average = float(variance.mean())
        scale = (variance + _FLOOR * average).rsqrt() if average > 0 else torch.ones_like(variance)
        return cls(mean.mean(0), scale, freedom)

    def __call__(self, rows: Tensor) -> Tensor:
        return (rows - self.centre) * self.scale

    def shrunk(self, scatter: Tensor, shrinkage: float) -> Tensor:
        matrix = (1 - shrinkage) / self.freedom * scatter * self.scale * self.scale[:, None]
        matrix.diagonal().add_(shrinkage)
        return matrix


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
