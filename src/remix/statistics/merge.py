"""Layer statistics of several tasks as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

from torch import Tensor

from remix.laplace import LaplaceNormal
from remix.laplace import merge as merge_normals
from remix.statistics.fitting import fit_moments
from remix.statistics.layers import LayerStatistics
from remix.statistics.moments import RunningMoments

__all__ = ["first_difference", "merge_layers"]

EXACT_LIMIT = 512  # coordinates up to which the mixture's covariance is formed and fitted


def merge_layers(
    parts: Sequence[tuple[float, Mapping[str, LayerStatistics]]],
) -> dict[str, LayerStatistics]:
    """The statistics of all tasks together, each weighted by its number of classes.

    With shares c_i = Y_i / sum Y, means mu_i and covariances S_i, the result has mean mu = sum c_i mu_i and covariance
    sum c_i (S_i + (mu_i - mu)(mu_i - mu)'). That is the paper's aggregation, except that the paper leaves out the
    spread of the tasks' means. Laplace normals are refitted to it: to the matrix itself up to 512 coordinates, beyond
    without any dense matrix.

    Args:
        parts: pairs (number of classes, statistics by key), all of one network.

    Raises:
        ValueError: for no parts, a number of classes that is not positive, or statistics of different networks (the
            message names the first difference).

    """
    if not parts:
        raise ValueError("nothing to merge: parts is empty")
    for classes, layers in parts:
        if not classes > 0:
            raise ValueError(f"numbers of classes must be positive, got {classes}")
        difference = first_difference(parts[0][1], layers)
        if difference:
            raise ValueError(f"the statistics to merge belong to different networks: {difference}")
    if len(parts) == 1:
        return dict(parts[0][1])
    return {key: _merge([(classes, layers[key]) for classes, layers in parts]) for key in parts[0][1]}


def first_difference(one: Mapping[str, LayerStatistics], other: Mapping[str, LayerStatistics]) -> str | None:
    """Where two sets of statistics differ in their layers, in words, or None."""
    for key in [*one, *other]:
        if key not in other or key not in one:
            return f"'{key}' is in only one of them"
        a, b = one[key], other[key]
        if a.dim != b.dim:
            return f"'{key}' has {a.dim} coordinates in one and {b.dim} in the other"
        if a.kinds != b.kinds:
            return f"'{key}' has the covariances {', '.join(a.kinds)} in one and {', '.join(b.kinds)} in the other"
        if a.normal is not None and b.normal is not None and a.normal.basis != b.normal.basis:
            return f"'{key}' is in the basis {a.normal.basis} in one and {b.normal.basis} in the other"
    return None


def _merge(parts: list[tuple[float, LayerStatistics]]) -> LayerStatistics:
    first = parts[0][1]
    moments = _mixture([(weight, layer.mean, layer.variance) for weight, layer in parts])
    matrices = [(weight, layer.mean, layer.covariance) for weight, layer in parts]
    exact = _mixture([(w, m, c) for w, m, c in matrices if c is not None]) if first.covariance is not None else None
    return replace(
        first,
        images=sum(layer.images for _, layer in parts),
        mean=moments.mean.to(first.mean),
        variance=moments.variance().to(first.variance),
        covariance=None if exact is None else exact.covariance().to(first.mean),
        normal=_merged_normal([layer for _, layer in parts], [weight for weight, _ in parts], exact),
    )


def _mixture(parts: Sequence[tuple[float, Tensor, Tensor]]) -> RunningMoments:
    return reduce(RunningMoments.merge, (RunningMoments.of(*part) for part in parts))


def _merged_normal(
    layers: list[LayerStatistics], weights: list[float], exact: RunningMoments | None
) -> LaplaceNormal | None:
    parts = [(w, layer.normal) for w, layer in zip(weights, layers, strict=True) if layer.normal is not None]
    if not parts:
        return None
    if layers[0].dim > EXACT_LIMIT or any(normal.basis is not None for _, normal in parts):
        return merge_normals(parts)
    if exact is None:
        exact = _mixture([(weight, normal.loc, normal.covariance_matrix.detach()) for weight, normal in parts])
    samples = sum(layer.samples for layer in layers)
    return fit_moments(exact.mean, exact.covariance(), samples, layers[0].mean.dtype)
