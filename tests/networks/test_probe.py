"""A backbone that breaks a promise is told which one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from remix.networks import Backbone, average_pool, check_backbone
from remix.networks.backbone import Block
from remix.networks.probe import evaluating


class Two(Backbone):
    def __init__(self, feature_dim: int = 4, first: nn.Module | None = None) -> None:
        super().__init__((3, 8, 8), feature_dim)
        self.first = nn.Tanh() if first is None else first
        self.second = nn.Conv2d(3, 4, 3)

    def blocks(self) -> list[Block]:
        return [Block("first", self.first), Block("second", self.second)]


def test_a_good_one_passes():
    check_backbone(Two())


def test_not_a_module():
    with pytest.raises(TypeError, match="str is not a backbone"):
        check_backbone("resnet32")


def test_another_module_is_told_what_it_lacks():
    with pytest.raises(TypeError, match="Linear is not a backbone: derive it from"):
        check_backbone(nn.Linear(2, 2))


def test_wrong_feature_dim():
    with pytest.raises(ValueError, match=r"shape \(2, 4\), but feature_dim promises \(2, 5\)"):
        check_backbone(Two(feature_dim=5))


def test_repeated_names():
    class Same(Two):
        def blocks(self) -> list[Block]:
            return [Block("a", self.first), Block("a", self.second)]

    with pytest.raises(ValueError, match=r"different names, got \['a', 'a'\]"):
        check_backbone(Same())


def test_features_that_are_not_the_blocks():
    class Extra(Two):
        def features(self, x: Tensor) -> Tensor:
            return super().features(x) + 1

    with pytest.raises(ValueError, match="something else than features"):
        check_backbone(Extra())


def test_pooled_that_is_not_the_pool_of_features():
    class Extra(Two):
        def pooled(self, x: Tensor) -> Tensor:
            return super().pooled(x) * 2

    with pytest.raises(ValueError, match=r"something else than pool\(features"):
        check_backbone(Extra())


def test_a_block_that_overwrites_its_input():
    with pytest.raises(ValueError, match="block 'first' overwrites its input"):
        check_backbone(Two(first=nn.ReLU(inplace=True)))


def test_a_block_that_returns_two_things():
    class Pair(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x, x

    with pytest.raises(TypeError, match="block 'first' returned tuple"):
        check_backbone(Two(first=Pair()))


def test_evaluating_gives_modes_back_after_an_error():
    network = nn.Sequential(nn.BatchNorm2d(2), nn.Dropout()).train()
    network[1].eval()

    def fail() -> None:
        with evaluating(network):
            assert not network[0].training
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert [module.training for module in network.modules()] == [True, True, False]


def test_pooling_of_maps_tokens_and_vectors():
    x = torch.randn(2, 3, 4, 5)
    torch.testing.assert_close(average_pool(x), x.flatten(2).mean(2))
    torch.testing.assert_close(average_pool(x[0]), x[0].sum(1) / 4)
    assert torch.equal(average_pool(x[0, 0]), x[0, 0])
    with pytest.raises(ValueError, match=r"cannot pool features of shape \(5,\)"):
        average_pool(x[0, 0, 0])
