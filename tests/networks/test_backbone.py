"""What is read of a network's blocks: averages, or where in the image something is and how much it varies."""

import pytest
import torch

from remix.networks import Pooling, create_backbone
from remix.networks.backbone import detail_pool, detail_size


def test_detail_is_means_of_quarters_and_then_deviations_over_positions():
    maps = torch.randn(3, 2, 4, 6)
    found = detail_pool(maps)
    halves = [slice(0, 2), slice(2, 4)], [slice(0, 3), slice(3, 6)]
    for image, row in zip(maps, found, strict=True):
        quarters = [float(channel[y, x].mean()) for channel in image for y in halves[0] for x in halves[1]]
        spreads = [float(channel.std(correction=0)) for channel in image]
        assert row.tolist() == pytest.approx(quarters + spreads, rel=1e-4, abs=1e-6)
    assert found.shape[1] == detail_size((2, 4, 6)) == 10


@pytest.mark.parametrize("shape", [(3, 1, 1), (3, 1, 4), (3, 5, 5), (3, 2, 2)])
def test_small_and_odd_maps_have_as_many_numbers_as_is_said(shape):
    found = detail_pool(torch.randn(2, *shape))
    assert found.shape == (2, detail_size(shape))
    assert torch.isfinite(found).all()


def test_the_deviation_of_a_constant_map_has_a_gradient():
    maps = torch.ones(1, 1, 4, 4, requires_grad=True)
    detail_pool(maps).sum().backward()
    assert torch.isfinite(maps.grad).all()


def test_blocks_are_read_in_detail_side_by_side_from_any_block_on():
    backbone = create_backbone("convnet8", width=4, generator=torch.Generator().manual_seed(0)).eval()
    images = torch.randn(2, *backbone.input_shape)
    outputs = [backbone.features(images, stop=number + 1) for number in (2, 4)]
    expected = torch.cat([detail_pool(output) for output in outputs], 1)
    assert torch.equal(backbone.pooled(images, at=Pooling((2, 4), detail=True)), expected)
    assert torch.equal(backbone.pooled(backbone.features(images, stop=2), 2, Pooling((2, 4), detail=True)), expected)
    with pytest.raises(ValueError, match="cannot be had from block 4"):
        backbone.pooled(images, 4, Pooling((2, 4)))
