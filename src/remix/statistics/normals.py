"""Laplace normals on another device or in another dtype."""

from __future__ import annotations

import torch
from torch import Tensor

from remix.laplace import LaplaceCovariance, LaplaceNormal

__all__ = ["move_normal", "with_moments"]


def move_normal(
    normal: LaplaceNormal, device: torch.device | str | None = None, dtype: torch.dtype | None = None
) -> LaplaceNormal:
    """The same normal, detached, on another device or in another dtype; it keeps its report."""
    sigma = normal.covariance
    loc, diag, weight, coord = (
        v.detach().to(device, dtype) for v in (normal.loc, sigma.diag, sigma.weight, sigma.coord)
    )
    moved = LaplaceNormal(loc, LaplaceCovariance(diag, weight, coord), normal.basis)
    moved.report = normal.report
    return moved


def with_moments(normal: LaplaceNormal, mean: Tensor, variance: Tensor | None) -> LaplaceNormal:
    """The same correlations with another mean (D,) and, if given, other variances (D,) in the normal's own basis."""
    like = normal.loc
    sigma = normal.covariance if variance is None else normal.covariance.rescale(variance.to(like))
    changed = LaplaceNormal(mean.to(like), sigma, normal.basis)
    changed.report = normal.report
    return changed
