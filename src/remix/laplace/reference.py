"""Slow, obvious twins of the fast paths: dense matrices and sequential loops in float64.

Nothing here is tuned; everything fast in this package is tested against it. Symbols: ``d`` = diag, ``w`` = weight,
``a`` = coord, all of shape (D,); rows of ``x`` are (B, D).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from remix.laplace.factor import Sweep

__all__ = ["dense", "factorise", "filter_rows", "kalman", "kernel"]


def kernel(coord: Tensor) -> Tensor:
    """K_ij = exp(-|a_i - a_j|), shape (D, D)."""
    return torch.exp(-(coord[:, None] - coord[None, :]).abs())


def dense(diag: Tensor, weight: Tensor, coord: Tensor) -> Tensor:
    """Sigma = diag(d) + diag(w) K(a) diag(w), shape (D, D)."""
    return torch.diag(diag) + weight[:, None] * kernel(coord) * weight[None, :]


def kalman(diag: Tensor, weight: Tensor, coord: Tensor) -> dict[str, Tensor]:
    """The factorisation, one coordinate at a time (docs/mathematics.md).

    Every returned vector is in sorted order, float64, (D,): ``order`` (sorted position -> coordinate), ``diag``,
    ``weight``, ``phi``, ``q``, ``P`` (prior variance of the state), ``C`` = 1 - P, ``S`` (innovation variance),
    ``G`` (gain), ``gam`` = d/S, ``N`` (backward variance), ``f``.
    """
    order = torch.argsort(coord.double(), stable=True)
    d, w, a = (v.double()[order] for v in (diag, weight, coord))
    gap = torch.cat([a.new_full((1,), math.inf), a.diff()])
    phi, q = torch.exp(-gap), -torch.expm1(-2 * gap)
    sorted_inputs = {"order": order, "diag": d, "weight": w, "phi": phi, "q": q}
    return sorted_inputs | factorise(d, w, phi, q)


def factorise(diag: Tensor, weight: Tensor, phi: Tensor, q: Tensor) -> dict[str, Tensor]:
    """P, C, S, G, gam, N, f of sorted vectors (D,), one position after the other."""
    d, w, step, noise = (v.tolist() for v in (diag, weight, phi, q))
    size = len(d)
    P, C, S, G, gam = ([0.0] * size for _ in range(5))
    N, f = [0.0] * size, [0.0] * size
    P[0] = 1.0
    for k in range(size):
        S[k] = d[k] + w[k] ** 2 * P[k]
        G[k] = w[k] * P[k] / S[k]
        gam[k] = d[k] / S[k]
        if k + 1 < size:
            P[k + 1] = step[k + 1] ** 2 * gam[k] * P[k] + noise[k + 1]
            C[k + 1] = step[k + 1] ** 2 * (d[k] * C[k] + w[k] ** 2 * P[k]) / S[k]
    for k in reversed(range(size)):
        f[k] = step[k + 1] ** 2 * N[k + 1] if k + 1 < size else 0.0
        N[k] = gam[k] ** 2 * f[k] + w[k] ** 2 / S[k]
    names = {"P": P, "C": C, "S": S, "G": G, "gam": gam, "N": N, "f": f}
    return {name: torch.tensor(v, dtype=torch.float64, device=diag.device) for name, v in names.items()}


def filter_rows(
    x: Tensor, loc: Tensor | None, order: Tensor, sweeps: tuple[Sweep, ...], squares: bool, keep: bool
) -> tuple[Tensor | None, Tensor | None]:
    """`remix.laplace.blocked.filter_rows`, one position after the other."""
    rows = (x if loc is None else x - loc)[:, order]
    total = None
    for number, sweep in enumerate(sweeps):
        out, state = torch.empty_like(rows), torch.zeros_like(rows[:, 0])
        for k in reversed(range(rows.shape[1])) if sweep.down else range(rows.shape[1]):
            p, q, c, e = sweep.coef[k]
            out[:, k] = p * rows[:, k] + q * state
            state = c * state + e * rows[:, k]
        rows = out
        if number == 0 and squares:
            total = rows.double().square().sum(1)
    return (torch.empty_like(rows).index_copy_(1, order, rows) if keep else None), total
