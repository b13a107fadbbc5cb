"""Closed-form gradients of every operation in the parameters (diag, weight, coord).

Sums over rows are gathered per sorted position; the recursion of the factorisation is then run backwards once
(`factor_adjoint`). Everything is float64 and (D,) unless said otherwise; results are in the order of the coordinates.
"""

from __future__ import annotations

import torch
from torch import Tensor

from remix.laplace import kernels
from remix.laplace.blocked import following, scan
from remix.laplace.factor import UNWHITEN, UNWHITEN_T, WHITEN, WHITEN_T, Factor, Sweep, states, sweeps_of

__all__ = ["filter_adjoint", "inverse_diagonal_adjoint", "logdet_adjoint", "nll_adjoint"]

Gradients = tuple[Tensor, Tensor, Tensor]


def _in_order(factor: Factor, diag: Tensor, weight: Tensor, gap: Tensor) -> Gradients:
    """Sorted gradients in (d, w, gap) -> gradients in (diag, weight, coord). The gap before the first is not one."""
    gap = gap.clone()
    gap[0] = 0
    coord = gap - following(gap)
    return factor.unsort(diag), factor.unsort(weight), factor.unsort(coord)


def _shift_up(v: Tensor) -> Tensor:
    """v_k -> v_{k-1}, 0 at the start."""
    return torch.cat([v.new_zeros(1), v[:-1]])


def _column_sum(product: Tensor) -> Tensor:
    return product.sum(0, dtype=torch.float64)


def factor_adjoint(factor: Factor, log_S_bar: Tensor, G_bar: Tensor, w_bar: Tensor, gap_bar: Tensor) -> Gradients:
    """Pulls sorted cotangents of log S, G and direct ones of weight and gap back to the parameters.

    Of log S: the cotangent of S itself may lie beyond the range of float64 where the gradients do not.

    The prior variance P obeys P_{k+1} = 1 - phi_{k+1}^2 (1 - M_k), M = d P / S, with dM/dP = gam^2, dM/dd = G^2,
    dM/dw = -2 gam P G; its cotangent runs downwards.
    """
    w, phi, P, C, S, G, gam = (getattr(factor, name) for name in ("weight", "phi", "P", "C", "S", "G", "gam"))
    phi2 = following(phi.square())
    source = log_S_bar * (w.square() / S) + G_bar * w * gam / S
    # P_bar_k = source_k + phi_{k+1}^2 gam_k^2 P_bar_{k+1}: an affine scan from the top, where `carried` arrives.
    carried = scan((phi2 * gam.square()).flip(0), source.flip(0)).flip(0)
    P_bar = source + phi2 * gam.square() * carried
    from_next = phi2 * carried
    diag_bar = (log_S_bar - G_bar * G) / S + from_next * G.square()
    weight_bar = w_bar + 2 * log_S_bar * G + G_bar * P / S * (1 - 2 * w * G) - 2 * from_next * gam * P * G
    return _in_order(factor, diag_bar, weight_bar, gap_bar + 2 * C * P_bar)


def logdet_adjoint(factor: Factor) -> Gradients:
    """Gradients of log det Sigma."""
    P, C, S, G, gam, N, f = (getattr(factor, name) for name in ("P", "C", "S", "G", "gam", "N", "f"))
    return _in_order(factor, 1 / S + G.square() * f, 2 * G * (1 - P * gam * f), 2 * C * N)


def inverse_diagonal_adjoint(factor: Factor, cotangent: Tensor) -> Gradients:
    """Pulls a cotangent (D,) of diag(Sigma^-1) = 1/S + G^2 f back to the parameters.

    N_k = gam_k^2 f_k + w_k^2/S_k and f_k = phi_{k+1}^2 N_{k+1} run downwards, so their cotangents run upwards.
    """
    w, phi, S, G, gam, f = (getattr(factor, name) for name in ("weight", "phi", "S", "G", "gam", "f"))
    y_bar = cotangent.double()[factor.order]
    phi2 = following(phi.square())
    N_bar = scan(phi2 * gam.square(), phi2 * y_bar * G.square())
    f_bar = y_bar * G.square() + gam.square() * N_bar
    gam_bar = 2 * gam * f * N_bar
    log_S_bar = -y_bar / S - N_bar * (w.square() / S) - gam_bar * gam
    G_bar = 2 * y_bar * G * f
    w_bar = 2 * N_bar * w / S
    gap_bar = _shift_up(-2 * f_bar * f)
    diag_bar, weight_bar, coord_bar = factor_adjoint(factor, log_S_bar, G_bar, w_bar, gap_bar)
    return diag_bar + factor.unsort(gam_bar / S), weight_bar, coord_bar


