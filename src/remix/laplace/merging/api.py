"""One Laplace normal in place of a weighted mixture of several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch

from remix.laplace.covariance import LaplaceCovariance
from remix.laplace.inner import check_alike
from remix.laplace.merging.descent import SCALES, descend, descend_on_draws, shrink_on_draws, to_covariance
from remix.laplace.merging.mixture import Mixture, Model, mixture
from remix.laplace.merging.starts import component_start, greedy_start
from remix.laplace.normal import LaplaceNormal

__all__ = ["merge"]

# Components times coordinates up to which every step uses exact sums over all pairs: a second or two per step.
EXACT_LIMIT = 1_500_000
RACE_STEPS = 8  # steps each start gets before the best goes on alone
STARTS = 3  # components, by share, whose own order is tried


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
        model = descend_on_draws(target, start, 3 * steps, draws, generator)
        model = shrink_on_draws(target, model, 4 * draws, generator)
    return _assemble(target, model, pairs[0][1])


def _merge_exactly(target: Mixture, objective: str, steps: int) -> Model:
    measure = target.distance if objective == "frobenius" else target.excess
    starts = [component_start(part) for part in target.components[:STARTS]] + [greedy_start(target)]
    best, _ = min((descend(measure, start, RACE_STEPS) for start in starts), key=lambda pair: pair[1])
    best, _ = descend(measure, best, steps)
    if _excess(target, best) > 0:  # worse than the diagonal: shrink towards it as far as it helps
        best = min((best.scaled(scale) for scale in SCALES), key=lambda one: _excess(target, one))
    return best


def _excess(target: Mixture, model: Model) -> float:
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


def _assemble(target: Mixture, model: Model, like: LaplaceNormal) -> LaplaceNormal:
    unit = to_covariance(model)
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
