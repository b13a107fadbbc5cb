"""Improving a model of a mixture in its loadings and gaps, the order fixed: exactly, or on fresh draws."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import torch
from torch import Tensor

from remix.laplace.covariance import LaplaceCovariance
from remix.laplace.merging.mixture import Mixture, Model
from remix.laplace.noise import standard_normal

__all__ = ["descend", "descend_on_draws", "shrink_on_draws", "to_covariance"]

MEMORY = 8  # steps the quasi-Newton method remembers
ENOUGH = 1e-6  # stop when a step gains less than this part of the objective
SCALES = (1.0, 0.99, 0.97, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.4, 0.2, 0.0)


def descend(objective: Callable[[Model], Tensor], start: Model, steps: int) -> tuple[Model, float]:
    """At most ``steps`` quasi-Newton steps (L-BFGS with backtracking); the model and its objective per coordinate.

    The objective never rises above that of the start.
    """
    size = len(start.order)

    @torch.enable_grad()  # also where the caller wants none
    def evaluate(vector: Tensor) -> tuple[float, Tensor]:
        free = vector.detach().requires_grad_()
        # Times D: then gradients and curvatures of single coordinates are of order one.
        value = objective(Model(start.order, free[:size], free[size:])) * size
        (gradient,) = torch.autograd.grad(value, free)
        return float(value.detach()), gradient

    place = torch.cat([start.loading, start.odds])
    value, gradient = evaluate(place)
    memory: deque[tuple[Tensor, Tensor]] = deque(maxlen=MEMORY)
    for _ in range(steps):
        direction = _direction(gradient, memory)
        slope = float(torch.dot(gradient, direction))
        if slope > -1e-12 * max(1.0, abs(value)):
            break
        length, found = 1.0, None
        while length > 1e-6:
            trial = place + length * direction
            trial_value, trial_gradient = evaluate(trial)
            if trial_value <= value + 1e-4 * length * slope:
                found = trial_value
                break
            length /= 3
        if found is None:
            break
        memory.append((trial - place, trial_gradient - gradient))
        gain = value - found
        place, value, gradient = trial, found, trial_gradient
        if gain < ENOUGH * abs(value):
            break
    return Model(start.order, place[:size], place[size:]), value / size


def _direction(gradient: Tensor, memory: deque[tuple[Tensor, Tensor]]) -> Tensor:
    """Minus the inverse Hessian of the remembered (step, change of gradient) pairs, times the gradient."""
    pairs = [(s, y, float(torch.dot(s, y))) for s, y in memory]
    pairs = [(s, y, product) for s, y, product in pairs if product > 1e-10 * float(torch.dot(y, y))]
    direction = -gradient
    shares = []
    for s, y, product in reversed(pairs):
        shares.append(float(torch.dot(s, direction)) / product)
        direction = direction - shares[-1] * y
    if pairs:
        s, y, product = pairs[-1]
        direction = direction * (product / float(torch.dot(y, y)))
    for (s, y, product), share in zip(pairs, reversed(shares), strict=True):
        direction = direction + (share - float(torch.dot(y, direction)) / product) * s
    # A step of 3 in a loading or a log-odds crosses most of their range.
    return direction.clamp(-3.0, 3.0)


def to_covariance(model: Model, dtype: torch.dtype = torch.float64) -> LaplaceCovariance:
    """The model as a covariance with unit variances, in the original order; differentiable."""
    rank = torch.empty_like(model.order)
    rank[model.order] = torch.arange(len(model.order), device=model.order.device)
    coord = model.axis().gap.cumsum(0)
    # Centred, so that rounding to float32 hurts the far ends least.
    vectors = (torch.cosh(model.loading).reciprocal().square(), torch.tanh(model.loading), coord - coord[-1] / 2)
    diag, weight, coord = (v[rank].to(dtype) for v in vectors)
    return LaplaceCovariance(diag, weight, coord, validate_args=False)


def descend_on_draws(target: Mixture, start: Model, steps: int, draws: int, generator: torch.Generator | None) -> Model:
    """Stochastic descent (Adam) on the likelihood of standardised draws from the mixture, fresh ones at every step."""
    loading = start.loading.clone().requires_grad_()
    odds = start.odds.clone().requires_grad_()
    optimiser = torch.optim.Adam([loading, odds], lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        rows = _draw(target, draws, generator)
        covariance = to_covariance(Model(start.order, loading, odds), rows.dtype)
        loss = covariance.nll(rows, torch.zeros_like(rows[0])).mean() / rows.shape[1]
        loading.grad, odds.grad = torch.autograd.grad(loss, (loading, odds))
        optimiser.step()
        schedule.step()
    return Model(start.order, loading.detach(), odds.detach())


def shrink_on_draws(target: Mixture, model: Model, draws: int, generator: torch.Generator | None) -> Model:
    """The model with the scale on its loadings that fresh draws like best; scale 0, the diagonal, is among them."""
    rows = _draw(target, draws, generator)
    zero = torch.zeros_like(rows[0])
    models = [model.scaled(scale) for scale in SCALES]
    return min(models, key=lambda one: float(to_covariance(one, rows.dtype).nll(rows, zero).mean()))


def _draw(target: Mixture, draws: int, generator: torch.Generator | None) -> Tensor:
    """Standardised rows (draws, D), float32, from components chosen at random by their shares."""
    device = target.mean.device
    source = device if generator is None else generator.device
    shares = torch.tensor([part.share for part in target.components], device=source)
    counts = torch.multinomial(shares, draws, replacement=True, generator=generator).bincount(minlength=len(shares))
    rows = []
    for part, count in zip(target.components, counts.tolist(), strict=True):
        if count:
            noise = standard_normal((count, len(target.mean)), generator, torch.float32, device)
            rows.append(part.covariance.unwhiten(noise) + part.shift.float())
    return torch.cat(rows)
