"""Laplace normals of measured layers: which fit is used for what was kept."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from remix.laplace import LaplaceNormal, fit, fit_covariance
from remix.statistics.normals import move_normal, with_moments

__all__ = ["fit_moments", "fit_rows"]


def fit_moments(mean: Tensor, covariance: Tensor, samples: int, dtype: torch.dtype) -> LaplaceNormal:
    """Fit a Laplace normal to a mean (D,) and a covariance (D, D), with exactly its variances.

    Args:
        mean: (D,).
        covariance: (D, D) with positive variances.
        samples: how many rows it was measured on.
        dtype: of the result; the fit itself is float64.

    """
    normal = fit_covariance(covariance.double(), mean.double(), samples=max(samples, 1))
    return move_normal(normal, mean.device, dtype)


def fit_rows(
    rows: Tensor,
    layout: tuple[int, int, int] | None,
    transform: Literal["dct"] | None,
    mean: Tensor,
    variance: Tensor,
    seen: int,
) -> LaplaceNormal:
    """Fit a Laplace normal to kept rows (n, D); ``layout`` and ``transform`` as in `remix.laplace.fit`.

    Where the rows are only a part of the ``seen`` ones, mean and variances are those of all of them (in the DCT basis
    only the mean: the variances there are per frequency).
    """
    normal = fit(rows, layout=layout, transform=transform)
    if seen <= len(rows):
        return normal
    return with_moments(normal, mean, None if normal.basis is not None else variance)
