"""KL divergences of Laplace normals, registered with torch.distributions. Importing this module registers them.

Pairs: two Laplace normals (O(D) with the same sorted order, O(D log D) otherwise); a Laplace normal and a diagonal one,
``Independent(Normal(loc, scale), 1)``, either way; a Laplace normal and a ``MultivariateNormal``, either way, through
dense matrices and so only up to the size that ``covariance_matrix`` allows. A plain ``Normal`` of D entries is a batch
of D scalars to torch, not one distribution on R^D: wrap it in ``Independent``.

All are differentiable in every parameter of both sides. The trace of Sigma1^-1 Sigma0 takes the inverse as three
vectors, a diagonal and an exponential kernel of rank one per side: `precision_kernel`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributions import Independent, MultivariateNormal, Normal, kl_divergence, register_kl

from remix.laplace import blocked
from remix.laplace.normal import LaplaceNormal
from remix.laplace.plane import Axis, Part, call_native, check_alike, over_pairs, plane_form, runs_natively

__all__ = ["PrecisionKernel", "covariance_divergence", "precision_kernel"]


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


# --- of the covariances ---


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


class PrecisionKernel(NamedTuple):
    """Sigma^-1 of a covariance whose sorted order is ``axis.order``. All vectors float64, (D,), original order.

    For i after j in that order, (Sigma^-1)_ij = -right_i left_j exp(-(distance from j to i)) on an axis whose gaps grow
    by -log(d/S) (docs/mathematics.md). ``innovation`` is S, whose logarithms sum to log det Sigma; ``diagonal`` is
    diag(Sigma^-1).
    """

    innovation: Tensor
    diagonal: Tensor
    left: Tensor
    right: Tensor
    axis: Axis


def precision_kernel(diag: Tensor, weight: Tensor, axis: Axis) -> PrecisionKernel:
    """Sigma^-1 for ``diag``, ``weight`` (D,) and the axis of the coordinates, in O(D). Differentiable in all three."""
    sorted_vectors = (v.double()[axis.order] for v in (diag, weight))
    rows: Tensor = _Precision.apply(*sorted_vectors, axis.gap)
    innovation, diagonal, left, right = rows[:4, axis.rank]
    return PrecisionKernel(innovation, diagonal, left, right, Axis(axis.order, rows[4]))


class _Precision(torch.autograd.Function):
    """(diag, weight, gap) sorted -> (5, D): S, diag(Sigma^-1), left, right, gaps of the kernel."""

    @staticmethod
    def forward(ctx: Any, diag: Tensor, weight: Tensor, gap: Tensor) -> Tensor:
        ctx.save_for_backward(diag, weight, gap)
        if not runs_natively(diag):
            return _forward(diag, weight, gap)
        out = diag.new_empty(5, len(diag))
        call_native("remix_precision", diag, weight, gap, out)
        return out

    @staticmethod
    def backward(ctx: Any, bar: Tensor) -> tuple[Tensor, ...]:
        diag, weight, gap = ctx.saved_tensors
        if not runs_natively(diag):
            return _adjoint(diag, weight, gap, bar)
        out = diag.new_empty(3, len(diag))
        call_native("remix_precision_adjoint", diag, weight, gap, bar, out)
        return tuple(out)


def _states(diag: Tensor, weight: Tensor, gap: Tensor) -> dict[str, Tensor]:
    """The factorisation, plus M = 1 - P gam f, by a recurrence without the subtraction; keep = phi^2, fresh = q."""
    gap = torch.cat([gap.new_full((1,), torch.inf), gap[1:]])
    keep, fresh = torch.exp(-2 * gap), -torch.expm1(-2 * gap)
    states = blocked.factorise(diag, weight, torch.exp(-gap), fresh)
    gam, N = states["gam"], states["N"]
    # M_k = gam_{k+1} M_{k+1} + fresh_{k+1} N_{k+1}, M_{D-1} = 1: run downwards, with the 1 fed in at the top.
    start = torch.zeros_like(gam)
    start[-1] = 1
    source = (fresh * N + gam * start).flip(0)
    M = blocked.scan(gam.flip(0), source).flip(0) + start
    return states | {"M": M, "keep": keep, "fresh": fresh}


def _forward(diag: Tensor, weight: Tensor, gap: Tensor) -> Tensor:
    s = _states(diag, weight, gap)
    odds = weight.square() * s["P"] / diag
    step = torch.cat([gap.new_zeros(1), gap[1:] + torch.log1p(odds[:-1])])
    inverse = 1 / s["S"] + s["G"].square() * s["f"]
    return torch.stack([s["S"], inverse, weight * s["P"] / diag, weight / s["S"] * s["M"], step])


def _adjoint(diag: Tensor, weight: Tensor, gap: Tensor, bar: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The adjoint of `_forward`; the native remix_precision_adjoint says the same one coordinate at a time."""
    s = _states(diag, weight, gap)
    d, w, S, P, G, gam, f, N, M = (diag, weight, *(s[name] for name in ("S", "P", "G", "gam", "f", "N", "M")))
    keep, fresh = s["keep"], s["fresh"]
    S_bar, inverse_bar, left_bar, right_bar, step_bar = bar
    # Cotangents of M and f, as they arrive from one coordinate down.
    M_before = blocked.scan(gam, right_bar * w / S)
    f_before = blocked.scan(gam.square() * keep, inverse_bar * G.square() + gam.square() * fresh * M_before)
    N_bar = keep * f_before + fresh * M_before
    keep_bar, fresh_bar = f_before * N, M_before * N
    gam_bar = M_before * M + 2 * N_bar * gam * f
    G_bar = 2 * inverse_bar * G * f
    S_bar = S_bar - (right_bar * w * M + inverse_bar + N_bar * w.square()) / S.square()
    # Cotangent of P as it arrives from one coordinate up; its own part of S_bar is in the factor gam^2.
    odds = blocked.following(step_bar) * gam / d
    S_part = S_bar - (gam_bar * d + G_bar * w * P) / S.square()
    P_part = left_bar * w / d + odds * w.square() + G_bar * w / S + w.square() * S_part
    P_after = blocked.scan((blocked.following(keep) * gam.square()).flip(0), P_part.flip(0)).flip(0)
    gam_bar = gam_bar + P_after * blocked.following(keep) * P
    S_total = S_bar - (gam_bar * d + G_bar * w * P) / S.square()
    w_bar = (right_bar * M + 2 * N_bar * w + G_bar * P) / S + P * (left_bar / d + 2 * w * (odds + S_total))
    d_bar = gam_bar / S + S_total - (left_bar / d + odds * w) * w * P / d
    into = torch.cat([P_after.new_zeros(1), P_after[:-1]])
    keep_bar = keep_bar + into * torch.cat([gam.new_zeros(1), (gam * P)[:-1]])
    gap_bar = 2 * keep * (fresh_bar + into - keep_bar) + step_bar
    gap_bar[0] = 0
    return d_bar, w_bar, gap_bar
