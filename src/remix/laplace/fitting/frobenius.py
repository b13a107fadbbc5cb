"""Fitting by the Frobenius distance to the sample covariance: the paper's recipe, and its data term."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import repeat

import torch
from torch import Tensor

from remix.laplace import kernels
from remix.laplace.basis import Dct2
from remix.laplace.fitting.rows import Rows

__all__ = [
    "Batch", "FrobeniusRecipe", "Parameters", "batches_at_hand", "batches_in_passes", "descend", "descend_on_matrix",
    "frobenius_error", "frobenius_terms",
]  # fmt: skip

Parameters = tuple[Tensor, Tensor, Tensor]
Batch = tuple[Tensor, Tensor]
"""Centred feature-major rows (D, n) and their sums of squares (D,)."""


def frobenius_terms(
    v: Tensor, weight: Tensor, coord: Tensor, order: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Q = sum_n (w * v_n)' K(a) (w * v_n) with its gradients: the data term of the Frobenius loss without the diagonal.

    Args:
        v: feature-major rows (D, N), float32 or float64; the last dimension contiguous.
        weight, coord: w and a, (D,), of the dtype of ``v``.
        order: stable argsort of ``coord``, where it is known.

    Returns:
        Q (float64 scalar), dQ/dw (D,), dQ/da (D,). At equal coordinates dQ/da is the one-sided value of the stable
        order.

    Raises:
        ValueError: shapes that do not belong together.
    """
    if v.ndim != 2 or weight.shape != (v.shape[0],) or coord.shape != (v.shape[0],):
        shapes = f"{tuple(v.shape)}, {tuple(weight.shape)}, {tuple(coord.shape)}"
        raise ValueError(f"v, weight and coord must be (D, N), (D,) and (D,), got {shapes}")
    order = kernels.argsort(coord) if order is None else order
    native = kernels.native() is not None and v.device.type == "cpu" and v.dtype in (torch.float32, torch.float64)
    return (_native_terms if native else _terms)(v, weight, coord, order)


