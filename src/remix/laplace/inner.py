"""The Frobenius inner product of two Laplace covariances, without their matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from remix.laplace.plane import Axis, plane_form

if TYPE_CHECKING:
    from remix.laplace.covariance import LaplaceCovariance

__all__ = ["frobenius_distance", "inner", "over_batch"]


def inner(first: LaplaceCovariance, second: LaplaceCovariance) -> Tensor:
    """<Sigma1, Sigma2>_F = tr(Sigma1 Sigma2), differentiable in all six parameter vectors in closed form.

    O(D) when both sort their coordinates the same way, O(D log D) otherwise; float64 inside. Batch shapes broadcast;
    the result has the broadcast batch shape and the dtype of the parameters.

    Raises:
        ValueError: the two have different dimensions, dtypes or devices.
    """
    check_alike("second", first, second)
    vectors = (first.diag, first.weight, first.coord, second.diag, second.weight, second.coord)
    return over_batch(_inner, vectors)


def frobenius_distance(first: LaplaceCovariance, second: LaplaceCovariance) -> Tensor:
    """||Sigma1 - Sigma2||_F / ||Sigma2||_F, in O(D log D). Resolves differences down to about 1e-8."""
    own, cross, scale = inner(first, first), inner(first, second), inner(second, second)
    return ((own - 2 * cross + scale).clamp_min(0) / scale).sqrt()


def _inner(diag1: Tensor, weight1: Tensor, coord1: Tensor, diag2: Tensor, weight2: Tensor, coord2: Tensor) -> Tensor:
    product = weight1 * weight2
    diagonal = torch.dot(diag1 + weight1.square(), diag2 + weight2.square())
    return diagonal + 2 * plane_form(product, product, Axis.of(coord1), Axis.of(coord2))


def over_batch(function: Callable[..., Tensor], vectors: Sequence[Tensor]) -> Tensor:
    """Applies a function of float64 vectors (D,) to the broadcast batch of (..., D) tensors, one after the other."""
    dtype = vectors[0].dtype
    batch = torch.broadcast_shapes(*(v.shape[:-1] for v in vectors))  # type: ignore[no-untyped-call]
    rows = [v.double().expand(*batch, v.shape[-1]).reshape(-1, v.shape[-1]) for v in vectors]
    if not batch:
        return function(*(v[0] for v in rows)).to(dtype)
    values = [function(*(v[k] for v in rows)) for k in range(rows[0].shape[0])]
    return torch.stack(values).view(batch).to(dtype)


def check_alike(name: str, first: LaplaceCovariance, second: LaplaceCovariance) -> None:
    """Raises a ValueError that names the argument unless dimension, dtype and device agree."""
    for what, one, other in (
        ("dimension", first.dim, second.dim),
        ("dtype", first.diag.dtype, second.diag.dtype),
        ("device", first.diag.device, second.diag.device),
    ):
        if one != other:
            raise ValueError(f"{name} has {what} {other}, expected {one} as in the one it is combined with")
