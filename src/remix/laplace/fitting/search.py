"""The two searches for a chain: exact reinsertion for moderate D, a greedy path over candidate edges for large D."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from remix.laplace import kernels
from remix.laplace.fitting.likelihood import Chain, ChainData, factorise, maximise
from remix.laplace.fitting.order import (
    FREQUENCY_ROWS,
    STATIONARY_ROWS,
    all_pairs,
    chain_start,
    greedy_path,
    likely_nearest,
    map_edges,
    nearest,
    one_factor_start,
)
from remix.laplace.fitting.rows import Layout
from remix.laplace.fitting.standardise import Standardised, pseudo_rows

__all__ = ["Found", "reinsert", "search"]

MODERATE = 1024  # units up to which every pair is an edge and reinsertion is exact
NEIGHBOURS = 12
WITHOUT_KERNELS = 128  # units up to which reinsertion is affordable on the torch path
EXACT = 30_000  # units up to which all pairs are looked at for the nearest
_LARGEST_PHI = 0.999


@dataclass
class Found:
    """A fitted chain, its mean negative log-likelihood on the data, the ``start`` it grew from, and its history.

    ``history``: the chain at the start and after every step, empty unless it was asked for.
    """

    chain: Chain
    nll: float
    start: str
    history: list[Chain]


def search(
    data: Standardised,
    layout: Layout | None,
    frequencies: bool,
    thorough: bool,
    seed: int,
    progress: Callable[[str], None],
    history: bool = False,
    known: Sequence[Chain] = (),
) -> Found:
    """The chain of highest likelihood that the budget finds; deterministic for a ``seed``, whatever the threads.

    ``known`` chains are further starts, and the result is never worse than one of them.
    """
    size = data.u.shape[0]
    if data.rows > 1.5 * size:
        data = pseudo_rows(data)
    if size <= MODERATE:
        return _moderate(data, thorough, seed, progress, history, known)
    return _large(data, layout, frequencies, thorough, seed, progress, history)


def _moderate(
    data: Standardised, thorough: bool, seed: int, progress: Callable[[str], None], history: bool,
    known: Sequence[Chain],
) -> Found:  # fmt: skip
    progress("order")
    edges, matrix = all_pairs(data)
    starts = {"greedy path": chain_start(data, greedy_path(edges, data.u.shape[0]))}
    if data.u.shape[0] > 2:
        starts["one factor"] = one_factor_start(matrix)
    starts |= {f"known chain {number}": chain.clone() for number, chain in enumerate(known, start=1)}
    progress("likelihood and reinsertion")
    sweeps = _sweeps(data.u.shape[0], thorough)

    def run(item: tuple[int, tuple[str, Chain]]) -> Found:
        number, (name, chain) = item
        generator = torch.Generator().manual_seed(seed + number)
        seen = [chain.clone()] if history else []
        value = _refine(data, chain, generator, sweeps, seen.append if history else None)
        return Found(chain, value, name, seen)

    with ThreadPoolExecutor(max_workers=min(len(starts), torch.get_num_threads())) as pool:
        found = list(pool.map(run, enumerate(starts.items())))
    for number, chain in enumerate(known, start=1):  # as it is: a search begins a little inside of its bounds
        value, _, _ = ChainData(data, chain.order, 1).nll(chain.loading, chain.phi)
        found.append(Found(chain.clone(), value, f"known chain {number}", []))
    return min(found, key=lambda f: f.nll)


def _sweeps(size: int, thorough: bool) -> int:
    """Reinsertion sweeps at most. Their cost grows as D^3; without kernels they would take minutes from D = 128 on."""
    if thorough:
        return 20
    if kernels.native() is None and size > WITHOUT_KERNELS:
        return 0
    return 8 if size <= 512 else 3


def _refine(
    data: Standardised, chain: Chain, generator: torch.Generator, sweeps: int, watch: Callable[[Chain], None] | None
) -> float:
    """Alternate maximum likelihood and reinsertion sweeps, one thread; returns the final mean NLL."""
    size = chain.order.shape[0]

    def polish(steps: int) -> float:
        return maximise(ChainData(data, chain.order, 1), chain, steps, watch=watch)

    value = polish(60)
    for _ in range(sweeps):
        before = value
        moves, _ = reinsert(data, chain, torch.randperm(size, generator=generator))
        value = polish(40)
        if moves <= size / 100 or before - value < 2e-4 * size:
            break
    return polish(150)


def _large(
    data: Standardised, layout: Layout | None, frequencies: bool, thorough: bool, seed: int,
    progress: Callable[[str], None], history: bool,
) -> Found:  # fmt: skip
    progress("edges")
    if layout is not None:
        edges = map_edges(data, layout, FREQUENCY_ROWS if frequencies else STATIONARY_ROWS)
    elif data.u.shape[0] <= EXACT:
        edges = nearest(data, NEIGHBOURS)
    else:
        edges = likely_nearest(data, NEIGHBOURS, seed)
    progress("order")
    order = greedy_path(edges, data.u.shape[0])
    del edges  # as large as the data where these are few rows
    if (library := kernels.native()) is not None:
        library.call("remix_fit_trim")
    chain = chain_start(data, order)
    progress("likelihood")
    seen = [chain.clone()] if history else []
    steps = 100 if thorough else 15
    value = maximise(ChainData(data, order), chain, steps, watch=seen.append if history else None)
    return Found(chain, value, "greedy path", seen)


def reinsert(data: Standardised, chain: Chain, visits: Tensor) -> tuple[int, float]:
    """Take every unit out of the chain in turn and put it back where the likelihood is highest.

    One exact sweep over the units in the order ``visits`` (D,) int64; ``chain`` is changed in place.

    p(x) = p(x without i) p(x_i | rest), and x_i | rest ~ N(r zhat(t), 1 - r^2 c(t)) for a unit with loading r attached
    at location t, with zhat(t) the smoothed state of the rest at t and c(t) its variance: the score of every location
    is exact. A move must gain more than max(1e-4, 1 / samples) nats per row. O(D N) per unit.

    Returns the number of moves and the sum of their gains, nats per row.
    """
    threshold = max(1e-4, 1 / data.samples)
    chain.order = chain.order.contiguous()
    library = kernels.native()
    if library is None:
        return _reinsert(data, chain, visits, threshold)
    gain = torch.zeros(1, dtype=torch.float64)
    moves = library.call(
        "remix_fit_reinsert_", data.u, data.u.shape[1], data.rows, chain.order.shape[0], visits.contiguous(),
        data.largest, threshold, chain.order, chain.loading, chain.phi, gain, dtype=data.u.dtype,
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