def _native_terms(v: Tensor, weight: Tensor, coord: Tensor, order: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    v = v if v.stride(1) == 1 or v.shape[1] == 1 else v.contiguous()
    stride = v.stride(0) if v.shape[0] > 1 else v.shape[1]
    weight_bar, coord_bar = torch.empty_like(weight), torch.empty_like(coord)
    library = kernels.native()
    assert library is not None
    held = [order.contiguous(), weight.contiguous(), coord.contiguous()]  # until the call returns
    arguments = (v, stride, v.shape[1], v.shape[0], *held, weight_bar, coord_bar, kernels.threads(v.numel()))
    total = library.call("remix_frobenius_", *arguments, dtype=v.dtype)
    return torch.tensor(total, dtype=torch.float64), weight_bar, coord_bar


def _terms(v: Tensor, weight: Tensor, coord: Tensor, order: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Twin of the native scans: below_k = sum over rows of v_k L_k, above_k of v_k R_k, one position at a time."""
    w, x = weight[order], weight[order, None] * v[order]
    decay = torch.exp(-coord.double()[order].diff(prepend=coord.double()[order[:1]])).tolist()
    below, above, squares = torch.empty_like(w), torch.empty_like(w), v.square().sum(1)[order]
    carried = torch.zeros_like(x[0])
    for k in range(x.shape[0]):
        if k:
            carried = decay[k] * (carried + x[k - 1])
        below[k] = v[order[k]] @ carried
    carried = torch.zeros_like(carried)
    for k in reversed(range(x.shape[0])):
        if k + 1 < x.shape[0]:
            carried = decay[k + 1] * (carried + x[k + 1])
        above[k] = v[order[k]] @ carried
    weight_bar, coord_bar = torch.empty_like(weight), torch.empty_like(coord)
    weight_bar[order] = 2 * (w * squares + below + above)
    coord_bar[order] = 2 * w * (above - below)
    total = (w.double().square() * squares).sum() + 2 * (w.double() * below).sum()
    return total, weight_bar, coord_bar


def frobenius_error(v: Tensor, diag: Tensor, weight: Tensor, coord: Tensor) -> float:
    """||Sigma - V V'/N||_F / ||V V'/N||_F for centred feature-major rows v (D, N)."""
    rows = v.shape[1]
    model, *_ = frobenius_terms(torch.ones_like(v[:, :1]), weight.square(), 2 * coord)
    d, w2 = diag.double(), weight.double().square()
    own = d.square().sum() + 2 * (d * w2).sum() + model
    cross, *_ = frobenius_terms(v, weight, coord)
    cross = cross + (d * torch.linalg.vector_norm(v, dim=1).double().square()).sum()
    gram = v.T @ v if rows <= v.shape[0] else v @ v.T
    sample = gram.double().square().sum() / rows**2
    return math.sqrt(max(0.0, float((own - 2 / rows * cross + sample) / sample)))


@dataclass(frozen=True)
class FrobeniusRecipe:
    """The published fit: Adam on (u_raw, w, a) with d = softplus(u_raw) + floor, from u_raw = 0, w = 0.1, a = -1..1.

    Args:
        steps: optimiser steps.
        lr: learning rate of u_raw and w.
        coord_lr: learning rate of a.
        batch_size: rows drawn per step without replacement within an epoch; None: all rows.
        schedule: factor of both rates from the fraction of steps done.
        floor: smallest diagonal entry.
        coord_decay: Adam's weight decay of a.
        power: of D, by which the distance is divided: Adam sees it where gradients are as small as its epsilon, 1e-8,
            or as the decay.
    """

    steps: int = 200
    lr: float = 0.01
    coord_lr: float = 0.01
    batch_size: int | None = None
    schedule: Callable[[float], float] | None = None
    floor: float = 1e-5
    coord_decay: float = 0.0
    power: int = 1

    def __post_init__(self) -> None:
        if self.steps < 1 or self.lr <= 0 or self.coord_lr <= 0 or self.floor <= 0:
            raise ValueError(f"steps, lr, coord_lr and floor must be positive, got {self}")
        if self.coord_decay < 0 or self.power < 0:
            raise ValueError(f"coord_decay and power must not be negative, got {self}")
        if self.batch_size is not None and self.batch_size < 1:
            raise ValueError(f"batch_size must be a positive integer or None, got {self.batch_size}")

    @staticmethod
    def long_vectors(rows: int, epochs: int = 100, batch_size: int = 128) -> FrobeniusRecipe:
        """The settings of the paper's likelihood comparison on feature maps, for ``rows`` images."""
        steps = epochs * math.ceil(rows / batch_size)
        return FrobeniusRecipe(steps, 0.01, 0.12, batch_size, lambda done: 0.9 * (1 - done) ** 2 + 0.28)

    @staticmethod
    def for_images(rows: int) -> FrobeniusRecipe:
        """The settings behind the paper's images: feature maps of ``rows`` photographs of one class, 50 epochs."""
        return FrobeniusRecipe(50 * math.ceil(rows / 32), 0.01, 0.12, 32, coord_decay=1e-5, power=2)


def descend(
    batches: Iterator[Batch],
    size: int,
    dtype: torch.dtype,
    recipe: FrobeniusRecipe,
    watch: Callable[[int, Parameters], None] | None = None,
) -> Parameters:
    """(diag, weight, coord) of the recipe for an endless run of batches.

    ``watch`` is called before the first step (0) and after every one, with the parameters at that moment.
    """
    raw = torch.zeros(size, dtype=dtype)
    weight = torch.full((size,), 0.1, dtype=dtype)
    coord = torch.linspace(-1, 1, size, dtype=dtype)
    line = {"params": [coord], "lr": recipe.coord_lr, "weight_decay": recipe.coord_decay}
    optimiser = torch.optim.Adam([{"params": [raw, weight], "lr": recipe.lr}, line])
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: recipe.schedule(step / recipe.steps) if recipe.schedule else 1.0
    )

    def present() -> Parameters:
        return torch.nn.functional.softplus(raw) + recipe.floor, weight, coord

    ones, divisor = torch.ones(size, 1, dtype=dtype), float(size) ** recipe.power
    for step in range(recipe.steps):
        if watch is not None:
            watch(step, present())
        part, squares = next(batches)
        diag, *_ = present()
        order = torch.argsort(coord, stable=True)
        energy = weight.square()
        _, energy_bar, twice_bar = frobenius_terms(ones, energy, 2 * coord, order)
        _, weight_bar, coord_bar = frobenius_terms(part, weight, coord, order)
        share = 2 / part.shape[1]
        raw.grad = (2 * diag + 2 * energy - share * squares) * torch.sigmoid(raw) / divisor
        weight.grad = (4 * diag * weight + 2 * weight * energy_bar - share * weight_bar) / divisor
        coord.grad = (2 * twice_bar - share * coord_bar) / divisor
        optimiser.step()
        schedule.step()
    if watch is not None:
        watch(recipe.steps, present())
    return present()


def descend_on_matrix(
    target: Tensor, recipe: FrobeniusRecipe, correlation: bool = False, start: Parameters | None = None
) -> Parameters:
    """(diag, weight, coord) of the recipe for a covariance matrix (D, D), by the mean over its entries of the squares.

    Args:
        target: the matrix; of ``correlation``, only its correlations count, and so do those of the model: its variances
            are left as they happen to be.
        recipe: settings; batches mean nothing here.
        correlation: see ``target``.
        start: where to begin, instead of where the recipe does.

    """
    scale = target.diagonal().rsqrt()
    wanted = scale[:, None] * target * scale if correlation else target
    size = len(target)
    raw, weight = target.new_zeros(size), target.new_full((size,), 0.1)
    coord = torch.linspace(-1, 1, size, dtype=target.dtype, device=target.device)
    if start is not None:
        diag, weight, coord = (part.detach().to(target).clone() for part in start)
        raw = torch.expm1((diag - recipe.floor).clamp_min(1e-8)).log()  # the inverse of softplus
    raw, weight, coord = (part.requires_grad_() for part in (raw, weight, coord))
    groups = [{"params": [raw, weight], "lr": recipe.lr}, {"params": [coord], "lr": recipe.coord_lr}]
    optimiser = torch.optim.Adam(groups)
    for step in range(recipe.steps):
        factor = recipe.schedule(step / recipe.steps) if recipe.schedule else 1.0
        for group, rate in zip(optimiser.param_groups, (recipe.lr, recipe.coord_lr), strict=True):
            group["lr"] = factor * rate
        diag = torch.nn.functional.softplus(raw) + recipe.floor
        model = torch.diag(diag) + torch.outer(weight, weight) * torch.exp(-(coord[:, None] - coord).abs())
        if correlation:
            spread = model.diagonal().rsqrt()
            model = spread[:, None] * model * spread
        gradients = torch.autograd.grad((model - wanted).square().mean(), (raw, weight, coord))
        raw.grad, weight.grad, coord.grad = gradients
        optimiser.step()
    return (torch.nn.functional.softplus(raw) + recipe.floor).detach(), weight.detach(), coord.detach()


def batches_at_hand(v: Tensor, size: int | None, generator: torch.Generator) -> Iterator[Batch]:
    """Endless batches of centred feature-major rows v (D, N), without replacement within an epoch; or all, always."""
    if size is None or size >= v.shape[1]:
        yield from repeat((v, v.square().sum(1)))
    while size is not None:
        for index in torch.split(torch.randperm(v.shape[1], generator=generator), size):
            part = v[:, index]
            yield part, part.square().sum(1)


def batches_in_passes(
    source: Rows, basis: Dct2 | None, mean: Tensor, size: int | None, generator: torch.Generator
) -> Iterator[Batch]:
    """Endless batches of rows that are read in passes, in the basis, less their ``mean`` (D,) there.

    Rows are drawn without replacement within an epoch where single ones can be read, else taken in their order.
    """
    centre = mean.to(source.dtype)
    count = min(size or source.step, source.step)
    while True:
        if source.single:
            order = torch.randperm(source.rows, generator=generator)
            batches: Iterator[Tensor] = (source.take(index) for index in order.split(count))
        else:
            batches = (part for block in source.blocks() for part in block.split(count))
        for rows in batches:
            part = ((rows if basis is None else basis.forward(rows)) - centre).T.contiguous()
            yield part, part.square().sum(1)
