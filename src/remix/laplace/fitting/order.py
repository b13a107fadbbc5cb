"""The order of the units on the chain: candidate edges and their correlations, the path over them, a first guess."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from remix.laplace import kernels
from remix.laplace.fitting.likelihood import Chain
from remix.laplace.fitting.rows import Layout
from remix.laplace.fitting.standardise import Standardised

__all__ = [
    "FREQUENCY_ROWS", "STATIONARY_ROWS", "Edges", "all_pairs", "chain_start", "correlations", "greedy_path",
    "likely_nearest", "map_edges", "nearest", "one_factor_start",
]  # fmt: skip

STATIONARY_ROWS = 100.0  # weight of the stationary correlation, in rows
FREQUENCY_ROWS = 20.0  # the same between frequencies, where correlations differ more
_MOST_EDGES = 12_000_000
_MOST_LIKELY = 18_000_000


class Edges(NamedTuple):
    """``start``, ``stop`` (E,) int32 units, ``strength`` (E,) float32 signed correlation estimates."""

    start: Tensor
    stop: Tensor
    strength: Tensor


def correlations(data: Standardised, start: Tensor, stop: Tensor) -> Tensor:
    """mean over rows of u_start u_stop, (E,) float32."""
    start, stop = start.to(torch.int32).contiguous(), stop.to(torch.int32).contiguous()
    out = torch.empty(start.shape[0], dtype=torch.float32)
    library = kernels.native()
    if library is None:
        for first in range(0, out.shape[0], 1 << 16):
            pair = slice(first, first + (1 << 16))
            out[pair] = (data.u[start[pair].long()] * data.u[stop[pair].long()]).sum(1).float() / data.rows
        return out
    arguments = (data.u, data.u.shape[1], start, stop, out.shape[0], 1 / data.rows, out, kernels.threads())
    library.call("remix_fit_edges_", *arguments, dtype=data.u.dtype)
    return out


def all_pairs(data: Standardised) -> tuple[Edges, Tensor]:
    """Every pair of units, and the dense correlation matrix (D, D) in the dtype of the data."""
    matrix = data.u @ data.u.T / data.rows
    start, stop = torch.triu_indices(matrix.shape[0], matrix.shape[0], offset=1, dtype=torch.int32)
    return Edges(start, stop, matrix[start.long(), stop.long()].float()), matrix


def map_edges(data: Standardised, layout: Layout, stationary: float = STATIONARY_ROWS) -> Edges:
    """Same pixel, all (or the most correlated) channel pairs; same channel, the eight neighbours.

    For the DCT of a map the pixels are frequencies. Each correlation is drawn towards its mean over positions, which
    counts as ``stationary`` rows.
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
    return Edges(*map(torch.cat, zip(*parts, strict=True)))


def _shrunk(data: Standardised, start: Tensor, stop: Tensor, positions: int, stationary: float) -> Edges:
    strength = correlations(data, start.reshape(-1), stop.reshape(-1)).reshape(start.shape)
    if stationary:
        mean = strength.mean(positions, keepdim=True)
        strength = (data.samples * strength + stationary * mean) / (data.samples + stationary)
    return Edges(start.reshape(-1), stop.reshape(-1), strength.reshape(-1))


def _channel_pairs(data: Standardised, layout: Layout) -> tuple[Tensor, Tensor]:
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
    library = kernels.native()
    if library is None:
        return products.abs().topk(count, dim=1, sorted=False).indices
    best = torch.empty(products.shape[0], count, dtype=torch.int64)
    arguments = (products, *products.shape, count, best, kernels.threads())
    library.call("remix_fit_largest_", *arguments, dtype=products.dtype)
    return best


def greedy_path(edges: Edges, size: int) -> Tensor:
    """Order (size,) int64: edges by decreasing |strength|, taken if both ends have a free side and no cycle closes."""
    library = kernels.native()
    if library is None:
        return _greedy_path(edges, size)
    order = torch.empty(size, dtype=torch.int64)
    columns = [column.contiguous() for column in edges]
    library.call("remix_fit_path", *columns, len(columns[0]), size, order)
    return order


def _greedy_path(edges: Edges, size: int) -> Tensor:
    parent = list(range(size))
    sides: list[list[int]] = [[] for _ in range(size)]

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    ranked = torch.argsort(edges.strength.abs(), descending=True, stable=True)
    for a, b in zip(edges.start[ranked].tolist(), edges.stop[ranked].tolist(), strict=True):
        if len(sides[a]) < 2 and len(sides[b]) < 2 and root(a) != root(b):
            parent[root(a)] = root(b)
            sides[a].append(b)
            sides[b].append(a)
    order: list[int] = []
    seen = [False] * size
    for start in range(size):
        if seen[start] or len(sides[start]) == 2:
            continue
        at: int | None = start
        while at is not None:
            seen[at] = True
            order.append(at)
            at = next((n for n in sides[at] if not seen[n]), None)
    return torch.tensor(order, dtype=torch.int64)


def chain_start(data: Standardised, order: Tensor) -> Chain:
    """Loadings and decays that reproduce the correlations of neighbours along ``order``.

    In the model R_ij = r_i phi r_j, so r_k^2 = R_{k-1,k} R_{k,k+1} / R_{k-1,k+1}: the triad gives every loading. It is
    noisy where correlations are small; there 0.9 serves.
    """
    near = correlations(data, order[:-1], order[1:]).double()
    sign = torch.ones(order.shape[0], dtype=torch.float64)
    sign[1:] = torch.where(near < 0, -1.0, 1.0).cumprod(0)
    loading = torch.full_like(sign, 0.9)
    if order.shape[0] > 2:
        over = correlations(data, order[:-2], order[2:]).double()
        square = near[:-1] * near[1:] / over
        trusted = (over.abs() > 0.05) & (square > 0)
        loading[1:-1] = torch.where(trusted, square.clamp(0.25, 0.95).sqrt(), loading[1:-1])
    phi = torch.zeros_like(sign)
    phi[1:] = (near.abs() / (loading[:-1] * loading[1:])).clamp(0.02, 0.98)
    return Chain(order.clone(), loading * sign, phi)


def one_factor_start(matrix: Tensor) -> Chain:
    """The leading factor of a correlation matrix (D, D) as loadings, ordered by the Fiedler vector of |R|.

    With all gaps zero the Laplace covariance is one-factor analysis; short gaps leave the order room to matter.
    """
    graph = matrix.double().abs().fill_diagonal_(0)
    degree = graph.sum(1).clamp_min(1e-12).rsqrt()
    with kernels.single_thread():
        values, vectors = torch.linalg.eigh(matrix.double())
        _, harmonics = torch.linalg.eigh(degree[:, None] * graph * degree[None, :])
    loading = (values[-1].clamp_min(0).sqrt() * vectors[:, -1]).clamp(-0.95, 0.95)
    order = torch.argsort(harmonics[:, -2] * degree if matrix.shape[0] > 1 else degree, stable=True)
    phi = torch.full_like(loading, 0.97)
    phi[0] = 0.0
    return Chain(order, loading[order], phi)
