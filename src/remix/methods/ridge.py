"""Ridge regression of one-hot labels on features, from sums. All in float64.

Leaving an image out changes its own prediction p to (p - h y) / (1 - h), h its leverage: x' (G + penalty)^-1 x.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from remix.methods.discriminant import factorised

__all__ = ["Ridge", "ridges_left_out"]


class Ridge:
    """(G + penalty I)^-1, factorised once; G is the sum of x x'.

    Args:
        mean: (K, D).
        counts: (K,) images of each class.
        scatter: (D, D) about the means.
        penalty: above 0.

    Raises:
        ValueError: if the scatter is none.

    """

    def __init__(self, mean: Tensor, counts: Tensor, scatter: Tensor, penalty: float) -> None:
        totals = counts[:, None] * mean
        matrix = torch.addmm(scatter, totals.T, mean)
        matrix.diagonal().add_(penalty)
        self._root = factorised(matrix)
        self.weight = self._solved(totals)
        """(K, D)."""

    def left_out(self, x: Tensor, labels: Tensor) -> Tensor:
        """Scores (N, K) of images (N, D), some or all that the sums are of, each by the regression on all others."""
        return _left_out(x @ self.weight.T, (x * self._solved(x)).sum(1), labels)

    def _solved(self, rows: Tensor) -> Tensor:
        return torch.cholesky_solve(rows.T, self._root).T


def ridges_left_out(classes: int, penalties: Sequence[float], x: Tensor, labels: Tensor, scored: Tensor) -> Tensor:
    """What `Ridge.left_out` gives, (penalties, M, K) for several at once, by one eigenvalue problem.

    Args:
        classes: K.
        penalties: each above 0.
        x: (N, D), all of the images.
        labels: (N,) their classes.
        scored: (M,) places of those whose scores are wanted.

    """
    targets = one_hot(labels, classes).double()
    if len(x) <= x.shape[1]:
        values, basis = torch.linalg.eigh(x @ x.T)
    else:
        values, vectors = torch.linalg.eigh(x.T @ x)
        basis = x @ vectors / values.clamp_min(max(float(values.max()) * 1e-14, 1e-300)).sqrt()
    values, inside = values.clamp_min(0), basis.T @ targets
    basis, labels = basis[scored], labels[scored]
    scores = []
    for penalty in penalties:
        kept = values / (values + penalty)
        scores.append(_left_out((basis * kept) @ inside, basis.square() @ kept, labels))
    return torch.stack(scores)


def _left_out(predicted: Tensor, leverage: Tensor, labels: Tensor) -> Tensor:
    leverage = leverage.clamp_max(1 - 1e-9)[:, None]
    return (predicted - leverage * one_hot(labels, predicted.shape[1])) / (1 - leverage)
