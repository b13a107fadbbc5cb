"""The torch path: the recurrences as blocked scans, for any device and dtype and without a compiler.

The sorted positions are laid out as an (L, n) grid of n blocks of length L, about sqrt(D) each. A sweep takes L
vectorised steps over all blocks to find what each block does to a state that enters it with 0, a short scan over the
blocks (the same function again), and L more steps with the right states.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from remix.laplace.factor import Sweep

__all__ = ["factorise", "filter_rows", "following", "scan"]

SMALL = 32  # below this, blocks do not pay


def following(v: Tensor) -> Tensor:
    """v_k -> v_{k+1}, 0 at the end: (D,)."""
    return torch.cat([v[1:], v.new_zeros(1)])


def _grid(size: int) -> tuple[int, int]:
    """Block length L and number of blocks n with L n >= size."""
    length = max(1, math.isqrt(size))
    return length, -(-size // length)


def _to_grid(v: Tensor, length: int, blocks: int) -> Tensor:
    """(..., D) -> (..., L, n), padded with zeros at the end; column j is block j."""
    padded = torch.nn.functional.pad(v, (0, length * blocks - v.shape[-1]))
    return padded.unflatten(-1, (blocks, length)).transpose(-1, -2).contiguous()


def _from_grid(grid: Tensor, size: int) -> Tensor:
    return grid.transpose(-1, -2).flatten(-2)[..., :size]


def scan(c: Tensor, u: Tensor) -> Tensor:
    """States of ``state <- c_k state + u_k`` as they arrive: out_0 = 0, out_{k+1} = c_k out_k + u_k.

    c: (D,); u: (..., D). Returns (..., D).
    """
    size = c.shape[0]
    if size <= SMALL:
        out = torch.zeros_like(u)
        for k in range(size - 1):
            torch.addcmul(u[..., k], c[k], out[..., k], out=out[..., k + 1])
        return out
    length, blocks = _grid(size)
    grid = _to_grid(u, length, blocks)
    decay = _to_grid(c, length, blocks)
    zero, one = torch.zeros_like(decay), torch.ones_like(decay)
    _sweep_grid(grid.view(-1, length, blocks), (zero, one, decay, one), down=False)
    return _from_grid(grid, size)


def _sweep_grid(grid: Tensor, coef: tuple[Tensor, ...], down: bool) -> None:
    """One filter (p, q, c, e), each (L, n), over the grid (B, L, n), in place."""
    p, q, c, e = coef
    steps = range(grid.shape[1])[:: -1 if down else 1]
    end = torch.zeros_like(grid[:, 0])
    for k in steps:
        end = torch.addcmul(e[k] * grid[:, k], c[k], end)
    through = c.prod(0)
    state = scan(through.flip(0), end.flip(1)).flip(1) if down else scan(through, end)
    for k in steps:
        line = grid[:, k]
        state_after = torch.addcmul(e[k] * line, c[k], state)
        line.mul_(p[k]).addcmul_(q[k], state)
        state = state_after


def filter_rows(
    x: Tensor, loc: Tensor | None, order: Tensor, sweeps: tuple[Sweep, ...], squares: bool, keep: bool
) -> tuple[Tensor | None, Tensor | None]:
    """Applies the sweeps to rows x (B, D), minus loc (D,). Returns (rows or None, sums of squares or None).

    ``squares``: the float64 sum of squares of each row after the first sweep, (B,). ``keep``: return the rows.
    """
    size = x.shape[-1]
    length, blocks = _grid(size)
    pad = length * blocks - size
    # One gather both sorts and lays out: index (l, j) of the grid is sorted position j L + l.
    position = torch.arange(blocks * length, device=x.device).view(blocks, length).t().reshape(-1)
    place = torch.nn.functional.pad(order, (0, pad))[position]
    grid = x.index_select(-1, place).view(-1, length, blocks)
    if loc is not None:
        grid -= loc[place].view(length, blocks)
    total: Tensor | None = None
    for number, sweep in enumerate(sweeps):
        # Coefficients of 0 beyond the end: nothing enters there from above, nothing leaves.
        coef = torch.nn.functional.pad(sweep.coef, (0, 0, 0, pad)).view(blocks, length, 4).permute(2, 1, 0).contiguous()
        _sweep_grid(grid, tuple(coef), sweep.down)
        if number == 0 and squares:
            total = torch.linalg.vector_norm(grid, dim=(1, 2), dtype=torch.float64).square()
    if not keep:
        return None, total
    valid = position < size
    rank = torch.empty_like(order)
    rank[place[valid]] = valid.nonzero().squeeze(1)
    return grid.flatten(1).index_select(-1, rank), total


def factorise(diag: Tensor, weight: Tensor, phi: Tensor, q: Tensor) -> dict[str, Tensor]:
    """The factorisation of sorted float64 vectors (D,): P, C, S, G, gam, N, f (see `remix.laplace.factor`).

    (P, C) up to scale is a product of non-negative 2 x 2 matrices, so block products keep every digit.
    """
    size = diag.shape[0]
    length, blocks = _grid(size)
    w2 = weight.square()
    # Step k takes (P_k, C_k) to (P_{k+1}, C_{k+1}); the last one is never used.
    phi2, noise = following(phi.square()), following(q)
    # Only the ratio of d and w^2 matters: in units of their sum, to a power of two, no product leaves the range.
    unit = torch.exp2(-torch.frexp(diag + w2).exponent.double().clamp(-1000, 1000))
    d, v = diag * unit, w2 * unit
    entries = (phi2 * d + noise * (d + v), noise * d, phi2 * v, phi2 * d)
    m = torch.stack([_to_grid(v, length, blocks) for v in entries])
    start = _block_starts(m, blocks)
    P, C = (torch.empty(length, blocks, dtype=diag.dtype, device=diag.device) for _ in range(2))
    P[0], C[0] = start
    for k in range(length - 1):
        p = m[0, k] * P[k] + m[1, k] * C[k]
        c = m[2, k] * P[k] + m[3, k] * C[k]
        total = p + c
        P[k + 1], C[k + 1] = p / total, c / total
    P, C = _from_grid(P, size), _from_grid(C, size)
    S = diag + w2 * P
    G = weight * P / S
    gam = diag / S
    backward = (gam.square() * phi2).flip(0), (w2 / S).flip(0)
    # N_k = (gam_k phi_{k+1})^2 N_{k+1} + w_k^2 / S_k, so the state arriving at k, times phi_{k+1}^2, is f_k.
    f = phi2 * scan(*backward).flip(0)
    N = gam.square() * f + w2 / S
    return {"P": P, "C": C, "S": S, "G": G, "gam": gam, "N": N, "f": f}


def _block_starts(m: Tensor, blocks: int) -> Tensor:
    """(P, C) at the first position of every block, (2, n), from the step matrices m (4, L, n)."""
    a, b, c, d = (torch.full_like(m[0, 0], value) for value in (1.0, 0.0, 0.0, 1.0))
    for k in range(m.shape[1]):
        a, b, c, d = (
            m[0, k] * a + m[1, k] * c,
            m[0, k] * b + m[1, k] * d,
            m[2, k] * a + m[3, k] * c,
            m[2, k] * b + m[3, k] * d,
        )
        scale = torch.maximum(torch.maximum(a, b), torch.maximum(c, d)).clamp_min(torch.finfo(a.dtype).tiny)
        a, b, c, d = a / scale, b / scale, c / scale, d / scale
    state, starts = (1.0, 0.0), []
    for am, bm, cm, dm in torch.stack([a, b, c, d], 1).tolist():
        starts.append(state)
        p, q = am * state[0] + bm * state[1], cm * state[0] + dm * state[1]
        state = (p / (p + q), q / (p + q)) if p + q > 0 else (1.0, 0.0)
    return torch.tensor(starts, dtype=m.dtype, device=m.device).t()
