from __future__ import annotations

import pytest
import torch
from torch import nn

from remix.networks import create_backbone


@pytest.mark.parametrize(
    ("name", "parameters", "blocks", "feature_dim"),
    [("resnet18", 11_176_512, 9, 512), ("resnet34", 21_284_672, 17, 512), ("resnet50", 23_508_032, 17, 2048)],
)
def test_counts_are_those_of_the_published_networks_without_their_head(name, parameters, blocks, feature_dim):
    with torch.device("meta"):
        net = create_backbone(name)
    assert sum(parameter.numel() for parameter in net.parameters()) == parameters
    assert len(net.blocks()) == blocks
    assert net.feature_dim == feature_dim


def test_keys_have_the_usual_names():
    keys = set(create_backbone("resnet18", width=2).state_dict())
    assert {"conv1.weight", "bn1.running_mean", "layer1.0.conv1.weight", "layer4.1.bn2.bias"} <= keys
    assert {"layer2.0.downsample.0.weight", "layer2.0.downsample.1.running_var"} <= keys
    assert "layer1.0.downsample.0.weight" not in keys
    deep = set(create_backbone("resnet50", width=2).state_dict())
    assert {"layer1.0.downsample.0.weight", "layer3.5.conv3.weight", "layer4.2.bn3.weight"} <= deep


def test_feature_map_is_a_thirty_second_of_the_image():
    net = create_backbone("resnet18", width=2, input_shape=(3, 112, 112)).eval()
    assert net.features(torch.zeros(1, 3, 112, 112)).shape == (1, 16, 4, 4)


def test_the_bottleneck_strides_in_its_3x3_convolution():
    block = create_backbone("resnet50", width=2).layer2[0]
    assert (block.conv1.stride, block.conv2.stride) == ((1, 1), (2, 2))


def test_a_hook_on_the_stem_fires_when_the_stem_runs_alone():
    net = create_backbone("resnet18", width=2).eval()
    seen = []
    handle = net.bn1.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0].shape))
    net.blocks()[0](torch.zeros(1, 3, 32, 32))
    handle.remove()
    assert seen == [(1, 2, 16, 16)]
    assert isinstance(net.blocks()[0].module, nn.Sequential)
