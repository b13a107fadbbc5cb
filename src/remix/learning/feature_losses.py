"""Losses of pooled features: how far they moved from those of the old model, and whether they collapse."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["anti_collapse", "feature_distillation", "matrix_distillation"]

_JITTER = 1e-6  # of the mean variance, and by itself: a feature that does not vary must not stop the factorisation


def feature_distillation(features: Tensor, before: Tensor, variance: Tensor | None = None) -> Tensor:
    """Mean over samples and features of the squared difference, over the variance of each feature if that is given.

    Args:
        features: (N, D) of the student, or of what a projector makes of them.
        before: (N, D) of the old model. No gradient reaches them.
        variance: (D,), above 0.

    Raises:
        ValueError: if the shapes do not fit.

    """
    _check(features, before)
    squares = (features - before.detach()).square()
    return (squares if variance is None else squares / variance.to(squares)).mean()


def matrix_distillation(features: Tensor, before: Tensor, matrix: Tensor) -> Tensor:
    """Mean over samples of d' M d, d the difference of features (N, D) from those before, M (D, D)."""
    _check(features, before)
    away = features - before.detach()
    return ((away @ matrix.to(away)) * away).sum(1).mean()


def anti_collapse(features: Tensor, most: float = 1.0) -> Tensor:
    """Minus the mean of min(L_ii, most), L the Cholesky factor of the covariance of a batch (AdaGauss).

    What a feature varies beyond those before it is L_ii: it is rewarded up to ``most``.

    Args:
        features: (N, D) with N above D: the covariance of fewer has no factor.
        most: beyond which nothing is gained.

    Raises:
        ValueError: for a batch that is too small.

    """
    count, dim = features.shape
    if count <= dim:
        raise ValueError(f"the covariance of {dim} features has a factor from {dim + 1} samples on, got {count}")
    covariance = torch.cov(features.T).reshape(dim, dim)
    covariance = (covariance + covariance.T) / 2
    added = _JITTER * (covariance.detach().diagonal().mean() + 1)
    root = torch.linalg.cholesky(covariance + added * torch.eye(dim, dtype=features.dtype, device=features.device))
    return -root.diagonal().clamp_max(most).mean()


def _check(features: Tensor, before: Tensor) -> None:
    if features.dim() != 2 or features.shape != before.shape or not len(features):
        raise ValueError(
            f"features and those before must both be (N, D), got {tuple(features.shape)} and {tuple(before.shape)}"
        )
