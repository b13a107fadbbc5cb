from __future__ import annotations

import pytest
import torch
from torch import nn

from remix.networks import create_backbone
from remix.statistics import (
    batchnorm_points,
    batchnorm_statistics,
    measure_layers,
    rescale_to_batchnorm,
)


def test_resnet32_has_31_batchnorm_inputs():
    points = batchnorm_points(create_backbone("resnet32"))
    assert len(points) == 31
    assert str(points[0]) == "stem.bn:input"
    assert str(points[-1]) == "stage_4.0.bn2:input"


def test_running_statistics_are_layer_statistics(network):
    statistics = batchnorm_statistics(network)
    layer = statistics["stage_2.0.bn1:input:channels"]
    assert torch.equal(layer.mean, network.stage_2[0].bn1.running_mean)
    assert torch.equal(layer.variance, network.stage_2[0].bn1.running_var)
    assert layer.kinds == ("diagonal",)
    assert len(statistics) == len(batchnorm_points(network))


def test_they_are_a_copy_that_later_training_does_not_move(network, images):
    layer = batchnorm_statistics(network)["stem.bn:input:channels"]
    before = layer.mean.clone()
    network.train()(images + 3)
    assert torch.equal(layer.mean, before)


def test_rescaling_takes_running_moments_and_keeps_correlations(network, images):
    layers = measure_layers(network, [images], batchnorm_points(network)[:3], kinds=("laplace", "dense"))
    rescaled = rescale_to_batchnorm(layers, network)
    layer, before = rescaled["stem.bn:input:channels"], layers["stem.bn:input:channels"]
    norm = network.stem.bn
    assert torch.equal(layer.mean, norm.running_mean)
    assert torch.allclose(layer.normal.variance, norm.running_var, rtol=1e-4)
    assert torch.allclose(layer.normal.loc, norm.running_mean)
    scale = (layer.variance / before.variance).sqrt()
    assert torch.allclose(layer.covariance, torch.outer(scale, scale) * before.covariance, atol=1e-5)


def test_other_points_and_views_are_passed_on(network, images):
    layers = measure_layers(network, [images], ["stem:output"], kinds=()) | measure_layers(
        network, [images], ["stem.bn:input"], "map", ()
    )
    rescaled = rescale_to_batchnorm(layers, network)
    assert all(rescaled[key] is layer for key, layer in layers.items())


def test_a_running_variance_of_zero_counts_as_eps(network):
    network.stem.bn.running_var[0] = 0
    assert batchnorm_statistics(network)["stem.bn:input:channels"].variance[0] == network.stem.bn.eps


def test_statistics_of_another_network_are_told(network, images):
    layers = measure_layers(network, [images], ["stem.bn:input"], kinds=())
    with pytest.raises(ValueError, match=r"another network: 'stem.bn:input:channels' has 4 channels, not 8"):
        rescale_to_batchnorm(layers, create_backbone("resnet20", width=8))


def test_layers_without_running_statistics_are_left_out():
    assert batchnorm_points(nn.Sequential(nn.BatchNorm1d(3, track_running_stats=False))) == []
