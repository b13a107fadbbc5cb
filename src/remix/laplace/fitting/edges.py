"""Candidate edges between units and their correlations: what the order of the chain is made of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from remix.laplace.fitting.library import call, library, threads
from remix.laplace.fitting.prepare import Standardised

__all__ = ["Edges", "all_pairs", "correlations", "frequency_edges", "likely_nearest", "map_edges", "nearest"]

STATIONARY_ROWS = 100.0  # weight of the stationary correlation, in rows
FREQUENCY_ROWS = 20.0  # the same between frequencies, where correlations differ more
_MOST_EDGES = 12_000_000
_MOST_LIKELY = 18_000_000


@dataclass
class Edges:
    """``start``, ``stop`` (E,) int32 units, ``strength`` (E,) float32 signed correlation estimates."""

    start: Tensor
    stop: Tensor
    strength: Tensor

    @staticmethod
    def join(parts: list[Edges]) -> Edges:
        """All edges of ``parts``."""
        return Edges(*(torch.cat([getattr(p, name) for p in parts]) for name in ("start", "stop", "strength")))


def correlations(data: Standardised, start: Tensor, stop: Tensor) -> Tensor:
    """mean over rows of u_start u_stop, (E,) float32."""
    start, stop = start.to(torch.int32).contiguous(), stop.to(torch.int32).contiguous()
    out = torch.empty(start.shape[0], dtype=torch.float32)
    if library() is None:
        for first in range(0, out.shape[0], 1 << 16):
            pair = slice(first, first + (1 << 16))
            out[pair] = (data.u[start[pair].long()] * data.u[stop[pair].long()]).sum(1).float() / data.rows
        return out
    u, count = data.u, out.shape[0]
    call("remix_fit_edges_", u.dtype, u, u.shape[1], start, stop, count, 1 / data.rows, out, threads())
    return out


def all_pairs(data: Standardised) -> tuple[Edges, Tensor]:
    """Every pair of units, and the dense correlation matrix (D, D) in the dtype of the data."""
    matrix = data.u @ data.u.T / data.rows
    start, stop = torch.triu_indices(matrix.shape[0], matrix.shape[0], offset=1, dtype=torch.int32)
    return Edges(start, stop, matrix[start.long(), stop.long()].float()), matrix


def map_edges(data: Standardised, layout: tuple[int, int, int], stationary: float = STATIONARY_ROWS) -> Edges:
    """Same pixel, all (or the most correlated) channel pairs; same channel, the eight neighbours.

    Each correlation is drawn towards its mean over positions, which counts as ``stationary`` rows.
    """
    channels, height, width = layout
    unit = torch.arange(channels * height * width, dtype=torch.int32).reshape(layout)
    parts = []
    if channels > 1:
        first, second = _channel_pairs(data, layout)
        pixels = unit.reshape(channels, -1)
        # pixel by pixel, so that the units of one pixel stay in the cache
        start, stop = (pixels[c].T.contiguous() for c in (first, second))
        parts.append(_shrunk(data, start, stop, 0, stationary))
    for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
        near = unit[:, : height - down, max(0, -right) : width - max(0, right)]
        far = unit[:, down:, max(0, right) : width + min(0, right)]
        if near.numel():
            parts.append(_shrunk(data, near.reshape(channels, -1), far.reshape(channels, -1), 1, stationary))
    return Edges.join(parts)


def _shrunk(data: Standardised, start: Tensor, stop: Tensor, positions: int, stationary: float) -> Edges:
    strength = correlations(data, start.reshape(-1), stop.reshape(-1)).reshape(start.shape)
    if stationary:
        mean = strength.mean(positions, keepdim=True)
        strength = (data.samples * strength + stationary * mean) / (data.samples + stationary)
    return Edges(start.reshape(-1), stop.reshape(-1), strength.reshape(-1))


def _channel_pairs(data: Standardised, layout: tuple[int, int, int]) -> tuple[Tensor, Tensor]:
    """Channel pairs worth an edge at every pixel: all, or the strongest on average where all would be too many."""
    channels, pixels = layout[0], layout[1] * layout[2]
    if channels * (channels - 1) // 2 * pixels <= _MOST_EDGES:
        first, second = torch.triu_indices(channels, channels, offset=1)
        return first, second
    maps = data.u.reshape(channels, -1)
    matrix = (maps @ maps.T).abs().fill_diagonal_(0)
    keep = max(8, min(channels - 1, 2 * _MOST_EDGES // (channels * pixels)))
    best = matrix.topk(keep, dim=1).indices
    mask = torch.zeros_like(matrix, dtype=torch.bool).scatter_(1, best, True)
    first, second = (mask | mask.T).triu(1).nonzero(as_tuple=True)
    return first, second


def frequency_edges(data: Standardised, layout: tuple[int, int, int]) -> Edges:
    """For the DCT of a map: same frequency, channel pairs; same channel, neighbouring frequencies."""
    return map_edges(data, layout, stationary=FREQUENCY_ROWS)


def nearest(data: Standardised, count: int) -> Edges:
    """Each unit's ``count`` most correlated units, by blockwise matrix products; O(D^2 N)."""
    size = data.u.shape[0]
    count = min(count, size - 1)
    starts, stops = [], []
    block = max(64, min(1024, (1 << 25) // size))
    buffer = torch.empty(block, size, dtype=data.u.dtype)
    for first in range(0, size, block):
        rows = data.u[first : first + block]
        products = torch.matmul(rows, data.u.T, out=buffer[: rows.shape[0]])
        index = torch.arange(rows.shape[0])
        products[index, index + first] = 0.0
        best = _largest(products, count)
        starts.append((index + first).to(torch.int32).repeat_interleave(count))
        stops.append(best.reshape(-1).to(torch.int32))
    start, stop = torch.cat(starts), torch.cat(stops)
    return Edges(start, stop, correlations(data, start, stop))


def likely_nearest(data: Standardised, count: int, seed: int, trees: int = 6, leaf: int = 256) -> Edges:
    """Strongly correlated pairs without looking at all, by random projection trees; O(trees D (leaf + log D) N).

    Every tree halves the units again and again at the median of |<u, direction>| for a random direction (the magnitude:
    units of opposite sign belong together), and compares those that end in one leaf. From 250,000 units on fewer than
    ``count`` of each leaf are taken (but three), so that the edges do not outgrow the data.
    """
    size = data.u.shape[0]
    count = min(count, max(3, _MOST_LIKELY // (trees * size)))
    generator = torch.Generator().manual_seed(seed)
    leaves = 2 ** max(0, round(math.log2(size / leaf)))
    parts = []
    for _ in range(trees):
        order = torch.randperm(size, generator=generator)
        groups = 1
        while groups < leaves:
            direction = torch.randn(data.u.shape[1], generator=generator, dtype=data.u.dtype)
            height = (data.u @ direction).abs()[order]
            group = torch.arange(size) * groups // size
            ranked = torch.argsort(height, stable=True)
            order = order[ranked[torch.argsort(group[ranked], stable=True)]]
            groups *= 2
        bounds = [size * g // groups for g in range(groups + 1)]
        for first, last in pairwise(bounds):
            units = order[first:last]
            near = min(count, last - first - 1)
            if near > 0:
                rows = data.u[units]
                best = _largest((rows @ rows.T).fill_diagonal_(0), near)
                both = (units.repeat_interleave(near), units[best].reshape(-1))
                parts.append(tuple(ends.to(torch.int32) for ends in both))
    start, stop = (torch.cat(ends) for ends in zip(*parts, strict=True))
    return Edges(start, stop, correlations(data, start, stop))


def _largest(products: Tensor, count: int) -> Tensor:
    """Columns of the ``count`` largest magnitudes of each row, (rows, count) int64, in no particular order."""
    if library() is None:
        return products.abs().topk(count, dim=1, sorted=False).indices
    best = torch.empty(products.shape[0], count, dtype=torch.int64)
    call("remix_fit_largest_", products.dtype, products, *products.shape, count, best, threads())
    return best
