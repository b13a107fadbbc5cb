from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from remix.networks import Backbone, as_backbone
from remix.networks.backbone import Block

SHAPE = (3, 16, 16)


class OwnNetwork(nn.Module):
    """What a user may bring: in-place activations, a functional step before the classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.act = nn.ReLU(inplace=True)
        self.body = nn.Sequential(
            nn.Sequential(nn.Conv2d(6, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(inplace=True)),
            nn.Sequential(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8)),
        )
        self.spare = nn.Linear(2, 2)
        self.classifier = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(self.act(self.norm(self.conv(x))))
        return self.classifier(F.adaptive_avg_pool2d(x, 1).flatten(1))


BLOCKS = [("conv", "norm", "act"), "body.0", "body.1"]


def test_named_modules_become_blocks():
    network = OwnNetwork()
    backbone = as_backbone(network, blocks=BLOCKS, input_shape=SHAPE)
    assert [block.name for block in backbone.blocks()] == ["conv+norm+act", "body.0", "body.1"]
    assert (backbone.feature_dim, backbone.input_shape) == (8, SHAPE)
    network.eval()
    x = torch.randn(2, *SHAPE)
    torch.testing.assert_close(network.classifier(backbone.pooled(x)), network(x))


def test_modes_and_hooks_are_as_before():
    network = OwnNetwork().train()
    network.norm.eval()
    statistics = network.norm.running_mean.clone()
    as_backbone(network, blocks=BLOCKS, input_shape=SHAPE)
    assert network.training
    assert network.body.training
    assert not network.norm.training
    assert torch.equal(network.norm.running_mean, statistics)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in network.modules())


def test_in_place_modules_are_switched_over():
    network = OwnNetwork()
    as_backbone(network, blocks=BLOCKS, input_shape=SHAPE)
    assert not network.act.inplace
    assert not network.body[0][2].inplace


def test_a_wrong_name_lists_the_candidates():
    with pytest.raises(
        ValueError, match=r"OwnNetwork has no module 'body\.2' \(did you mean 'body\.\d.*Modules: conv, norm"
    ):
        as_backbone(OwnNetwork(), blocks=["conv", "body.2"], input_shape=SHAPE)


def test_a_step_left_out_between_blocks_is_found():
    with pytest.raises(ValueError, match=r"what module 'body\.0' receives is not what module 'conv' gives"):
        as_backbone(OwnNetwork(), blocks=["conv", "body.0"], input_shape=SHAPE)


def test_a_step_left_out_before_the_first_block_is_found():
    with pytest.raises(ValueError, match="what module 'body' receives is not what the image gives"):
        as_backbone(OwnNetwork(), blocks=["body"], input_shape=SHAPE)


def test_a_module_that_never_runs_is_no_block():
    with pytest.raises(ValueError, match="module 'spare' does not run"):
        as_backbone(OwnNetwork(), blocks=["spare"], input_shape=SHAPE)


def test_a_module_that_runs_twice_is_no_block():
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act = nn.Tanh()

        def forward(self, x: Tensor) -> Tensor:
            return self.act(self.act(x))

    with pytest.raises(ValueError, match="module 'act' runs more than once"):
        as_backbone(Twice(), blocks=["act"], input_shape=SHAPE)


def test_images_the_network_cannot_take_are_named():
    with pytest.raises(ValueError, match=r"does not run on images of input_shape \(1, 16, 16\)"):
        as_backbone(OwnNetwork(), blocks=BLOCKS, input_shape=(1, 16, 16))


def test_hooks_are_gone_after_an_error():
    network = OwnNetwork()
    with pytest.raises(ValueError, match="receives"):
        as_backbone(network, blocks=["conv", "body.0"], input_shape=SHAPE)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in network.modules())


def test_a_network_without_blocks_says_what_to_add():
    with pytest.raises(TypeError, match=r"blocks=\[\.\.\.\].*derive it from .*Modules: conv, norm"):
        as_backbone(OwnNetwork())


def test_blocks_need_the_image_shape():
    with pytest.raises(TypeError, match=r"give input_shape=\(channels, height, width\)"):
        as_backbone(OwnNetwork(), blocks=BLOCKS)


def test_no_block_at_all_is_refused():
    with pytest.raises(ValueError, match="at least one module per block"):
        as_backbone(OwnNetwork(), blocks=[], input_shape=SHAPE)


def test_a_name_works_too():
    assert as_backbone("convnet8", width=4).feature_dim == 16
    assert as_backbone("resnet20", width=4, input_shape=(3, 64, 64)).input_shape == (3, 64, 64)
    with pytest.raises(TypeError, match="'convnet8' knows its blocks"):
        as_backbone("convnet8", blocks=["a"])
    with pytest.raises(TypeError, match="width: options go with a backbone's name"):
        as_backbone(OwnNetwork(), width=3)
    with pytest.raises(TypeError, match=r"an nn\.Module, got int"):
        as_backbone(3)


def test_a_network_that_keeps_the_promise_is_taken_as_it_is():
    class Own(Backbone):
        def __init__(self) -> None:
            super().__init__(SHAPE, 4)
            self.only = nn.Conv2d(3, 4, 3)

        def blocks(self) -> list[Block]:
            return [Block("only", self.only)]

    own = Own()
    assert as_backbone(own) is own
