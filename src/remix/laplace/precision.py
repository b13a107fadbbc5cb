"""The inverse of a Laplace covariance as three vectors: a diagonal and an exponential kernel of rank one per side.

For i after j in the sorted order, (Sigma^-1)_ij = -right_i left_j exp(-(distance from j to i)) on an axis whose gaps
grow by -log(d/S) (docs/mathematics.md). Every entry is differentiable in the parameters.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from remix.laplace import blocked
from remix.laplace.plane import Axis, call_native, runs_natively

__all__ = ["PrecisionKernel", "precision_kernel"]


class PrecisionKernel(NamedTuple):
    """Sigma^-1 of a covariance whose sorted order is ``axis.order``. All vectors float64, (D,), original order.

    ``innovation`` is S, whose logarithms sum to log det Sigma; ``diagonal`` is diag(Sigma^-1).
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


def _later(v: Tensor) -> Tensor:
    """Shifted down by one place: what belongs to the next coordinate, 0 after the last."""
    return torch.cat([v[1:], v.new_zeros(1)])


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
    odds = _later(step_bar) * gam / d
    S_part = S_bar - (gam_bar * d + G_bar * w * P) / S.square()
    P_part = left_bar * w / d + odds * w.square() + G_bar * w / S + w.square() * S_part
    P_after = blocked.scan((_later(keep) * gam.square()).flip(0), P_part.flip(0)).flip(0)
    gam_bar = gam_bar + P_after * _later(keep) * P
    S_total = S_bar - (gam_bar * d + G_bar * w * P) / S.square()
    w_bar = (right_bar * M + 2 * N_bar * w + G_bar * P) / S + P * (left_bar / d + 2 * w * (odds + S_total))
    d_bar = gam_bar / S + S_total - (left_bar / d + odds * w) * w * P / d
    into = torch.cat([P_after.new_zeros(1), P_after[:-1]])
    keep_bar = keep_bar + into * torch.cat([gam.new_zeros(1), (gam * P)[:-1]])
    gap_bar = 2 * keep * (fresh_bar + into - keep_bar) + step_bar
    gap_bar[0] = 0
    return d_bar, w_bar, gap_bar
