from __future__ import annotations

import pytest
import torch
from torch.distributions import MultivariateNormal

from remix.laplace import LaplaceCovariance, LaplaceNormal
from remix.networks import Point
from remix.networks.views import CHANNELS, MAP
from remix.statistics import Dense, Laplace, LayerStatistics
from remix.statistics.dense import shrunk_covariance
from remix.statistics.measure import positive_covariance, positive_variance

POINT = Point("bn", "input")


def example(dim: int = 5, images: int = 100) -> LayerStatistics:
    generator = torch.Generator().manual_seed(0)
    diag, weight, coord = torch.rand(3, dim, generator=generator) + 0.2
    normal = LaplaceNormal(torch.randn(dim, generator=generator), LaplaceCovariance(diag, weight, coord))
    sigma = normal.covariance_matrix
    covariances = {"laplace": Laplace(normal), "dense": Dense(sigma)}
    return LayerStatistics(POINT, CHANNELS, (dim, 4, 4), images, normal.loc, sigma.diagonal().clone(), covariances)


def test_each_kind_of_prior_is_the_normal_it_names():
    layer = example()
    rows = torch.randn(7, 5)
    assert layer.kinds == ("diagonal", "laplace", "dense")
    diagonal = MultivariateNormal(layer.mean, torch.diag(layer.variance)).log_prob(rows)
    assert torch.allclose(layer.prior("diagonal").log_prob(rows), diagonal, atol=1e-5)
    laplace = MultivariateNormal(layer.mean, layer.covariance).log_prob(rows)
    assert torch.allclose(layer.prior("laplace").log_prob(rows), laplace, atol=1e-4)
    dense = MultivariateNormal(layer.mean, shrunk_covariance(layer.covariance, 1600)).log_prob(rows)
    assert torch.allclose(layer.prior("dense").log_prob(rows), dense)


def test_every_row_of_every_image_is_a_sample():
    assert example().samples == 100 * 16
    assert LayerStatistics(POINT, MAP, (2, 3, 4), 7, torch.zeros(24), torch.ones(24)).samples == 7


def test_a_prior_that_was_not_measured_is_told():
    layer = LayerStatistics(POINT, CHANNELS, (2, 4, 4), 3, torch.zeros(2), torch.ones(2))
    assert layer.kinds == ("diagonal",)
    with pytest.raises(ValueError, match=r"no 'dense' prior at 'bn:input:channels'; measured are: diagonal"):
        layer.prior("dense")


def test_rescaling_keeps_correlations_and_sets_the_moments():
    layer, mean, variance = example(), torch.arange(5.0), torch.rand(5) + 0.5
    rescaled = layer.rescale(mean, variance)
    before = layer.covariance / (layer.variance.sqrt()[:, None] * layer.variance.sqrt())
    for matrix in (rescaled.covariance, rescaled.normal.covariance_matrix):
        assert torch.allclose(matrix, before * (variance.sqrt()[:, None] * variance.sqrt()), atol=1e-5)
    assert torch.equal(rescaled.mean, mean)
    assert torch.equal(rescaled.variance, variance)
    assert torch.equal(rescaled.normal.loc, mean)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mean": torch.zeros(4)}, r"mean at 'bn:input:channels' must be .* shape \(5,\)"),
        ({"mean": torch.full((5,), torch.nan)}, "mean .* must be finite"),
        ({"mean": torch.zeros(5, dtype=torch.uint8)}, "floating-point"),
        ({"variance": torch.zeros(5)}, "variance .* must be positive"),
        ({"covariances": {"dense": Dense(torch.eye(4))}}, r"covariance .* shape \(5, 5\)"),
        ({"covariances": {"laplace": Laplace(example(4).normal)}}, "single normal of 5 coordinates"),
        ({"images": -1}, "images"),
    ],
)
def test_statistics_that_do_not_fit_together_are_refused(change, message):
    layer = example()
    fields = {name: getattr(layer, name) for name in ("images", "mean", "variance", "covariances")}
    with pytest.raises(ValueError, match=message):
        LayerStatistics(point=POINT, view=CHANNELS, shape=(5, 4, 4), **(fields | change))


def test_a_batch_of_images_cannot_be_statistics():
    images = torch.rand(2, 3, 4, 4)
    with pytest.raises(ValueError, match=r"shape \(48,\)"):
        LayerStatistics(Point("", "input"), MAP, (3, 4, 4), 2, images, torch.ones(48))


def test_moving_keeps_everything():
    layer = example()
    moved = layer.to("cpu")
    assert moved.key == layer.key
    assert torch.equal(moved.normal.covariance_matrix, layer.normal.covariance_matrix)


def test_only_constant_channels_are_given_a_variance():
    variance = torch.tensor([4.0, 0.0, 2.0, 1e-20])
    positive = positive_variance(variance, images=9)
    assert torch.equal(positive[[0, 2]], variance[[0, 2]])
    assert torch.allclose(positive[[1, 3]], torch.full((2,), 1.5 / 10))
    with pytest.raises(ValueError, match="nothing varies"):
        positive_variance(torch.zeros(3), images=9)


def test_constant_channels_are_uncorrelated():
    covariance = torch.tensor([[4.0, 1e-12, 1.0], [1e-12, 0.0, 0.0], [1.0, 0.0, 2.0]])
    positive = positive_covariance(covariance, torch.tensor([4.0, 0.5, 2.0]))
    assert torch.equal(positive, torch.tensor([[4.0, 0.0, 1.0], [0.0, 0.5, 0.0], [1.0, 0.0, 2.0]]))


def test_shrinkage_keeps_variances_vanishes_with_many_images_and_is_full_with_few():
    rows = torch.randn(400, 6, generator=torch.Generator().manual_seed(0)) @ torch.rand(6, 6)
    covariance = rows.mT.cov()
    for images in (2, 400, 10**7):
        assert torch.allclose(shrunk_covariance(covariance, images).diagonal(), covariance.diagonal())
    assert torch.allclose(shrunk_covariance(covariance, 10**7), covariance, rtol=2e-3, atol=1e-3)
    few = (shrunk_covariance(covariance, 2) / covariance)[0, 1]
    many = (shrunk_covariance(covariance, 400) / covariance)[0, 1]
    assert 0 <= few < many < 1


def test_a_singular_covariance_becomes_a_density():
    rows = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    covariance = rows.mT.cov()
    assert torch.linalg.eigvalsh(shrunk_covariance(covariance, 3)).min() > 0
    assert torch.linalg.eigvalsh(shrunk_covariance(torch.ones(8, 8), 10**9)).min() > 0
