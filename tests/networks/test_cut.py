"""Cutting a backbone: both parts are the network, under the same names."""

import copy

import pytest
import torch

from remix.networks import ModuleBackbone, check_backbone, create_backbone
from remix.networks.cut import cut, last_stage
from remix.statistics import batchnorm_points, block_input_points


def small(name: str = "resnet18", **options):
    generator = torch.Generator().manual_seed(0)
    return create_backbone(name, width=4, generator=generator, **options).eval()


@pytest.mark.parametrize(
    ("name", "options"), [("resnet18", {"input_shape": (3, 32, 32)}), ("resnet20", {}), ("convnet8", {})]
)
def test_trunk_then_top_is_the_whole_network(name, options):
    whole = small(name, **options)
    images = torch.randn(2, *whole.input_shape)
    for frozen in range(1, len(whole.blocks())):
        trunk, top = cut(whole, frozen)
        torch.testing.assert_close(top.pooled(trunk(images)), whole.pooled(images), rtol=0, atol=0)
        assert [b.name for b in top.blocks()] == [b.name for b in whole.blocks()][frozen:]


def test_the_top_keeps_the_promises_of_a_backbone():
    check_backbone(cut(small(), 5)[1])


def test_weights_and_statistics_have_the_names_of_the_whole_network():
    whole = small()
    _, top = cut(whole, 5)
    assert set(top.state_dict()) < set(whole.state_dict())
    assert set(batchnorm_points(top)) < set(batchnorm_points(whole))
    assert set(block_input_points(top).values()) < set(block_input_points(whole).values())


def test_what_the_first_block_of_the_top_receives_is_measured():
    whole = small()
    _, top = cut(whole, 5)
    assert next(iter(block_input_points(top))) == whole.blocks()[5].name


def test_both_parts_share_their_modules_with_the_network():
    whole = small()
    _, top = cut(whole, 5)
    with torch.no_grad():
        for parameter in top.parameters():
            parameter.zero_()
    assert float(whole.pooled(torch.randn(2, 3, 64, 64)).detach().abs().sum()) == 0


def test_a_trunk_never_leaves_eval_mode_and_gives_no_gradients():
    whole = small("resnet20")
    trunk, _ = cut(whole, 3)
    before = copy.deepcopy(trunk.state_dict())
    trunk.train()
    assert not trunk(torch.randn(4, 3, 32, 32)).requires_grad
    assert all(torch.equal(before[key], value) for key, value in trunk.state_dict().items())


def test_a_copy_of_the_top_does_not_carry_the_trunk():
    whole = small()
    _, top = cut(whole, 6)
    assert set(copy.deepcopy(top).state_dict()) == set(top.state_dict())
    assert not isinstance(getattr(top, "_pool", None), torch.nn.Module)


def test_the_last_stage_begins_where_the_last_resolution_does():
    assert small().blocks()[last_stage(small())].name == "layer4.0"
    assert small("resnet20").blocks()[last_stage(small("resnet20"))].name == "stage_3.0"


def test_a_network_of_modules_of_the_user_is_cut_too():
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(4, 6, 3, stride=2), torch.nn.ReLU()
    )
    whole = ModuleBackbone(network, [["0", "1"], ["2", "3"]], (3, 8, 8)).eval()
    trunk, top = cut(whole, 1)
    images = torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(top.pooled(trunk(images)), whole.pooled(images), rtol=0, atol=0)
    assert set(top.state_dict()) < set(whole.state_dict())


@pytest.mark.parametrize("frozen", [0, 9, -1, 100])
def test_something_must_be_left_on_both_sides(frozen):
    with pytest.raises(ValueError, match="of the 9 blocks can be frozen"):
        cut(small(), frozen)
