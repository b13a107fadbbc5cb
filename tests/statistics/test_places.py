"""Where statistics are taken."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from remix.networks import as_backbone, create_backbone
from remix.statistics import (
    Hooks,
    batchnorm_points,
    batchnorm_statistics,
    block_input_points,
    feature_point,
    measure_layers,
    rescale_to_batchnorm,
    resolution_points,
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


def block_inputs(backbone, images: torch.Tensor) -> dict[str, torch.Tensor]:
    """The obvious twin: run the blocks one after the other."""
    backbone.eval()
    inputs, x = {}, images
    with torch.no_grad():
        for block in backbone.blocks():
            inputs[block.name] = x
            x = block(x)
    return inputs


def test_block_inputs_are_the_residual_stream_itself_not_the_batchnorm_before_it(network, images):
    points = block_input_points(network)
    assert list(points) == [block.name for block in network.blocks()[1:]]
    layers = measure_layers(network, images.split(8), list(points.values()), kinds=())
    expected = block_inputs(network, images)
    for name, point in points.items():
        layer = layers[f"{point}:channels"]
        assert torch.allclose(layer.mean, expected[name].mean((0, 2, 3)), atol=1e-5)
        assert torch.allclose(layer.variance, expected[name].var((0, 2, 3), correction=0), rtol=1e-4)
    # The affine parameters of the BatchNorm before describe one branch of the sum only.
    before = network.stage_1[1].bn2
    layer = layers["stage_1.2:input:channels"]
    assert (layer.variance - before.weight.square()).abs().max() > 0.1


def test_the_feature_point_gives_the_features(network, images):
    network.eval()
    with Hooks(network, [feature_point(network)]) as hooks:
        features = network.features(images)
    assert hooks[feature_point(network)] is features


def test_resnet32_has_15_block_inputs():
    assert len(block_input_points(create_backbone("resnet32"))) == 15


def test_maps_are_taken_at_the_end_of_every_resolution():
    small = [str(point) for point in resolution_points(create_backbone("resnet32", width=4))]
    assert small == ["stage_1.4:output", "stage_2.4:output", "stage_4.0:output"]
    photos = resolution_points(create_backbone("resnet18", width=8, input_shape=(3, 64, 64)))
    assert [str(point) for point in photos] == [f"layer{stage}.1:output" for stage in (1, 2, 3, 4)]


def test_blocks_of_several_modules_are_watched_at_their_ends():
    own = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 5, 3), nn.ReLU())
    backbone = as_backbone(own.eval(), blocks=[["0", "1", "2"], ["3", "4"]], input_shape=(3, 8, 8))
    images = torch.randn(2, 3, 8, 8)
    points = block_input_points(backbone)
    with Hooks(backbone, [*points.values(), feature_point(backbone)]) as hooks:
        features = backbone.features(images)
    assert torch.equal(hooks[points["3+4"]], block_inputs(backbone, images)["3+4"])
    assert hooks[feature_point(backbone)] is features