class _Rows:
    """Row operations of one factor, in the order of the coordinates."""

    def __init__(self, factor: Factor, dtype: torch.dtype):
        self.factor, self.table = factor, kernels.sweep_table(factor, dtype)

    def run(self, x: Tensor, *sweeps: Sweep) -> Tensor:
        out = kernels.filter_rows(x, None, self.factor.order, self.factor.rank, sweeps)[0]
        assert out is not None
        return out

    def apply(self, x: Tensor, *which: int) -> Tensor:
        return self.run(x, *sweeps_of(self.table, *which))

    def arriving(self, x: Tensor, which: int) -> Tensor:
        """The state that arrives at each position in a sweep."""
        return self.run(x, states(sweeps_of(self.table, which)[0]))

    def vector(self, name: str) -> Tensor:
        """A vector of the factor, per coordinate and in the dtype of the rows."""
        return self.factor.unsort(getattr(self.factor, name)).to(self.table.dtype)

    def sorted(self, per_coordinate: Tensor) -> Tensor:
        return per_coordinate[self.factor.order]


def nll_adjoint(
    x: Tensor, loc: Tensor, factor: Factor, row_weight: Tensor, in_rows: bool
) -> tuple[Tensor | None, Tensor]:
    """Gradients of sum_b t_b NLL_b for row weights t (B,): in x (B, D) if ``in_rows``, and in diag, weight, coord, loc.

    The latter as (4, D) float64.
    """
    library = kernels.native() if x.device.type == "cpu" else None
    if library is not None:
        return library.gradients(x, loc, factor.rank, factor.vectors, row_weight.to(x.dtype), in_rows)
    in_x, sums = _gradient_sums(x - loc, factor, row_weight)
    total = row_weight.sum(dtype=torch.float64)
    P, C, S, G, gam, N, f = (getattr(factor, name) for name in ("P", "C", "S", "G", "gam", "N", "f"))
    diag = (total * (1 / S + G.square() * f) - sums[0]) / 2
    weight = total * G * (1 - P * gam * f) - sums[1]
    parameters = _in_order(factor, diag, weight, total * C * N + sums[2])
    return in_x, torch.stack([*parameters, -_column_sum(in_x)])


def _gradient_sums(centred: Tensor, factor: Factor, row_weight: Tensor) -> tuple[Tensor, Tensor]:
    """t_b g_b (B, D) with g = Sigma^-1 x, and the sorted sums over rows (3, D) of t g^2, t g zhat and t rho Lw.

    zhat = h + P rho is the smoothed state, Lw = h - C rho (docs/mathematics.md).
    """
    rows = _Rows(factor, centred.dtype)
    g, smoothed, rho, passed = _smooth(rows, centred)
    weighted = row_weight.unsqueeze(-1) * g
    products = (weighted * g, weighted * smoothed, row_weight.unsqueeze(-1) * rho * passed)
    return weighted, torch.stack([rows.sorted(_column_sum(product)) for product in products])


