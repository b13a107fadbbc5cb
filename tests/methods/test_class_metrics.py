"""Metrics of classes, beside naive ones that are made anew without every image."""

from __future__ import annotations

import pytest
import torch
from test_discriminant import SHAPES, example

from remix.methods.class_metrics import class_metric, metric_left_out, metrics_left_out
from remix.statistics import ClassSums


def naive_metric(covariance: torch.Tensor, shrinkage: float, like: torch.Tensor) -> torch.Tensor:
    """The inverse, element by element; what is added and divided by is that of another covariance."""
    dim = len(like)
    variance = like.diagonal().mean()
    rest = (like.sum() - like.diagonal().sum()) / (dim * (dim - 1))
    added = shrinkage * rest * torch.ones(dim, dim).double()
    added.fill_diagonal_(float((shrinkage + 1e-4) * variance))
    deviation = (like + added).diagonal().sqrt()
    return torch.linalg.inv((covariance + added) / torch.outer(deviation, deviation))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("shrinkage", [0.3, 10.0])
def test_distances_without_an_image_are_those_of_a_class_without_it(shape, shrinkage):
    x, y = example(*shape)
    sums = ClassSums.of(x, y, "dense", own=True)
    at_once = metrics_left_out(sums.mean, (shrinkage, 1.0), x, y, torch.arange(len(x)))[0]
    some = torch.tensor([3, 1])
    assert torch.allclose(metrics_left_out(sums.mean, (shrinkage,), x, y, some)[0], at_once[some])
    for label, count in enumerate(sums.counts):
        own, away = y == label, x - sums.mean[label]
        covariance = sums.scatter.matrix(label) / count
        metric = class_metric(covariance, shrinkage)
        assert torch.allclose(metric, naive_metric(covariance, shrinkage, covariance), atol=1e-7)
        distances = ((away @ metric) * away).sum(1)
        assert torch.allclose(at_once[~own, label], -distances[~own])
        found = metric_left_out(covariance, metric, shrinkage, count, away[own])
        assert torch.allclose(at_once[own, label], -found)
        rows = x[own]
        for place in range(0, count, 5):
            others = rows[torch.arange(count) != place]
            apart = others - others.mean(0)
            without = naive_metric(apart.T @ apart / count, shrinkage, covariance)
            d = rows[place] - others.mean(0)
            assert float(found[place]) == pytest.approx(float(d @ without @ d), rel=1e-6)


def test_a_class_that_does_not_vary_has_a_metric_without_correlations():
    metric = class_metric(torch.zeros(3, 3).double(), 2.0)
    assert torch.allclose(metric, 1.5 * torch.eye(3).double())
    x, y = torch.ones(4, 3).double(), torch.tensor([0, 0, 1, 1])
    found = metrics_left_out(torch.ones(2, 3).double(), (2.0,), x, y, torch.arange(4))
    assert torch.equal(found, torch.zeros(1, 4, 2).double())


def test_features_whose_sum_never_varies_are_no_reason_to_divide_by_nothing():
    x = torch.randn(50, 4, dtype=torch.float64)
    x = x - x.mean(1, keepdim=True)
    apart = x - x.mean(0)
    assert torch.isfinite(class_metric(apart.T @ apart / 50, 1.0)).all()


def test_a_scatter_with_negative_eigenvalues_is_none():
    with pytest.raises(ValueError, match="negative eigenvalues"):
        class_metric(torch.tensor([[1.0, 9.0], [9.0, 1.0]]).double(), 0.1)
