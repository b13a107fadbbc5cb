"""From edges to an order of the units and a first guess of the chain."""

from __future__ import annotations

import torch
from torch import Tensor

from remix.laplace.fitting.edges import Edges, correlations
from remix.laplace.fitting.library import library, pointer, single_thread
from remix.laplace.fitting.likelihood import Chain
from remix.laplace.fitting.prepare import Standardised

__all__ = ["chain_start", "greedy_path", "one_factor_start"]


def greedy_path(edges: Edges, size: int) -> Tensor:
    """Order (size,) int64: edges by decreasing |strength|, taken if both ends have a free side and no cycle closes."""
    native = library()
    if native is None:
        return _greedy_path(edges, size)
    order = torch.empty(size, dtype=torch.int64)
    columns = (edges.start.contiguous(), edges.stop.contiguous(), edges.strength.contiguous())
    native.remix_fit_path(*(pointer(c) for c in columns), columns[0].shape[0], size, pointer(order))
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
    with single_thread():
        values, vectors = torch.linalg.eigh(matrix.double())
        _, harmonics = torch.linalg.eigh(degree[:, None] * graph * degree[None, :])
    loading = (values[-1].clamp_min(0).sqrt() * vectors[:, -1]).clamp(-0.95, 0.95)
    order = torch.argsort(harmonics[:, -2] * degree if matrix.shape[0] > 1 else degree, stable=True)
    phi = torch.full_like(loading, 0.97)
    phi[0] = 0.0
    return Chain(order, loading[order], phi)