def _smooth(rows: _Rows, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """g = Sigma^-1 x, zhat = K w g, rho and Lw, all (B, D): zhat without the cancellation of the sum."""
    h = rows.arriving(x, WHITEN)
    z = rows.apply(x, WHITEN)
    g = rows.apply(z, WHITEN_T)
    s = rows.arriving(z, WHITEN_T)
    rho = rows.vector("gam") * s + rows.vector("weight") * z * rows.vector("S").rsqrt()
    return g, h + rows.vector("P") * rho, rho, h - rows.vector("C") * rho


def filter_adjoint(x: Tensor, cotangent: Tensor, factor: Factor, mode: str) -> Gradients:
    """Parameter gradients of <cotangent, operation(x)>, both (B, D); see `factor.SWEEPS` for the modes."""
    if mode.endswith("_t"):  # <c, A' x> = <x, A c>
        return filter_adjoint(cotangent, x, factor, mode.removesuffix("_t"))
    reverse = {
        "matvec": _kernel_adjoint, "solve": _solve_adjoint, "whiten": _whiten_adjoint, "unwhiten": _unwhiten_adjoint
    }[mode]  # fmt: skip
    return reverse(_Rows(factor, x.dtype), x, cotangent)


def _kernel_adjoint(rows: _Rows, x: Tensor, cotangent: Tensor) -> Gradients:
    """<c, Sigma x>: one-sided kernel sums of w x and w c give every gradient."""
    factor = rows.factor
    phi = factor.phi.to(x.dtype)
    zero, one, after = torch.zeros_like(phi), torch.ones_like(phi), following(phi)
    below = Sweep(torch.stack([zero, one, after, after], -1), False)
    above = Sweep(torch.stack([zero, one, phi, phi], -1), True)
    w = rows.vector("weight")
    wx, wc = w * x, w * cotangent
    lower_x, upper_x = rows.run(wx, below), rows.run(wx, above)
    lower_c, upper_c = rows.run(wc, below), rows.run(wc, above)
    diag = _column_sum(cotangent * x)
    weight = _column_sum(cotangent * (lower_x + wx + upper_x) + x * (lower_c + wc + upper_c))
    coord = _column_sum(wc * (upper_x - lower_x) + wx * (upper_c - lower_c))
    return diag, weight, coord


def _solve_adjoint(rows: _Rows, x: Tensor, cotangent: Tensor) -> Gradients:
    """<c, Sigma^-1 x>: the bilinear form of the quadratic one whose sums `_gradient_sums` gives."""
    g_x, smoothed_x, rho_x, passed_x = _smooth(rows, x)
    g_c, smoothed_c, rho_c, passed_c = _smooth(rows, cotangent)
    products = (-g_x * g_c, -g_x * smoothed_c - g_c * smoothed_x, rho_x * passed_c + rho_c * passed_x)
    return _in_order(rows.factor, *(rows.sorted(_column_sum(product)) for product in products))


def _whiten_adjoint(rows: _Rows, x: Tensor, cotangent: Tensor) -> Gradients:
    """<c, L^-1 x>, by the reverse of v = x - w h, z = v/sqrt(S), h' = phi'(h + G v)."""
    h = rows.arriving(x, WHITEN)
    z = rows.apply(x, WHITEN)
    t = -rows.arriving(cotangent, WHITEN_T)
    v_bar = rows.apply(cotangent, WHITEN_T)
    v = z * rows.vector("S").sqrt()
    log_S_bar = -rows.sorted(_column_sum(cotangent * z)) / 2
    w_bar = -rows.sorted(_column_sum(v_bar * h))
    return _close(rows, log_S_bar, w_bar, t, h, v)


def _unwhiten_adjoint(rows: _Rows, x: Tensor, cotangent: Tensor) -> Gradients:
    """<c, L x>, by the reverse of v = sqrt(S) x, y = v + w h, h' = phi'(h + G v)."""
    h = rows.arriving(x, UNWHITEN)
    t = rows.arriving(cotangent, UNWHITEN_T)
    v_bar = cotangent + rows.vector("G") * t
    v = x * rows.vector("S").sqrt()
    log_S_bar = rows.sorted(_column_sum(v_bar * v)) / 2
    w_bar = rows.sorted(_column_sum(cotangent * h))
    return _close(rows, log_S_bar, w_bar, t, h, v)


def _close(rows: _Rows, log_S_bar: Tensor, w_bar: Tensor, t: Tensor, h: Tensor, v: Tensor) -> Gradients:
    """Both reverses end alike: t_k = phi_{k+1} hbar_{k+1} multiplies h + G v in the gap and v in the gain."""
    G_bar = rows.sorted(_column_sum(t * v))
    gap_bar = _shift_up(-rows.sorted(_column_sum(t * (h + rows.vector("G") * v))))
    return factor_adjoint(rows.factor, log_S_bar, G_bar, w_bar, gap_bar)
