"""Parts that methods share: heads from the Gaussians of classes, or from features, with no network trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from remix.laplace.normal import standard_normal
from remix.methods.discriminant import Discriminant, reckoned_shrinkage
from remix.networks import Backbone, ExactHead, ExactLinearHead, ExactQuadraticHead, FeatureMap
from remix.statistics import ClassGaussians

__all__ = ["SolvedKind", "bayes_head", "last_block", "linear_head", "solved_head"]

SolvedKind = Literal["linear", "discriminant", "bayes"]
"""A linear classifier fitted to draws; the linear discriminant; distances in the shrunk correlation of each class."""

_DRAWS = 400  # of every class: with the same numbers for all, so that a head depends on the Gaussians alone
_PENALTY, _STEPS = 1e-4, 100  # of squared weights of standardised features; of L-BFGS


def last_block(backbone: Backbone, *, unit: bool = False) -> FeatureMap:
    """The features of the last block as they are, or made unit vectors."""
    return FeatureMap((len(backbone.blocks()) - 1,), (backbone.feature_dim,), unit=unit)


def solved_head(kind: SolvedKind, map: FeatureMap, task_sizes: Sequence[int], gaussians: ClassGaussians) -> ExactHead:
    """The head of all classes from their Gaussians of the features of a map, in the order of their labels."""
    if kind == "bayes":
        return bayes_head(map, task_sizes, gaussians, 3.0)
    if kind == "discriminant":
        weights = torch.tensor(gaussians.counts, dtype=torch.float64)
        scatter = (weights[:, None, None] * covariances(gaussians)).sum(0)
        freedom = max(int(weights.sum()) - len(weights), 1)
        found = Discriminant(gaussians.mean.double().cpu(), scatter, freedom, reckoned_shrinkage(scatter, freedom))
        return ExactLinearHead(map, task_sizes, *found.weights()).float()
    noise = standard_normal(
        (_DRAWS, gaussians.dim), torch.Generator().manual_seed(0), torch.float64, torch.device("cpu")
    )
    noise = (noise - noise.mean(0)) / noise.std(0)
    roots = torch.linalg.cholesky(_safe(covariances(gaussians)))
    draws = gaussians.mean.double().cpu()[:, None] + noise @ roots.mT
    labels = torch.arange(len(gaussians)).repeat_interleave(_DRAWS)
    return linear_head(map, task_sizes, draws.flatten(0, 1), labels)


def linear_head(map: FeatureMap, task_sizes: Sequence[int], features: Tensor, labels: Tensor) -> ExactLinearHead:
    """The linear classifier of least cross-entropy on features (N, D) with labels (N,), every class weighing the same.

    A convex problem, solved to its end: nothing is random.
    """
    x, classes = features.detach().double().cpu(), sum(task_sizes)
    centre, scale = x.mean(0), x.std(0).clamp_min(1e-8)
    x = (x - centre) / scale
    labels = labels.cpu()
    weights = 1 / torch.bincount(labels, minlength=classes).clamp_min(1).double()
    weight = torch.zeros(classes, x.shape[1], dtype=x.dtype, requires_grad=True)
    bias = torch.zeros(classes, dtype=x.dtype, requires_grad=True)
    optimiser = torch.optim.LBFGS([weight, bias], max_iter=_STEPS, tolerance_grad=1e-6, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = cross_entropy(x @ weight.T + bias, labels, weights) + _PENALTY * weight.square().sum()
        loss.backward()
        return loss

    with torch.enable_grad():
        optimiser.step(closure)
    found = weight.detach() / scale
    return ExactLinearHead(map, task_sizes, found, bias.detach() - found @ centre).float()


def bayes_head(
    map: FeatureMap, task_sizes: Sequence[int], gaussians: ClassGaussians, shrinkage: float
) -> ExactQuadraticHead:
    """AdaGauss's: the distance of unit vectors in the inverse of each class's correlation.

    Args:
        map: of the features; it makes them unit vectors.
        task_sizes: classes of each task.
        gaussians: of all of them.
        shrinkage: how often the mean variance of a class is added to all of its variances first.

    """
    covariance = covariances(gaussians)
    variance = covariance.diagonal(dim1=1, dim2=2).clone()
    variance += shrinkage * variance.mean(1, keepdim=True).clamp_min(1e-12)
    covariance.diagonal(dim1=1, dim2=2).copy_(variance)
    correlation = covariance / variance.sqrt()[:, :, None] / variance.sqrt()[:, None, :]
    mean = normalize(gaussians.mean.double().cpu(), dim=1)
    precision = torch.linalg.inv(correlation)
    unit = FeatureMap(map.blocks, map.sizes, unit=True)
    return ExactQuadraticHead(unit, task_sizes, mean, precision).float()


def covariances(gaussians: ClassGaussians) -> Tensor:
    """(K, D, D) in float64 on the processor."""
    std = gaussians.std.double().cpu()
    if gaussians.correlations is None:
        return torch.diag_embed(std.square())
    return std[:, :, None] * gaussians.correlations.double().cpu() * std[:, None, :]


def _safe(covariance: Tensor) -> Tensor:
    """With as much on the diagonal as a covariance of few images needs to have a factor."""
    added = 1e-4 * covariance.diagonal(dim1=1, dim2=2).mean(1) + 1e-12
    return covariance + added[:, None, None] * torch.eye(covariance.shape[1], dtype=covariance.dtype)
