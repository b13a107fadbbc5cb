"""Discriminants from sums, beside naive ones that are fitted anew without every image."""

from __future__ import annotations

import pytest
import torch

from remix.methods.discriminant import Discriminant, discriminants_left_out, reckoned_shrinkage
from remix.statistics import ClassSums

SHAPES = [(40, 60), (80, 9)]  # fewer images than features, and more


def example(images: int, dim: int, classes: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(images, dim, generator=generator, dtype=torch.float64)
    y = torch.arange(images) % classes
    return x @ torch.randn(dim, dim, generator=generator).double() + 3 * torch.randn(classes, dim).double()[y] + 5, y


def naive_scores(
    sums: ClassSums, shrinkage: float, x: torch.Tensor, target: torch.Tensor, freedom: int
) -> torch.Tensor:
    """Scores of rows, with the whole inverse, shrunk towards a given diagonal."""
    inverse = torch.linalg.inv((1 - shrinkage) * sums.scatter.matrix() / freedom + shrinkage * torch.diag(target))
    return x @ inverse @ sums.mean.T - 0.5 * ((sums.mean @ inverse) * sums.mean).sum(1)


def centred(scores: torch.Tensor) -> torch.Tensor:
    """No answer depends on what is added to all classes."""
    return scores - scores.mean(-1, keepdim=True)


def diagonal_of(sums: ClassSums) -> torch.Tensor:
    variance = sums.scatter.squares()[0] / sums.freedom
    return variance + 1e-4 * variance.mean()


def solved(sums: ClassSums, shrinkage: float) -> Discriminant:
    return Discriminant(sums.mean, sums.scatter.matrix(), sums.freedom, shrinkage)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("shrinkage", [0.01, 0.3, 1.0])
def test_weights_and_biases_give_the_scores_of_the_textbook(shape, shrinkage):
    x, y = example(*shape)
    sums = ClassSums.of(x, y, "dense")
    weight, bias = solved(sums, shrinkage).weights()
    expected = naive_scores(sums, shrinkage, x, diagonal_of(sums), sums.freedom)
    assert torch.allclose(centred(x @ weight.T + bias), centred(expected), rtol=1e-6, atol=1e-6)
    assert float(weight.sum(0).abs().max()) < 1e-9


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("shrinkage", [0.01, 0.3, 1.0])
def test_leaving_an_image_out_is_as_a_discriminant_fitted_without_it(shape, shrinkage):
    x, y = example(*shape)
    sums = ClassSums.of(x, y, "dense")
    found = centred(solved(sums, shrinkage).left_out(sums.weights(), x, y))
    for place in range(0, len(x), 7):
        others = torch.arange(len(x)) != place
        without = ClassSums.of(x[others], y[others], "dense")
        expected = naive_scores(without, shrinkage, x[place], diagonal_of(sums), sums.freedom)
        assert torch.allclose(found[place], centred(expected), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_all_shrinkages_at_once_are_as_one_by_one(shape):
    x, y = example(*shape)
    sums = ClassSums.of(x, y, "dense")
    shrinkages = (0.02, 0.5, 0.98)
    found = discriminants_left_out(sums.mean, shrinkages, x, y, torch.arange(len(x)))
    some = torch.tensor([3, 1])
    assert torch.allclose(discriminants_left_out(sums.mean, shrinkages, x, y, some), found[:, some])
    for scores, shrinkage in zip(found, shrinkages, strict=True):
        expected = solved(sums, shrinkage).left_out(sums.weights(), x, y)
        assert torch.allclose(centred(scores), centred(expected), rtol=1e-6, atol=1e-6)


def test_with_the_diagonal_alone_only_means_are_left_out():
    x, y = example(40, 6)
    sums = ClassSums.of(x, y, "diagonal")
    found = Discriminant(sums.mean, sums.scatter.matrix(), sums.freedom, 1.0).left_out(sums.weights(), x, y)
    dense = solved(ClassSums.of(x, y, "dense"), 1.0).left_out(sums.weights(), x, y)
    assert torch.allclose(centred(found), centred(dense), atol=1e-9)


def test_a_held_covariance_knows_the_image_and_is_surer():
    x, y = example(40, 60)
    sums = ClassSums.of(x, y, "dense")
    whole = solved(sums, 0.1)
    sure, fair = whole.left_out(sums.weights(), x, y, held=True), whole.left_out(sums.weights(), x, y)
    own = y[:, None]
    margins = [float(centred(scores).gather(1, own).mean()) for scores in (sure, fair)]
    assert margins[0] > margins[1]


@pytest.mark.parametrize("shrinkage", [0.01, 0.9])
def test_features_that_never_vary_have_no_weight(shrinkage):
    x, y = example(30, 5)
    x[:, 2] = 7.0
    weight, bias = solved(ClassSums.of(x, y, "dense"), shrinkage).weights()
    assert torch.equal(weight[:, 2], torch.zeros(4).double())
    assert torch.isfinite(weight).all()
    assert torch.isfinite(bias).all()


def test_where_nothing_varies_the_nearest_mean_wins():
    means = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 4.0]]).double()
    x, y = means.repeat(3, 1), torch.arange(9) % 3
    sums = ClassSums.of(x, y, "dense")
    weight, bias = solved(sums, 0.5).weights()
    asked = torch.tensor([[0.9, 0.0], [1.1, 0.5], [0.0, 2.1]]).double()
    assert (asked @ weight.T + bias).argmax(1).tolist() == [0, 1, 2]
    assert discriminants_left_out(sums.mean, (0.5,), x, y, torch.arange(9))[0].argmax(1).tolist() == y.tolist()


def test_a_scatter_with_negative_eigenvalues_is_none():
    matrix = torch.tensor([[1.0, 5.0], [5.0, 1.0]]).double()
    with pytest.raises(ValueError, match="negative eigenvalues"):
        Discriminant(torch.zeros(2, 2).double(), matrix, 3, 0.1)


def test_shrinkage_is_reckoned_from_how_sure_images_are_of_correlations():
    x, y = example(60, 8)
    sums = ClassSums.of(x, y, "dense")
    variance, unsure, certain = diagonal_of(sums), 0.0, 0.0
    for i in range(8):
        for j in range(8):
            if i != j:
                r2 = float(sums.scatter.matrix()[i, j] ** 2 / sums.freedom**2 / variance[i] / variance[j])
                unsure, certain = unsure + (1 - r2) ** 2 / sums.freedom, certain + r2
    assert reckoned_shrinkage(sums.scatter.matrix(), sums.freedom) == pytest.approx(unsure / certain)


def test_the_reckoned_shrinkage_falls_with_more_images_and_never_leaves_its_range():
    x = torch.randn(100, 20, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert reckoned_shrinkage(x.T @ x, 100) > 0.8  # independent features have no correlations to keep
    correlated = [reckoned_shrinkage(n * (0.5 + 0.5 * torch.eye(20, dtype=torch.float64)), n) for n in (10, 100, 10**6)]
    assert 1 > correlated[0] > correlated[1] > correlated[2] == 1e-3
    assert reckoned_shrinkage(torch.zeros(3, 3, dtype=torch.float64), 5) == 1
    assert reckoned_shrinkage(torch.ones(1, 1, dtype=torch.float64), 5) == 1
