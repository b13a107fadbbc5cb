"""Remove-and-reinsert: take every unit out of the chain in turn and put it back where the likelihood is highest."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from remix.laplace.fit.library import call, library
from remix.laplace.fit.likelihood import Chain, factorise
from remix.laplace.fit.prepare import Standardised

__all__ = ["reinsert"]

_LARGEST_PHI = 0.999


def reinsert(data: Standardised, chain: Chain, visits: Tensor) -> tuple[int, float]:
    """One exact sweep over the units in the order ``visits`` (D,) int64; ``chain`` is changed in place.

    p(x) = p(x without i) p(x_i | rest), and x_i | rest ~ N(r zhat(t), 1 - r^2 c(t)) for a unit with loading r attached at
    location t, with zhat(t) the smoothed state of the rest at t and c(t) its variance: the score of every location is
    exact. A move must gain more than max(1e-4, 1 / samples) nats per row. O(D N) per unit.

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
    rest = Chain(torch.tensor(order), torch.tensor(loading, dtype=torch.float64), torch.tensor(phi, dtype=torch.float64))
    places = _Places(u, rest, u[unit], end)
    present = places.score(position, above, own)
    best = (present, -1, 1.0, 0.0)
    for k in range(size):
        shares = (0.0,) if k == size - 1 else (0.0, 0.25, 0.5, 0.75)
        for share in shares:
            decay = 1.0 if k == size - 1 else phi[k] ** share if k else 1 - 0.4 * share
            if decay >= 1e-3:
                best = min(best, places.best(k, decay, largest), key=lambda place: place[0])
    value, k, decay, new = best
    if k < 0 or present - value < threshold:
        return 0.0
    gap = phi[k] if k < size - 1 else 0.0
    order.insert(k, unit)
    loading.insert(k, new)
    if k == size - 1:
        phi.append(_LARGEST_PHI)
    else:
        phi[k] = min(decay, _LARGEST_PHI)
        phi.insert(k, min(gap / decay, _LARGEST_PHI) if k else 0.0)
    chain.order = torch.tensor(order)
    chain.loading = torch.tensor(loading, dtype=torch.float64)
    chain.phi = torch.tensor(phi, dtype=torch.float64)
    return present - value


class _Places:
    """Scores of every location on a chain for a removed unit with data x (N,)."""

    def __init__(self, u: Tensor, rest: Chain, x: Tensor, end: float) -> None:
        f = factorise(rest.loading, rest.phi)
        size, rows = rest.order.shape[0], x.shape[0]
        data = u[rest.order]
        h, s = torch.zeros(rows, dtype=torch.float64), torch.zeros(rows, dtype=torch.float64)
        states, scores, scaled = [], [torch.zeros_like(x)], []
        for k in range(size):
            states.append(h)
            scaled.append((data[k] - f["r"][k] * h) / f["S"][k])
            decay = f["phi"][k + 1] if k + 1 < size else end
            h = decay * (f["gam"][k] * h + f["G"][k] * data[k])
        states.append(h)
        for k in reversed(range(size)):
            scores.append(f["gam"][k] * s + f["r"][k] * scaled[k])
            s = f["phi"][k] * scores[-1]
        last = size - 1
        known = end**2 * ((1 - f["r"][last] ** 2) * f["C"][last] + f["r"][last] ** 2 * f["P"][last]) / f["S"][last]
        self.states, self.scores, self.x = states, scores[::-1], x
        self.C, self.N = [*f["C"], known], [*f["N"], 0.0]

    def _meet(self, k: int, decay: float) -> tuple[float, float, float, float]:
        known = min(1.0, self.C[k] / decay**2)
        beta = (1 - known) * decay
        z = self.states[k] / decay + beta * self.scores[k]
        rows = self.x.shape[0]
        moments = (float(a @ b) / rows for a, b in ((self.x, self.x), (self.x, z), (z, z)))
        return (*moments, known + beta**2 * self.N[k])  # type: ignore[return-value]

    def score(self, k: int, decay: float, loading: float) -> float:
        """Negative conditional log-likelihood per row before position k, ``decay`` away from it."""
        xx, xz, zz, variance = self._meet(k, decay)
        left = 1 - loading**2 * variance
        return 0.5 * (math.log(left) + (xx - 2 * loading * xz + loading**2 * zz) / left)

    def best(self, k: int, decay: float, largest: float) -> tuple[float, int, float, float]:
        """The best of a few loadings at that place: (score, k, decay, loading)."""
        _, xz, _, variance = self._meet(k, decay)
        if variance <= 1e-12:
            return math.inf, k, decay, 0.0
        full = min(max(xz / variance, -largest), largest)
        return min((self.score(k, decay, part * full), k, decay, part * full) for part in (1.0, 0.9, 0.75))
