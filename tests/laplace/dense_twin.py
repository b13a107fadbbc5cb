"""The harness of the core: a dense float64 twin with the methods of `LaplaceCovariance`, and one comparison.

Every operation is a function of (covariance, x, loc), so that the same line runs on the fast object and on its twin.
Inputs are drawn in float32 and are exact in float64 as well: one dense result serves every dtype and path.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from remix.laplace import LaplaceCovariance

NAMES = ("x", "loc", "diag", "weight", "coord")

# Largest error allowed, relative to the largest entry of the exact result (or to 0.1, the inputs being of order 1).
TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-5}


class DenseTwin:
    """Sigma as a matrix; methods as in `LaplaceCovariance`, by linear algebra. Ties have subgradient 0 here."""

    def __init__(self, diag: Tensor, weight: Tensor, coord: Tensor):
        shape = torch.broadcast_shapes(diag.shape, weight.shape, coord.shape)
        self.diag, self.weight, self.coord = (v.expand(shape) for v in (diag, weight, coord))
        kernel = torch.exp(-(self.coord[..., :, None] - self.coord[..., None, :]).abs())
        self.sigma = torch.diag_embed(self.diag) + self.weight[..., :, None] * kernel * self.weight[..., None, :]

    def to_dense(self) -> Tensor:
        return self.sigma

    def matvec(self, x: Tensor) -> Tensor:
        return (self.sigma @ x[..., None])[..., 0]

    def solve(self, x: Tensor) -> Tensor:
        if self.sigma.dim() == 2:
            return torch.linalg.solve(self.sigma, x.reshape(-1, x.shape[-1]).mT).mT.reshape(x.shape)
        lead = torch.broadcast_shapes(x.shape[:-1], self.diag.shape[:-1])
        columns = x.expand(*lead, x.shape[-1])[..., None]
        return torch.linalg.solve(self.sigma.expand(*lead, *self.sigma.shape[-2:]), columns)[..., 0]

    def _sorted_root(self) -> tuple[Tensor, Tensor]:
        """The sort order and L with Sigma[order, order] = L L'."""
        order = self.coord.argsort(dim=-1, stable=True)
        rows = self.sigma.gather(-2, order[..., :, None].expand_as(self.sigma))
        return order, torch.linalg.cholesky(rows.gather(-1, order[..., None, :].expand_as(rows)))

    def _in_sorted_order(self, x: Tensor, apply: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        order, root = self._sorted_root()
        if root.dim() == 2:
            rows = apply(root, x.reshape(-1, x.shape[-1])[:, order].mT).mT
            return torch.zeros_like(rows).index_copy(1, order, rows).reshape(x.shape)
        lead = torch.broadcast_shapes(x.shape[:-1], order.shape[:-1])
        order = order.expand(*lead, order.shape[-1])
        out = apply(root.expand(*lead, *root.shape[-2:]), x.expand_as(order).gather(-1, order)[..., None])[..., 0]
        return torch.zeros_like(out).scatter(-1, order, out)

    def whiten(self, x: Tensor) -> Tensor:
        return self._in_sorted_order(x, lambda root, v: torch.linalg.solve_triangular(root, v, upper=False))

    def unwhiten(self, x: Tensor) -> Tensor:
        return self._in_sorted_order(x, lambda root, v: root @ v)

    def logdet(self) -> Tensor:
        return torch.logdet(self.sigma)

    def diagonal(self) -> Tensor:
        return self.sigma.diagonal(dim1=-2, dim2=-1)

    def inverse_diagonal(self) -> Tensor:
        return torch.linalg.inv(self.sigma).diagonal(dim1=-2, dim2=-1)

    def rescale(self, variance: Tensor) -> DenseTwin:
        scale = (variance / self.diagonal()).sqrt()
        twin = DenseTwin(self.diag, self.weight, self.coord)
        twin.sigma = scale[..., :, None] * self.sigma * scale[..., None, :]
        return twin

    def nll(self, x: Tensor, loc: Tensor) -> Tensor:
        r = x - loc
        return 0.5 * ((r * self.solve(r)).sum(-1) + self.logdet() + x.shape[-1] * math.log(2 * math.pi))


Operation = Callable[[Any, Tensor, Tensor], Tensor]

ON_ROWS: dict[str, Operation] = {
    "matvec": lambda c, x, loc: c.matvec(x),
    "solve": lambda c, x, loc: c.solve(x),
    "whiten": lambda c, x, loc: c.whiten(x),
    "unwhiten": lambda c, x, loc: c.unwhiten(x),
    "nll": lambda c, x, loc: c.nll(x, loc),
}
ON_PARAMETERS: dict[str, Operation] = {
    "logdet": lambda c, x, loc: c.logdet(),
    "diagonal": lambda c, x, loc: c.diagonal(),
    "inverse_diagonal": lambda c, x, loc: c.inverse_diagonal(),
    "rescale": lambda c, x, loc: c.rescale(loc.exp()).to_dense(),
    "to_dense": lambda c, x, loc: c.to_dense(),
}
OPERATIONS = ON_ROWS | ON_PARAMETERS


def draw(lead: Sequence[int], dim: int, batch: Sequence[int] = (), seed: int = 0) -> list[Tensor]:
    """x (*lead, D), loc, diag, weight, coord (*batch, D): float32, no ties, weights of both signs and some zero."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(*lead, dim, generator=g)
    loc = 0.5 * torch.randn(*batch, dim, generator=g)
    diag = 0.3 + torch.rand(*batch, dim, generator=g)
    weight = torch.randn(*batch, dim, generator=g)
    weight[..., dim // 2] = 0
    steps = torch.rand(*batch, dim, generator=g) + 0.01
    coord = steps.cumsum(-1) * min(1.0, 40 / dim) - 3
    shuffle = torch.rand(*batch, dim, generator=g).argsort(-1)
    return [x, loc, diag, weight, coord.gather(-1, shuffle)]


def with_gradients(operation: Operation, make: Any, inputs: Sequence[Tensor]) -> list[Tensor]:
    """[value, gradient in x, loc, diag, weight, coord] for a fixed cotangent of mixed sign."""
    leaves = [v.detach().requires_grad_() for v in inputs]
    x, loc, *parameters = leaves
    value = operation(make(*parameters), x, loc)
    cotangent = torch.linspace(-1.0, 1.3, value.numel(), dtype=torch.float64).sin().view(value.shape)
    grads = torch.autograd.grad(value, leaves, cotangent.to(value.dtype), materialize_grads=True, allow_unused=True)
    return [value.detach(), *grads]


@cache
def exact(name: str, lead: tuple[int, ...], dim: int, batch: tuple[int, ...]) -> list[Tensor]:
    """`with_gradients` of the dense twin, in float64."""
    return with_gradients(OPERATIONS[name], DenseTwin, [v.double() for v in draw(lead, dim, batch)])


def assert_near(got: Tensor, wanted: Tensor, tolerance: float | None = None, what: str = "result") -> None:
    """Same shape, finite, and within the tolerance of the dtype relative to the largest entry."""
    assert got.shape == wanted.shape, f"{what}: shape {tuple(got.shape)}, expected {tuple(wanted.shape)}"
    if got.numel() == 0:
        return
    tolerance = TOLERANCE[got.dtype] if tolerance is None else tolerance
    scale = wanted.abs().max().double().clamp_min(0.1)
    error = float((got.double() - wanted.double()).abs().max() / scale)
    assert error <= tolerance, f"{what}: relative error {error:.2e} > {tolerance:.0e}"


def assert_all_near(got: Sequence[Tensor], wanted: Sequence[Tensor], tolerance: float | None = None) -> None:
    for what, one, other in zip(("value", *(f"gradient in {n}" for n in NAMES)), got, wanted, strict=True):
        assert_near(one, other, tolerance, what)


def covariance(inputs: Sequence[Tensor]) -> LaplaceCovariance:
    return LaplaceCovariance(*inputs[2:])
