"""A weighted mixture of Laplace normals, seen through its first two moments, and how well one Laplace normal fits them.

Everything is on the correlation scale: coordinates are divided by the standard deviation of the mixture, so the target
has unit variances and a model is a loading r in (-1, 1) per coordinate (d = 1 - r^2, w = r) and gaps between neighbours
in an order. Loadings are written as tanh(x), which keeps 1 - r^2 = 1/cosh(x)^2 accurate however near 1 they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from remix.laplace.covariance import LaplaceCovariance
from remix.laplace.fitting.order import Edges, greedy_path
from remix.laplace.kl import precision_kernel
from remix.laplace.plane import Axis, plane_form

__all__ = ["Component", "FreeChain", "Mixture", "component_start", "greedy_start", "mixture"]

# The gap beyond which exp(-gap) is as good as 0, and the log-odds above which it is 1 in float64.
_WIDEST = 700.0
_NARROWEST = 40.0
# How far along the order of a component a pair may be apart to become a candidate edge.
WINDOW = 6
# Candidate edges per coordinate over all components; bounds time and memory when there are many.
EDGES = 24


@dataclass(frozen=True)
class Component:
    """One part of the mixture, float64 (D,): share, standardised weight, coordinate axis, standardised mean shift.

    ``loading`` is asinh(w / sqrt(d)), the x of its own correlation loadings tanh(x); ``covariance`` is the standardised
    covariance in float32, for draws.
    """

    share: float
    weight: Tensor
    coord: Tensor
    shift: Tensor
    loading: Tensor
    axis: Axis
    covariance: LaplaceCovariance


@dataclass(frozen=True)
class FreeChain:
    """A candidate: the order of the coordinates and, in that order, loadings x and log-odds of phi = exp(-gap).

    Float64 (D,). Log-odds run over the whole line, and 15 descent steps in them do what 50 in phi do.
    """

    order: Tensor
    loading: Tensor
    odds: Tensor

    @classmethod
    def of(cls, order: Tensor, loading: Tensor, gap: Tensor) -> FreeChain:
        """From gaps >= 0, infinite ones included."""
        return cls(order, loading, (-torch.log(torch.expm1(gap.clamp(max=_WIDEST)))).clamp(max=_NARROWEST))

    def scaled(self, scale: float) -> FreeChain:
        """Every correlation times scale^2; variances untouched, scale 0 is the diagonal."""
        loading = torch.atanh(scale * torch.tanh(self.loading)) if scale < 1 else self.loading
        return FreeChain(self.order, loading, self.odds)

    def axis(self) -> Axis:
        """The gaps -log phi on this order; differentiable in the log-odds."""
        return Axis(self.order, torch.nn.functional.softplus(-self.odds, threshold=50.0))


@dataclass(frozen=True)
class Mixture:
    """Mean and variance (D,) of the mixture in the units of the data, and its standardised components."""

    mean: Tensor
    variance: Tensor
    components: tuple[Component, ...]

    def correlation(self, i: Tensor, j: Tensor) -> Tensor:
        """Correlations of the pairs of coordinates (i, j), each of shape (E,); i != j."""
        total = torch.zeros(i.shape, dtype=torch.float64, device=i.device)
        for part in self.components:
            kernel = torch.exp(-(part.coord[i] - part.coord[j]).abs())
            total += part.share * (part.weight[i] * part.weight[j] * kernel + part.shift[i] * part.shift[j])
        return total

    def excess(self, model: FreeChain) -> Tensor:
        """Expected negative log-likelihood per dimension of the model above that of the diagonal normal; exact.

        This is KL(moment-matched normal || model) / D up to a constant: 0 for the diagonal, negative is better.
        O(D log D) per component; differentiable in the loadings and log-odds.
        """
        axis = model.axis()
        weight = torch.tanh(model.loading)[axis.rank]
        diag = torch.cosh(model.loading).reciprocal().square()[axis.rank]
        precision = precision_kernel(diag, weight, axis)
        trace = (precision.diagonal - 1).sum()
        for part in self.components:
            trace = trace - 2 * part.share * self._pairs(part, precision.left, precision.right, precision.axis)
        return 0.5 * (trace + precision.innovation.log().sum()) / len(weight)

    def distance(self, model: FreeChain) -> Tensor:
        """Squared Frobenius distance of the correlation matrices per dimension, up to a constant; exact."""
        axis = model.axis()
        weight = torch.tanh(model.loading)[axis.rank]
        total = 2 * plane_form(weight.square(), weight.square(), axis, axis)
        for part in self.components:
            total = total - 4 * part.share * self._pairs(part, weight, weight, axis)
        return total / len(weight)

    @staticmethod
    def _pairs(part: Component, left: Tensor, right: Tensor, axis: Axis) -> Tensor:
        """sum over i after j on the axis of right_i left_j exp(-distance) times the component's covariance of i, j."""
        value = plane_form(left * part.weight, right * part.weight, axis, part.axis)
        if bool(part.shift.any()):
            still = Axis(axis.order, torch.zeros_like(axis.gap))
            value = value + plane_form(left * part.shift, right * part.shift, axis, still)
        return value


def mixture(parts: Sequence[tuple[float, Tensor, Tensor, Tensor, Tensor]]) -> Mixture:
    """The mixture of (share, loc, diag, weight, coord) with shares that sum to 1; float64 vectors (D,)."""
    mean = sum((share * loc for share, loc, *_ in parts), torch.zeros_like(parts[0][1]))
    variance = torch.zeros_like(mean)
    for share, loc, diag, weight, _ in parts:
        variance = variance + share * (diag + weight.square() + (loc - mean).square())
    scale = variance.sqrt()
    components = []
    for share, loc, diag, weight, coord in parts:
        unit = ((diag / scale.square()).float(), (weight / scale).float(), coord.float())
        drawn, loading = LaplaceCovariance(*unit, validate_args=False), torch.asinh(weight / diag.sqrt())
        shift = (loc - mean) / scale
        components.append(Component(share, weight / scale, coord, shift, loading, Axis.of(coord), drawn))
    return Mixture(mean, variance, tuple(components))


def component_start(part: Component) -> FreeChain:
    """The component itself."""
    order = part.axis.order
    return FreeChain.of(order, part.loading[order], part.axis.gap)


def greedy_start(target: Mixture) -> FreeChain:
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
    return FreeChain(order, torch.atanh(loading * sign), torch.logit(phi, eps=1e-6))


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
