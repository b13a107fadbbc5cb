"""Where a merge starts from: the models of the components, and a new order made of their strongest correlations."""

from __future__ import annotations

import torch
from torch import Tensor

from remix.laplace.fitting.edges import Edges
from remix.laplace.fitting.path import greedy_path
from remix.laplace.merging.mixture import Component, Mixture, Model

__all__ = ["component_start", "greedy_start"]

# How far along the order of a component a pair may be apart to become a candidate edge.
WINDOW = 6
# Candidate edges per coordinate over all components; bounds time and memory when there are many.
EDGES = 24


def component_start(part: Component) -> Model:
    """The component itself."""
    order = part.axis.order
    return Model.of(order, part.loading[order], part.axis.gap)


def greedy_start(target: Mixture) -> Model:
    """The greedy path over the mixture's own correlations, with loadings and gaps that reproduce them.

    Edges by decreasing |correlation| are accepted while both ends have a free side and no cycle closes. Candidates are
    neighbours in the order of a component, and neighbours in the size of a mean shift. The neighbour correlation of the
    model is r_i r_j phi, and r_i^2 is the part of the variance that the components' own weights carry.
    """
    i, j = _candidate_edges(target)
    edges = Edges(*(v.cpu() for v in (i.int(), j.int(), target.correlation(i, j).float())))
    order = greedy_path(edges, len(target.mean)).to(i.device)
    near = target.correlation(order[:-1], order[1:])
    sign = torch.ones(len(order), dtype=torch.float64, device=order.device)
    sign[1:] = torch.where(near < 0, -1.0, 1.0).cumprod(0)
    carried = torch.stack([p.share * (p.weight.square() + p.shift.square()) for p in target.components]).sum(0)
    loading = carried.sqrt()[order].clamp(0.05, 0.97)
    phi = torch.ones_like(sign)
    phi[1:] = (near.abs() / (loading[1:] * loading[:-1])).clamp(0.02, 0.98)
    return Model(order, torch.atanh(loading * sign), torch.logit(phi, eps=1e-6))


def _candidate_edges(target: Mixture) -> tuple[Tensor, Tensor]:
    """Pairs (i, j), i < j, each (E,), without repetition."""
    orders = [part.axis.order for part in target.components]
    orders += [torch.argsort(part.shift) for part in target.components if bool(part.shift.any())]
    size = len(target.mean)
    window = max(1, min(WINDOW, EDGES // len(orders)))
    keys = [torch.empty(0, dtype=torch.int64, device=orders[0].device)]
    for order in orders[:EDGES]:  # components come with the largest share first
        for hop in range(1, min(window, size - 1) + 1):
            i, j = order[:-hop], order[hop:]
            keys.append(torch.minimum(i, j) * size + torch.maximum(i, j))
    key = torch.unique(torch.cat(keys))
    return key // size, key % size
