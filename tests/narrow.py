from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from remix.networks import create_backbone


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def narrow_network() -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    backbone = create_backbone("resnet20", width=4, input_shape=(3, 16, 16), generator=generator)
    assert isinstance(backbone, nn.Module)
    for module in backbone.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.weight, 1.0, 0.1, generator=generator)
            nn.init.normal_(module.bias, 0.0, 0.1, generator=generator)
    for _ in range(3):
        backbone(torch.randn(16, 3, 16, 16, generator=generator))
    return backbone


@pytest.fixture
def network() -> nn.Module:
    """A narrow ResNet-20 whose BatchNorm layers have seen data."""
    return narrow_network()


@pytest.fixture(scope="session")
def shared_network() -> nn.Module:
    """The same for expensive fixtures: not to be changed."""
    return narrow_network()


@pytest.fixture
def images(generator) -> Tensor:
    return torch.randn(24, 3, 16, 16, generator=generator)
