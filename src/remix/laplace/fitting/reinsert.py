"""Remove-and-reinsert: take every unit out of the chain in turn and put it back where the likelihood is highest."""

from __future__ import annotations

import torch
from torch import Tensor

from remix.laplace.fitting.library import call, library
from remix.laplace.fitting.likelihood import Chain, factorise
from remix.laplace.fitting.prepare import Standardised

__all__ = ["reinsert"]

_LARGEST_PHI = 0.999


def reinsert(data: Standardised, chain: Chain, visits: Tensor) -> tuple[int, float]:
    """One exact sweep over the units in the order ``visits`` (D,) int64; ``chain`` is changed in place.

    p(x) = p(x without i) p(x_i | rest), and x_i | rest ~ N(r zhat(t), 1 - r^2 c(t)) for a unit with loading r attached
    at location t, with zhat(t) the smoothed state of the rest at t and c(t) its variance: the score of every location
    is exact. A move must gain more than max(1e-4, 1 / samples) nats per row. O(D N) per unit.

    Returns the number of moves and the sum of their gains, nats per row.
    """
    threshold = max(1e-4, 1 / data.samples)
    chain.order = chain.order.contiguous()
    if library() is None:
        return _reinsert(data, chain, visits, threshold)
    gain = torch.zeros(1, dtype=torch.float64)
    moves = call(
        "remix_fit_reinsert_", data.u.dtype, data.u, data.u.shape[1], data.rows, chain.order.shape[0],
        visits.contiguous(), data.largest, threshold, chain.order, chain.loading, chain.phi, gain,
    )  # fmt: skip
    return int(moves), float(gain)


def _reinsert(data: Standardised, chain: Chain, visits: Tensor, threshold: float) -> tuple[int, float]:
    moves, total = 0, 0.0
    if chain.order.shape[0] < 3:
        return moves, total
    u = data.u[:, : data.rows].double()
    for unit in visits.tolist():
        position = int((chain.order == unit).nonzero())
        gain = _visit(u, chain, position, float(data.largest[unit]), threshold)
        moves, total = moves + (gain > 0), total + gain
    return moves, total


def _visit(u: Tensor, chain: Chain, position: int, largest: float, threshold: float) -> float:
    """Twin of the native visit: reinsert one unit, return what it gained (0 where it stayed)."""
    order, loading, phi = chain.order.tolist(), chain.loading.tolist(), chain.phi.tolist()
    size = len(order)
    unit, own, below = order.pop(position), loading.pop(position), phi.pop(position)
    above = phi[position] if position < size - 1 else 1.0
    if position < size - 1:
        phi[position] *= below
    phi[0] = 0.0
    end = below if position == size - 1 else 1.0
    rest = _chain(order, loading, phi)
    places = _Places(u, rest, u[unit], end)
    here = torch.tensor([above, own], dtype=torch.float64)
    present = float(places.score(torch.tensor(position), *here))
    value, k, decay, new = places.best(rest.phi, largest)
    if present - value < threshold:
        return 0.0
    gap = phi[k] if k < size - 1 else 0.0
    order.insert(k, unit)
    loading.insert(k, new)
    if k == size - 1:
        phi.append(_LARGEST_PHI)
    else:
        phi[k] = min(decay, _LARGEST_PHI)
        phi.insert(k, min(gap / decay, _LARGEST_PHI) if k else 0.0)
    moved = _chain(order, loading, phi)
    chain.order, chain.loading, chain.phi = moved.order, moved.loading, moved.phi
    return present - value


def _chain(order: list[int], loading: list[float], phi: list[float]) -> Chain:
    return Chain(
        torch.tensor(order), torch.tensor(loading, dtype=torch.float64), torch.tensor(phi, dtype=torch.float64)
    )


class _Places:
    """Scores of every location on a chain for a removed unit with data x (N,)."""

    def __init__(self, u: Tensor, rest: Chain, x: Tensor, end: float) -> None:
        f = factorise(rest.loading, rest.phi)
        size, rows = rest.order.shape[0], x.shape[0]
        data = u[rest.order]
        state, score = torch.zeros(size + 1, rows, dtype=x.dtype), torch.zeros(size + 1, rows, dtype=x.dtype)
        for k in range(size):
            decay = f["phi"][k + 1] if k + 1 < size else end
            state[k + 1] = decay * (f["gam"][k] * state[k] + f["G"][k] * data[k])
        carried = torch.zeros_like(x)
        for k in reversed(range(size)):
            score[k] = f["gam"][k] * carried + f["r"][k] / f["S"][k] * (data[k] - f["r"][k] * state[k])
            carried = f["phi"][k] * score[k]
        pairs = ((x, state), (x, score), (state, state), (state, score), (score, score))
        self.sums = torch.stack([(a * b).mean(-1) for a, b in pairs])
        self.square = float(x @ x) / rows
        last = size - 1
        known = end**2 * ((1 - f["r"][last] ** 2) * f["C"][last] + f["r"][last] ** 2 * f["P"][last]) / f["S"][last]
        self.C, self.N = (torch.tensor(v, dtype=x.dtype) for v in ([*f["C"], known], [*f["N"], 0.0]))

    def _meet(self, k: Tensor, decay: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """<x z>, <z z> and Var z of the smoothed state z, ``decay`` away from position k (below it)."""
        known = (self.C[k] / decay**2).clamp_max(1)
        alpha, beta = 1 / decay, (1 - known) * decay
        xh, xr, hh, hr, rr = self.sums[:, k]
        moment = alpha**2 * hh + 2 * alpha * beta * hr + beta**2 * rr
        return alpha * xh + beta * xr, moment, known + beta**2 * self.N[k]

    def score(self, k: Tensor, decay: Tensor, loading: Tensor) -> Tensor:
        """Negative conditional log-likelihood per row of the unit at that place with that loading."""
        xz, zz, variance = self._meet(k, decay)
        left = 1 - loading**2 * variance
        return 0.5 * (left.log() + (self.square - 2 * loading * xz + loading**2 * zz) / left)

    def best(self, phi: Tensor, largest: float) -> tuple[float, int, float, float]:
        """(score, k, decay, loading) of the best place: four locations per gap, three loadings each."""
        share = torch.tensor([0.0, 0.25, 0.5, 0.75], dtype=phi.dtype)
        decay = torch.cat([phi[:, None] ** share, torch.tensor([[1.0, 0, 0, 0]], dtype=phi.dtype)])  # past the end: one
        decay[0] = 1 - 0.4 * share
        k = torch.arange(decay.shape[0])[:, None].expand_as(decay)
        k, decay = k[decay >= 1e-3], decay[decay >= 1e-3]
        xz, _, variance = self._meet(k, decay)
        full = (xz / variance).clamp(-largest, largest)
        loading = full[:, None] * torch.tensor([1.0, 0.9, 0.75], dtype=phi.dtype)
        score = self.score(k[:, None], decay[:, None], loading).masked_fill(~(variance > 1e-12)[:, None], torch.inf)
        place, part = divmod(int(score.argmin()), 3)
        return float(score[place, part]), int(k[place]), float(decay[place]), float(loading[place, part])
