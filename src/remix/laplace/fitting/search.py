"""The two searches for a chain: exact reinsertion for moderate D, a greedy path over candidate edges for large D."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch

from remix.laplace.fitting.edges import Edges, all_pairs, frequency_edges, likely_nearest, map_edges, nearest
from remix.laplace.fitting.library import library
from remix.laplace.fitting.likelihood import Chain, ChainData, maximise
from remix.laplace.fitting.path import chain_start, greedy_path, one_factor_start
from remix.laplace.fitting.prepare import Standardised, pseudo_rows
from remix.laplace.fitting.reinsert import reinsert

__all__ = ["Found", "search"]

MODERATE = 1024  # units up to which every pair is an edge and reinsertion is exact
NEIGHBOURS = 12
WITHOUT_KERNELS = 128  # units up to which reinsertion is affordable on the torch path
EXACT = 30_000  # units up to which all pairs are looked at for the nearest


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
    layout: tuple[int, int, int] | None,
    frequencies: bool,
    thorough: bool,
    seed: int,
    progress: Callable[[str], None],
    history: bool = False,
) -> Found:
    """The chain of highest likelihood that the budget finds; deterministic for a ``seed``, whatever the threads."""
    size = data.u.shape[0]
    if data.rows > 1.5 * size:
        data = pseudo_rows(data)
    if size <= MODERATE:
        return _moderate(data, thorough, seed, progress, history)
    return _large(data, layout, frequencies, thorough, seed, progress, history)


def _moderate(data: Standardised, thorough: bool, seed: int, progress: Callable[[str], None], history: bool) -> Found:
    progress("order")
    edges, matrix = all_pairs(data)
    starts = {"greedy path": chain_start(data, greedy_path(edges, data.u.shape[0]))}
    if data.u.shape[0] > 2:
        starts["one factor"] = one_factor_start(matrix)
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
    return min(found, key=lambda f: f.nll)


def _sweeps(size: int, thorough: bool) -> int:
    """Reinsertion sweeps at most. Their cost grows as D^3; without kernels they would take minutes from D = 128 on."""
    if thorough:
        return 20
    if library() is None and size > WITHOUT_KERNELS:
        return 0
    return 8 if size <= 512 else 3


def _refine(
    data: Standardised,
    chain: Chain,
    generator: torch.Generator,
    sweeps: int,
    watch: Callable[[Chain], None] | None,
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
    data: Standardised,
    layout: tuple[int, int, int] | None,
    frequencies: bool,
    thorough: bool,
    seed: int,
    progress: Callable[[str], None],
    history: bool,
) -> Found:
    progress("edges")
    edges = _candidates(data, layout, frequencies, seed)
    progress("order")
    order = greedy_path(edges, data.u.shape[0])
    del edges  # as large as the data where these are few rows
    if (native := library()) is not None:
        native.remix_fit_trim()
    chain = chain_start(data, order)
    progress("likelihood")
    seen = [chain.clone()] if history else []
    steps = 100 if thorough else 15
    value = maximise(ChainData(data, order), chain, steps, watch=seen.append if history else None)
    return Found(chain, value, "greedy path", seen)


def _candidates(data: Standardised, layout: tuple[int, int, int] | None, frequencies: bool, seed: int) -> Edges:
    if layout is None:
        return nearest(data, NEIGHBOURS) if data.u.shape[0] <= EXACT else likely_nearest(data, NEIGHBOURS, seed)
    return frequency_edges(data, layout) if frequencies else map_edges(data, layout)
