"""Ridge regression from sums, beside naive ones without every image."""

from __future__ import annotations

import pytest
import torch
from test_discriminant import SHAPES, example
from torch.nn.functional import one_hot

from remix.methods.ridge import Ridge, ridges_left_out
from remix.statistics import ClassSums


def naive(x: torch.Tensor, y: torch.Tensor, penalty: float) -> torch.Tensor:
    """Weights (K, D) by the normal equations."""
    identity = torch.eye(x.shape[1], dtype=torch.float64)
    return torch.linalg.solve(x.T @ x + penalty * identity, x.T @ one_hot(y, 4).double()).T


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("penalty", [0.1, 100.0])
def test_weights_from_sums_are_those_of_the_rows(shape, penalty):
    x, y = example(*shape)
    sums = ClassSums.of(x, y, "dense")
    found = Ridge(sums.mean, sums.weights(), sums.scatter.matrix(), penalty).weight
    assert torch.allclose(found, naive(x, y, penalty), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("penalty", [0.1, 100.0])
def test_leaving_an_image_out_is_as_a_regression_without_it(shape, penalty):
    x, y = example(*shape)
    sums = ClassSums.of(x, y, "dense")
    found = Ridge(sums.mean, sums.weights(), sums.scatter.matrix(), penalty).left_out(x, y)
    at_once = ridges_left_out(4, (penalty, 3.0), x, y, torch.arange(len(x)))[0]
    assert torch.allclose(at_once, found, atol=1e-7)
    some = torch.tensor([3, 1])
    assert torch.allclose(ridges_left_out(4, (penalty,), x, y, some)[0], found[some], atol=1e-7)
    for place in range(0, len(x), 7):
        others = torch.arange(len(x)) != place
        assert torch.allclose(found[place], x[place] @ naive(x[others], y[others], penalty).T, atol=1e-7)


def test_features_of_nothing_but_zeros_give_no_answer_and_no_error():
    x, y = torch.zeros(6, 3).double(), torch.arange(6) % 2
    assert torch.equal(ridges_left_out(2, (1.0,), x, y, torch.arange(6)), torch.zeros(1, 6, 2).double())
