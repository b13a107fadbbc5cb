"""Ridge regression of one-hot labels on features, from sums. All in float64.

Leaving an image out changes its own prediction p to (p - h y) / (1 - h), h its leverage: x' (G + penalty)^-1 x.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from remix.methods.discriminant import solved

__all__ = ["ridge", "ridge_left_out", "ridges_left_out"]


def ridge(mean: Tensor, counts: Tensor, scatter: Tensor, penalty: float) -> Tensor:
    """Weights (K, D) of the classes: (G + penalty I)^-1 of the sums of their features, G the sum of x x'.

    Args:
        mean: (K, D).
        counts: (K,) images of each class.
        scatter: (D, D) about the means.
        penalty: above 0.

    """
    return solved(_products(mean, counts, scatter, penalty), counts[:, None] * mean)


def ridge_left_out(mean: Tensor, counts: Tensor, scatter: Tensor, penalty: float, x: Tensor, labels: Tensor) -> Tensor:
    """Scores (N, K) of images, each by the regression on all others.

    Args:
        mean, counts, scatter, penalty: as of `ridge`, with these images.
        x: (N, D), some or all of the images.
        labels: (N,) their classes.

    """
    metric = solved(_products(mean, counts, scatter, penalty), torch.cat([x, counts[:, None] * mean]))
    return _left_out(x @ metric[len(x) :].T, (x * metric[: len(x)]).sum(1), labels)


def ridges_left_out(x: Tensor, labels: Tensor, classes: int, penalties: Sequence[float]) -> Tensor:
    """The same for several penalties at once, (penalties, N, K), of all images (N, D), by one eigenvalue problem."""
    targets = one_hot(labels, classes).double()
    if len(x) <= x.shape[1]:
        values, basis = torch.linalg.eigh(x @ x.T)
    else:
        values, vectors = torch.linalg.eigh(x.T @ x)
        basis = x @ vectors / values.clamp_min(values.max() * 1e-14).sqrt()
    values, inside = values.clamp_min(0), basis.T @ targets
    scores = []
    for penalty in penalties:
        kept = values / (values + penalty)
        scores.append(_left_out((basis * kept) @ inside, basis.square() @ kept, labels))
    return torch.stack(scores)


def _products(mean: Tensor, counts: Tensor, scatter: Tensor, penalty: float) -> Tensor:
    matrix = scatter + (counts[:, None] * mean).T @ mean
    matrix.diagonal().add_(penalty)
    return matrix


def _left_out(predicted: Tensor, leverage: Tensor, labels: Tensor) -> Tensor:
    leverage = leverage.clamp_max(1 - 1e-9)[:, None]
    return (predicted - leverage * one_hot(labels, predicted.shape[1])) / (1 - leverage)
