"""One Laplace normal in place of a weighted mixture of several."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from remix.laplace.covariance import LaplaceCovariance
from remix.laplace.mixture import FreeChain, Mixture, component_start, greedy_start, mixture
from remix.laplace.normal import LaplaceNormal, standard_normal
from remix.laplace.plane import check_alike

__all__ = ["merge"]

# Components times coordinates up to which every step uses exact sums over all pairs: a second or two per step.
EXACT_LIMIT = 1_500_000
RACE_STEPS = 8  # steps each start gets before the best goes on alone
STARTS = 3  # components, by share, whose own order is tried
MEMORY = 8  # steps the quasi-Newton method remembers
ENOUGH = 1e-6  # stop when a step gains less than this part of the objective
SCALES = (1.0, 0.99, 0.97, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.4, 0.2, 0.0)


def merge(
    components: Sequence[tuple[float, LaplaceNormal]],
    objective: Literal["likelihood", "frobenius"] = "likelihood",
    *,
    steps: int = 40,
    exact: bool | None = None,
    draws: int = 32,
    generator: torch.Generator | None = None,
) -> LaplaceNormal:
    """The single Laplace normal that stands for a mixture, with the mixture's exact mean and variances.

    Its correlations are fitted to those of sum_i c_i (Sigma_i + (mu_i - mu)(mu_i - mu)'), on the scale of correlations
    and without drawing from the mixture: the expected log-likelihood and the Frobenius distance are sums over pairs of
    coordinates that `remix.laplace.plane` gives exactly in O(D log D) per component. The order of the coordinates is
    the best of the components' own and a greedy path over the mixture's correlations. The result is never below the
    diagonal normal with the same variances in expected log-likelihood.

    Args:
        components: pairs (weight, normal); weights are >= 0 and are normalised to sum to 1. No gradients flow to them.
        objective: "likelihood" minimises KL(moment-matched mixture || result) in the correlations, "frobenius" the
            Frobenius distance of the correlation matrices (smaller matrix error, lower likelihood).
        steps: quasi-Newton steps of the final descent (with draws: three times as many stochastic steps).
        exact: True, or None for up to 1.5 million components x coordinates: exact sums. Otherwise the likelihood of
            ``draws`` rows drawn afresh at every step.
        draws: rows per step when not exact.
        generator: for the draws; the exact merge is deterministic.

    Returns:
        A `LaplaceNormal` in the dtype, device and basis of the components; a single component (or one with all the
        weight) comes back as it is.

    Raises:
        ValueError: no components; a weight that is negative, not finite, or all zero; batches; normals that differ in
            dimension, dtype, device or basis; "frobenius" when not exact; steps or draws below 1.
    """
    pairs = _check(components, objective, steps, draws)
    if len(pairs) == 1:
        return pairs[0][1]
    target = _mixture(pairs)
    if exact is None:
        exact = len(pairs) * len(target.mean) <= EXACT_LIMIT
    if exact:
        model = _merge_exactly(target, objective, steps)
    elif objective == "frobenius":
        raise ValueError("objective 'frobenius' needs exact=True: on draws only the likelihood is fitted")
    else:
        starts = [component_start(target.components[0]), greedy_start(target)]
        start = min(starts, key=lambda one: _excess(target, one))
        model = _descend_on_draws(target, start, 3 * steps, draws, generator)
        model = _shrink_on_draws(target, model, 4 * draws, generator)
        model = min(start, model, key=lambda one: _excess(target, one))  # few draws may lead astray
    return _assemble(target, model, pairs[0][1])


def _merge_exactly(target: Mixture, objective: str, steps: int) -> FreeChain:
    measure = target.distance if objective == "frobenius" else target.excess
    starts = [component_start(part) for part in target.components[:STARTS]] + [greedy_start(target)]
    best, _ = min((_descend(measure, start, RACE_STEPS) for start in starts), key=lambda pair: pair[1])
    best, _ = _descend(measure, best, steps)
    if _excess(target, best) > 0:  # worse than the diagonal: shrink towards it as far as it helps
        best = min((best.scaled(scale) for scale in SCALES), key=lambda one: _excess(target, one))
    return best


def _excess(target: Mixture, model: FreeChain) -> float:
    with torch.no_grad():
        return float(target.excess(model))


def _mixture(pairs: list[tuple[float, LaplaceNormal]]) -> Mixture:
    """Float64, in the basis of the components; the largest share first, so that the order of arguments is forgotten."""
    parts = []
    for share, normal in sorted(pairs, key=lambda pair: -pair[0]):
        loc = normal.loc if normal.basis is None else normal.basis.forward(normal.loc)
        loc, diag, weight, coord = (v.detach().double() for v in (loc, normal.diag, normal.weight, normal.coord))
        parts.append((share, loc, diag, weight, coord))
    return mixture(parts)


def _assemble(target: Mixture, model: FreeChain, like: LaplaceNormal) -> LaplaceNormal:
    unit = _to_covariance(model)
    scale = target.variance.sqrt()
    vectors = (target.mean, target.variance * unit.diag, scale * unit.weight, unit.coord)
    mean, diag, weight, coord = (v.to(like.loc.dtype) for v in vectors)
    covariance = LaplaceCovariance(diag, weight, coord)
    return LaplaceNormal(mean if like.basis is None else like.basis.inverse(mean), covariance, like.basis)


def _check(
    components: Sequence[tuple[float, LaplaceNormal]], objective: str, steps: int, draws: int
) -> list[tuple[float, LaplaceNormal]]:
    """The components with a positive weight, normalised."""
    pairs = list(components)
    if not pairs:
        raise ValueError("components is empty: expected at least one (weight, LaplaceNormal) pair")
    if objective not in ("likelihood", "frobenius"):
        raise ValueError(f"objective must be 'likelihood' or 'frobenius', got {objective!r}")
    for name, value in (("steps", steps), ("draws", draws)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    first = pairs[0][1]
    for k, (weight, normal) in enumerate(pairs):
        if not isinstance(normal, LaplaceNormal):
            raise ValueError(f"components[{k}] must be a (weight, LaplaceNormal) pair, got a {type(normal).__name__}")
        if not math.isfinite(weight) or weight < 0:
            raise ValueError(f"components[{k}] has weight {weight}: expected a finite number >= 0")
        if normal.batch_shape:
            raise ValueError(f"components[{k}] has batch shape {tuple(normal.batch_shape)}: expected a single normal")
        check_alike(f"components[{k}]", first.covariance, normal.covariance)
        if normal.basis != first.basis:
            raise ValueError(f"components[{k}] has basis {normal.basis}, expected {first.basis} as in components[0]")
    total = math.fsum(weight for weight, _ in pairs)
    if total == 0:
        raise ValueError("components have weights that are all zero: at least one must be positive")
    return [(float(weight / total), normal) for weight, normal in pairs if weight > 0]


def _descend(objective: Callable[[FreeChain], Tensor], start: FreeChain, steps: int) -> tuple[FreeChain, float]:
    """At most ``steps`` quasi-Newton steps (L-BFGS with backtracking); the model and its objective per coordinate.

    The objective never rises above that of the start.
    """
    size = len(start.order)

    @torch.enable_grad()  # also where the caller wants none
    def evaluate(vector: Tensor) -> tuple[float, Tensor]:
        free = vector.detach().requires_grad_()
        # Times D: then gradients and curvatures of single coordinates are of order one.
        value = objective(FreeChain(start.order, free[:size], free[size:])) * size
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
    return FreeChain(start.order, place[:size], place[size:]), value / size


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


def _to_covariance(model: FreeChain, dtype: torch.dtype = torch.float64) -> LaplaceCovariance:
    """The model as a covariance with unit variances, in the original order; differentiable."""
    axis = model.axis()
    coord = axis.gap.cumsum(0)
    # Centred, so that rounding to float32 hurts the far ends least.
    vectors = (torch.cosh(model.loading).reciprocal().square(), torch.tanh(model.loading), coord - coord[-1] / 2)
    diag, weight, coord = (v[axis.rank].to(dtype) for v in vectors)
    return LaplaceCovariance(diag, weight, coord, validate_args=False)


def _descend_on_draws(
    target: Mixture, start: FreeChain, steps: int, draws: int, generator: torch.Generator | None
) -> FreeChain:
    """Stochastic descent (Adam) on the likelihood of standardised draws from the mixture, fresh ones at every step."""
    loading = start.loading.clone().requires_grad_()
    odds = start.odds.clone().requires_grad_()
    optimiser = torch.optim.Adam([loading, odds], lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        rows = _draw(target, draws, generator)
        covariance = _to_covariance(FreeChain(start.order, loading, odds), rows.dtype)
        loss = covariance.nll(rows, torch.zeros_like(rows[0])).mean() / rows.shape[1]
        loading.grad, odds.grad = torch.autograd.grad(loss, (loading, odds))
        optimiser.step()
        schedule.step()
    return FreeChain(start.order, loading.detach(), odds.detach())


def _shrink_on_draws(target: Mixture, model: FreeChain, draws: int, generator: torch.Generator | None) -> FreeChain:
    """The model with the scale on its loadings that fresh draws like best; scale 0, the diagonal, is among them."""
    rows = _draw(target, draws, generator)
    zero = torch.zeros_like(rows[0])
    models = [model.scaled(scale) for scale in SCALES]
    return min(models, key=lambda one: float(_to_covariance(one, rows.dtype).nll(rows, zero).mean()))


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
