"""The Frobenius inner product of two Laplace covariances, without their matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from remix.laplace.plane import Axis, plane_form

if TYPE_CHECKING:
    from remix.laplace.covariance import LaplaceCovariance

__all__ = ["Part", "check_alike", "frobenius_distance", "inner", "over_pairs"]


def inner(first: LaplaceCovariance, second: LaplaceCovariance) -> Tensor:
    """<Sigma1, Sigma2>_F = tr(Sigma1 Sigma2), differentiable in all six parameter vectors in closed form.

    O(D) when both sort their coordinates the same way, O(D log D) otherwise; float64 inside. Batch shapes broadcast;
    the result has the broadcast batch shape and the dtype of the parameters.

    Raises:
        ValueError: the two have different dimensions, dtypes or devices.
    """
    check_alike("second", first, second)
    return over_pairs(_inner, first, second)


def frobenius_distance(first: LaplaceCovariance, second: LaplaceCovariance) -> Tensor:
    """||Sigma1 - Sigma2||_F / ||Sigma2||_F, in O(D log D). Resolves differences down to about 1e-8."""
    own, cross, scale = inner(first, first), inner(first, second), inner(second, second)
    return ((own - 2 * cross + scale).clamp_min(0) / scale).sqrt()


class Part(NamedTuple):
    """One covariance of a batch: diag and weight in float64 (D,), and the axis of its coordinates."""

    diag: Tensor
    weight: Tensor
    axis: Axis


def _inner(first: Part, second: Part) -> Tensor:
    product = first.weight * second.weight
    diagonal = torch.dot(first.diag + first.weight.square(), second.diag + second.weight.square())
    return diagonal + 2 * plane_form(product, product, first.axis, second.axis)


def over_pairs(function: Callable[[Part, Part], Tensor], first: LaplaceCovariance, second: LaplaceCovariance) -> Tensor:
    """A scalar function of two covariances over their broadcast batch, one pair after the other, in their dtype."""
    batch = torch.broadcast_shapes(first.batch_shape, second.batch_shape)
    ones, others = (_parts(c if c.batch_shape == batch else c.expand(batch)) for c in (first, second))
    values = [function(one, other) for one, other in zip(ones, others, strict=True)]
    return torch.stack(values).reshape(batch).to(first.dtype)


def _parts(covariance: LaplaceCovariance) -> list[Part]:
    """The covariances of the batch, with the order that their factorisation has already found.

    Copies: autograd keeps the factors of a product, and does not see all that may be done to a parameter meanwhile.
    """
    return [
        Part(diag.to(torch.float64, copy=True), weight.to(torch.float64, copy=True), Axis.of(coord, factor.order))
        for (diag, weight, coord), factor in covariance._each()
    ]


def check_alike(name: str, first: LaplaceCovariance, second: LaplaceCovariance) -> None:
    """Raises a ValueError that names the argument unless dimension, dtype and device agree."""
    for what, one, other in (
        ("dimension", first.dim, second.dim),
        ("dtype", first.diag.dtype, second.diag.dtype),
        ("device", first.diag.device, second.diag.device),
    ):
        if one != other:
            raise ValueError(f"{name} has {what} {other}, expected {one} as in the one it is combined with")
