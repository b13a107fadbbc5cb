"""Initial values of convolutional networks."""

from __future__ import annotations

import torch
from torch import nn


def initialise_convolutions(network: nn.Module, generator: torch.Generator | None = None) -> None:
    """Give every convolution Kaiming-normal weights (fan-out) and every BatchNorm weight 1 and bias 0, in place."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu", generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
