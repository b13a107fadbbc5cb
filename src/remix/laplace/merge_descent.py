"""Improving a model of a mixture in its loadings and gaps, the order fixed: exactly, or on fresh draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.optimize import Bounds, minimize
from torch import Tensor

from remix.laplace.covariance import LaplaceCovariance
from remix.laplace.mixture import Mixture, Model

__all__ = ["descend", "descend_on_draws", "shrink_on_draws", "to_covariance"]

SMALLEST_PHI = 1e-4  # below, neighbours are as good as independent and the gradient in phi vanishes
LARGEST_LOADING = 18.0  # tanh(x)^2 = 1 - 1e-15: the edge of what float64 can hold
SCALES = (1.0, 0.99, 0.97, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.4, 0.2, 0.0)


def descend(objective: Callable[[Model], Tensor], start: Model, steps: int) -> tuple[Model, float]:
    """At most ``steps`` quasi-Newton steps (L-BFGS-B); the model and its objective, never above that of the start."""
    size = len(start.order)
    device = start.order.device

    def model(vector: Any) -> tuple[Model, Tensor]:
        values = torch.from_numpy(vector).to(device).requires_grad_()
        return Model(start.order, values[:size], values[size:]), values

    def value_and_gradient(vector: Any) -> tuple[float, Any]:
        candidate, values = model(vector.copy())
        # Per coordinate the value shrinks with D; the line search wants it and its gradient of order one.
        value = objective(candidate) * size
        (gradient,) = torch.autograd.grad(value, values)
        return float(value.detach()), torch.nan_to_num(gradient).cpu().numpy()

    vector = torch.cat([start.loading, start.phi]).cpu().numpy()
    lower = np.concatenate([np.full(size, -LARGEST_LOADING), np.minimum(vector[size:], SMALLEST_PHI)])
    upper = np.concatenate([np.full(size, LARGEST_LOADING), np.ones(size)])
    result = minimize(
        value_and_gradient,
        vector.clip(lower, upper),
        jac=True,
        method="L-BFGS-B",
        bounds=Bounds(lower, upper),
        options={"maxiter": steps, "maxfun": 2 * steps + 5, "ftol": 1e-7},
    )
    best, values = model(result.x)
    return Model(best.order, values.detach()[:size], values.detach()[size:]), float(result.fun) / size


def to_covariance(model: Model, dtype: torch.dtype = torch.float64) -> LaplaceCovariance:
    """The model as a covariance with unit variances, in the original order; differentiable."""
    rank = torch.empty_like(model.order)
    rank[model.order] = torch.arange(len(model.order), device=model.order.device)
    coord = model.axis().gap.clamp(max=800.0).cumsum(0)
    # Centred, so that rounding to float32 hurts the far ends least.
    vectors = (torch.cosh(model.loading).reciprocal().square(), torch.tanh(model.loading), coord - coord[-1] / 2)
    return LaplaceCovariance(*(v[rank].to(dtype) for v in vectors), validate_args=False)


def descend_on_draws(
    target: Mixture, start: Model, steps: int, draws: int, generator: torch.Generator | None
) -> Model:
    """Stochastic descent (Adam) on the likelihood of standardised draws from the mixture, fresh ones at every step."""
    loading = start.loading.clone().requires_grad_()
    odds = torch.logit(start.phi.clamp(SMALLEST_PHI, 1 - 1e-6)).requires_grad_()
    optimiser = torch.optim.Adam([loading, odds], lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        optimiser.zero_grad()
        rows = _draw(target, draws, generator)
        covariance = to_covariance(Model(start.order, loading, torch.sigmoid(odds)), rows.dtype)
        (covariance.nll(rows, torch.zeros_like(rows[0])).mean() / rows.shape[1]).backward()
        optimiser.step()
        schedule.step()
    return Model(start.order, loading.detach(), torch.sigmoid(odds.detach()))


def shrink_on_draws(target: Mixture, model: Model, draws: int, generator: torch.Generator | None) -> Model:
    """The model with the scale on its loadings that fresh draws like best; scale 0, the diagonal, is among them."""
    rows = _draw(target, draws, generator)
    zero = torch.zeros_like(rows[0])
    models = [model.scaled(scale) for scale in SCALES]
    return min(models, key=lambda one: float(to_covariance(one, rows.dtype).nll(rows, zero).mean()))


def _draw(target: Mixture, draws: int, generator: torch.Generator | None) -> Tensor:
    """Standardised rows (draws, D), float32, from components chosen at random by their shares."""
    device = target.mean.device
    shares = torch.tensor([part.share for part in target.components], device=device)
    counts = torch.multinomial(shares, draws, replacement=True, generator=generator).bincount(minlength=len(shares))
    rows = []
    for part, count in zip(target.components, counts.tolist(), strict=True):
        if count:
            noise = torch.randn(count, len(target.mean), generator=generator, device=device)
            rows.append(part.covariance.unwhiten(noise) + part.shift.float())
    return torch.cat(rows)
