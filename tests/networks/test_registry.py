"""Every registered backbone keeps the promises of the room."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from remix.networks import (
    Backbone,
    ConvNet,
    Pooling,
    backbone_options,
    check_backbone,
    create_backbone,
    list_backbones,
    register_backbone,
    registry,
    seeded_backbone,
)

TINY_VIT = (
    '{"model_type": "vit", "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8, '
    '"image_size": 16, "patch_size": 8}'
)
IMAGENET = ("resnet18", "resnet34", "resnet50")


def small(name: str, seed: int = 0) -> Backbone:
    """Build a backbone narrow enough for a test, with BatchNorm layers that do something."""
    size = {"input_shape": (3, 64, 64)} if name in IMAGENET else {}
    generator = torch.Generator().manual_seed(seed)
    if name == "transformer":
        return seeded_backbone(name, seed, config=TINY_VIT)
    backbone = create_backbone(name, width=4, generator=generator, **size)
    for module in backbone.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5, generator=generator)
            nn.init.normal_(module.running_mean, generator=generator)
    return backbone


def images(backbone: Backbone, count: int = 3) -> torch.Tensor:
    return torch.randn(count, *backbone.input_shape, generator=torch.Generator().manual_seed(1))


@pytest.fixture(params=list_backbones())
def backbone(request: pytest.FixtureRequest) -> Backbone:
    return small(request.param)


def test_keeps_the_protocol(backbone):
    assert isinstance(backbone, Backbone)
    check_backbone(backbone)


@pytest.mark.parametrize("training", [False, True])
def test_blocks_in_sequence_are_the_features_bit_for_bit(backbone, training):
    backbone.train(training)
    x = images(backbone)
    for block in backbone.blocks():
        x = block(x)
    assert torch.equal(x, backbone.features(images(backbone)))


def test_every_block_starts_from_its_input_alone(backbone):
    backbone.eval()
    x = images(backbone)
    outputs = []
    for block in backbone.blocks():
        outputs.append((x, block(x)))
        x = outputs[-1][1]
    for block, (block_input, expected) in reversed(list(zip(backbone.blocks(), outputs, strict=True))):
        assert torch.equal(block(block_input), expected)


def test_pooled_is_the_average_over_positions(backbone):
    backbone.eval()
    maps = backbone.features(images(backbone))
    assert backbone.pooled(images(backbone)).shape == (3, backbone.feature_dim)
    expected = maps if maps.dim() == 2 else maps.flatten(2).mean(2)  # the last block of a transformer has no positions
    torch.testing.assert_close(backbone.pooled(images(backbone)), expected)


def test_block_names_differ_and_hold_all_parameters(backbone):
    names = [block.name for block in backbone.blocks()]
    assert len(set(names)) == len(names)
    in_blocks = {id(p) for block in backbone.blocks() for p in block.module.parameters()}
    assert in_blocks == {id(parameter) for parameter in backbone.parameters()}


def test_nothing_works_in_place(backbone):
    assert not any(getattr(module, "inplace", False) for module in backbone.modules())
    x = images(backbone)
    for block in backbone.blocks():
        before = x.clone()
        y = block(x)
        assert torch.equal(x, before)
        x = y


def test_gradients_reach_the_image_through_a_frozen_network(backbone):
    backbone.eval().requires_grad_(False)
    x = images(backbone).requires_grad_()
    backbone.pooled(x).square().sum().backward()
    assert x.grad.isfinite().all()
    assert x.grad.abs().sum() > 0


def test_blocks_add_no_keys_to_the_state(backbone):
    before = list(backbone.state_dict())
    backbone.blocks()
    assert list(backbone.state_dict()) == before


def test_a_copy_has_blocks_of_its_own(backbone):
    twin = copy.deepcopy(backbone)
    nn.init.zeros_(next(twin.blocks()[0].module.parameters()))
    assert next(backbone.blocks()[0].module.parameters()).abs().sum() > 0
    assert next(twin.parameters()).abs().sum() == 0


@pytest.mark.parametrize("name", list_backbones())
def test_a_seed_settles_the_initial_weights(name):
    first, again, other = small(name).state_dict(), small(name).state_dict(), small(name, seed=1).state_dict()
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


def test_grey_images_for_a_colour_network_are_refused(backbone):
    wrong = 3 if backbone.input_shape[0] == 1 else 1
    with pytest.raises(ValueError, match=r"takes a batch of (grey|colour) images \(N, \d, H, W\), got shape"):
        backbone.features(torch.zeros(2, wrong, 32, 32))


def test_an_image_without_batch_axis_is_refused(backbone):
    with pytest.raises(ValueError, match="takes a batch of"):
        backbone.features(torch.zeros(backbone.input_shape))


def test_patterns_choose_names():
    assert list_backbones("resnet*") == [
        "resnet18",
        "resnet20",
        "resnet32",
        "resnet34",
        "resnet44",
        "resnet50",
        "resnet56",
    ]
    assert list_backbones("convnet*") == ["convnet8", "convnet28"]
    assert list_backbones("nothing*") == []


def test_unknown_name_says_what_to_type():
    with pytest.raises(
        ValueError, match=r"no backbone is called 'resnet33' \(did you mean 'resnet3\d'\?\); known: .*resnet56"
    ):
        create_backbone("resnet33")


def test_unknown_option_lists_the_options():
    with pytest.raises(
        TypeError, match=r"'resnet32' has no option 'widht' \(did you mean 'width'\?\); it takes: width=16"
    ):
        create_backbone("resnet32", widht=8)


def test_what_a_name_settles_is_no_option():
    options = {"width", "final_relu", "padding", "stem_stride", "input_shape", "generator"}
    assert set(backbone_options("resnet32")) == options
    with pytest.raises(TypeError, match="no option 'depth'"):
        create_backbone("resnet32", depth=20)


def test_a_registered_network_is_created_by_its_name(monkeypatch):
    monkeypatch.setattr(registry, "_factories", dict(registry._factories))
    register_backbone("my_convnet", input_shape=(1, 12, 12))(ConvNet)
    assert create_backbone("my_convnet", width=2).input_shape == (1, 12, 12)
    assert list_backbones("my*") == ["my_convnet"]


def test_a_shape_that_is_no_image_is_refused():
    with pytest.raises(ValueError, match=r"input_shape must be \(channels, height, width\), .* got \(32, 32\)"):
        create_backbone("resnet20", input_shape=(32, 32))


def test_a_name_is_given_once():
    with pytest.raises(ValueError, match="'resnet32' is registered already"):
        register_backbone("resnet32")(nn.Identity)


@pytest.mark.parametrize("name", ["resnet18", "resnet20", "convnet8"])
def test_features_from_any_block_to_any_other_are_those_of_the_whole_network(name):
    options = {"input_shape": (3, 32, 32)} if name == "resnet18" else {}
    backbone = create_backbone(name, width=4, generator=torch.Generator().manual_seed(0), **options).eval()
    images, count = torch.randn(2, *backbone.input_shape), len(backbone.blocks())
    with torch.no_grad():
        whole, pooled = backbone.features(images), backbone.pooled(images)
        for middle in range(count + 1):
            below = backbone.features(images, stop=middle)
            assert torch.equal(backbone.features(below, middle), whole)
            assert torch.equal(backbone.pooled(below, middle), pooled)
        below = backbone.features(images, stop=2)
        several = backbone.pooled(below, 2, at=Pooling((2, count - 1)))
        assert torch.equal(several[:, : -backbone.feature_dim], backbone.features(images, stop=3).mean((2, 3)))
        assert torch.equal(several[:, -backbone.feature_dim :], pooled)


def test_statistics_are_taken_at_batchnorm_inputs_from_the_block_that_is_asked_for():
    backbone = create_backbone("convnet8", width=4)
    assert [str(point) for point, _ in backbone.watched(3)] == ["convolutions.3.bn:input", "convolutions.4.bn:input"]
    assert [str(point) for point, _ in backbone.block_inputs()] == [f"convolutions.{i}:input" for i in (1, 2, 3, 4)]
    assert [str(point) for point, _ in backbone.block_inputs(3)] == ["convolutions.3:input", "convolutions.4:input"]
    assert len(backbone.trainable(3)) == 2
