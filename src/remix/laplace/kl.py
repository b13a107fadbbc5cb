"""KL divergences of Laplace normals, registered with torch.distributions. Importing this module registers them.

Pairs: two Laplace normals (O(D) with the same sorted order, O(D log D) otherwise); a Laplace normal and a diagonal one,
``Independent(Normal(loc, scale), 1)``, either way; a Laplace normal and a ``MultivariateNormal``, either way, through
dense matrices and so only up to the size that ``covariance_matrix`` allows. A plain ``Normal`` of D entries is a batch
of D scalars to torch, not one distribution on R^D: wrap it in ``Independent``.

All are differentiable in every parameter of both sides.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributions import Independent, MultivariateNormal, Normal, kl_divergence, register_kl

from remix.laplace.inner import Part, check_alike, over_pairs
from remix.laplace.normal import LaplaceNormal
from remix.laplace.plane import call_native, plane_form, runs_natively
from remix.laplace.precision import PrecisionKernel, precision_kernel

__all__ = ["covariance_divergence"]


@register_kl(LaplaceNormal, LaplaceNormal)  # type: ignore[untyped-decorator]
def _laplace_laplace(p: LaplaceNormal, q: LaplaceNormal) -> Tensor:
    check_alike("q", p.covariance, q.covariance)
    if p.basis != q.basis:
        raise ValueError(
            f"p has basis {p.basis} and q has basis {q.basis}: the KL divergence needs both in the same basis; "
            "fit both with the same one, or compare by Monte Carlo: (p.log_prob(x) - q.log_prob(x)).mean(), x ~ p"
        )
    shift = p.loc - q.loc
    if p.basis is not None:
        shift = p.basis.forward(shift)
    return over_pairs(covariance_divergence, p.covariance, q.covariance) + 0.5 * _quadratic_form(q, shift)


@register_kl(LaplaceNormal, Independent)  # type: ignore[untyped-decorator]
def _laplace_diagonal(p: LaplaceNormal, q: Independent[Any]) -> Tensor:
    variance = _diagonal_variance(q, p)
    terms = p.variance / variance - 1 + (p.loc - q.mean).square() / variance + variance.log()
    return 0.5 * (terms.sum(-1) - p.covariance.logdet())


@register_kl(Independent, LaplaceNormal)  # type: ignore[untyped-decorator]
def _diagonal_laplace(p: Independent[Any], q: LaplaceNormal) -> Tensor:
    variance = _diagonal_variance(p, q)
    if q.basis is not None:
        raise ValueError(
            f"q has basis {q.basis}, in which the diagonal p is dense: the KL divergence of a diagonal normal from a "
            "LaplaceNormal needs q without a basis"
        )
    trace = (variance * q.covariance.inverse_diagonal() - 1 - variance.log()).sum(-1)
    return 0.5 * (trace + _quadratic_form(q, p.mean - q.loc) + q.covariance.logdet())


@register_kl(LaplaceNormal, Normal)  # type: ignore[untyped-decorator]
def _laplace_normal(p: LaplaceNormal, q: Normal) -> Tensor:
    """A Normal of shape (..., D) stands for the diagonal Gaussian over its last dimension."""
    return kl_divergence(p, _as_vector("q", q, p))


@register_kl(Normal, LaplaceNormal)  # type: ignore[untyped-decorator]
def _normal_laplace(p: Normal, q: LaplaceNormal) -> Tensor:
    return kl_divergence(_as_vector("p", p, q), q)


def _as_vector(name: str, normal: Normal, other: LaplaceNormal) -> Independent[Any]:
    if not normal.batch_shape or normal.batch_shape[-1] != other.covariance.dim:
        raise ValueError(
            f"{name} is a Normal of shape {tuple(normal.batch_shape)}: expected (..., {other.covariance.dim}), the "
            "dimensions of the LaplaceNormal last"
        )
    return Independent(normal, 1)


@register_kl(LaplaceNormal, MultivariateNormal)  # type: ignore[untyped-decorator]
def _laplace_dense(p: LaplaceNormal, q: MultivariateNormal) -> Tensor:
    _check_dimension(p, q)
    return kl_divergence(MultivariateNormal(p.loc, p.covariance_matrix), q)


@register_kl(MultivariateNormal, LaplaceNormal)  # type: ignore[untyped-decorator]
def _dense_laplace(p: MultivariateNormal, q: LaplaceNormal) -> Tensor:
    _check_dimension(q, p)
    return kl_divergence(p, MultivariateNormal(q.loc, q.covariance_matrix))


def covariance_divergence(first: Part, second: Part) -> Tensor:
    """KL(N(0, Sigma0) || N(0, Sigma1)), a float64 scalar; differentiable in all parameters of both."""
    order = first.axis.order
    if runs_natively(order) and torch.equal(order, second.axis.order):
        vectors = [(part.diag[order], part.weight[order], part.axis.gap) for part in (first, second)]
        value: Tensor = _LineDivergence.apply(*vectors[0], *vectors[1])
    else:
        precision = precision_kernel(*second)
        logdets = precision.innovation.log() - precision_kernel(*first).innovation.log()
        value = 0.5 * (_trace(precision, first) - len(order) + logdets.sum())
    return value.clamp_min(0)


def _trace(precision: PrecisionKernel, part: Part) -> Tensor:
    """tr(Sigma1^-1 Sigma0)."""
    left, right = part.weight * precision.left, part.weight * precision.right
    diagonal = torch.dot(precision.diagonal, part.diag + part.weight.square())
    return diagonal - 2 * plane_form(left, right, precision.axis, part.axis)


class _LineDivergence(torch.autograd.Function):
    """The divergence of two covariances with the same sorted order: value and gradients in one native pass."""

    @staticmethod
    def forward(ctx: Any, *vectors: Tensor) -> Tensor:
        gradient = vectors[0].new_empty(6, len(vectors[0])) if any(ctx.needs_input_grad) else None
        value = vectors[0].new_empty(())
        call_native("remix_kl_line", *vectors, gradient, value)
        if gradient is not None:
            ctx.save_for_backward(gradient)
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        (gradient,) = ctx.saved_tensors
        return tuple(grad * gradient)


def _quadratic_form(q: LaplaceNormal, shift: Tensor) -> Tensor:
    """shift' Sigma^-1 shift, as a sum of squares."""
    return q.covariance.whiten(shift).square().sum(-1)


def _diagonal_variance(diagonal: Independent[Any], laplace: LaplaceNormal) -> Tensor:
    base = diagonal.base_dist
    if not isinstance(base, Normal) or diagonal.reinterpreted_batch_ndims != 1:
        raise NotImplementedError(
            f"the KL divergence between a LaplaceNormal and {diagonal} is not known: the diagonal normal is "
            "Independent(Normal(loc, scale), 1)"
        )
    _check_dimension(laplace, diagonal)
    return base.variance


def _check_dimension(laplace: LaplaceNormal, other: Independent[Any] | MultivariateNormal) -> None:
    if laplace.event_shape != other.event_shape:
        raise ValueError(
            f"the LaplaceNormal has event shape {tuple(laplace.event_shape)}, the other distribution "
            f"{tuple(other.event_shape)}: expected the same dimension"
        )
