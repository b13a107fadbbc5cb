from __future__ import annotations

import torch
from torch import nn

from remix.networks import as_backbone, create_backbone
from remix.statistics import Hooks, block_input_points, feature_point, measure_layers, resolution_points


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
