"""Small maps from features to features that are learned beside a network: linear, or with one hidden layer."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

__all__ = ["FeatureMlp", "seeded_linear"]


def seeded_linear(inputs: int, outputs: int, generator: torch.Generator, *, bias: bool = True) -> nn.Linear:
    """A linear layer with torch's usual weights, uniform up to 1 / sqrt(inputs), drawn from a generator."""
    layer = nn.Linear(inputs, outputs, bias=bias)
    bound = 1 / math.sqrt(inputs)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.empty(parameter.shape).uniform_(-bound, bound, generator=generator))
    return layer


class FeatureMlp(nn.Module):
    """Features (N, D) to features (N, D) through ``width`` times as many hidden numbers (AdaGauss).

    Args:
        dim: D.
        generator: of the first weights.
        width: hidden numbers per feature.

    """

    def __init__(self, dim: int, generator: torch.Generator, width: int = 32) -> None:
        super().__init__()
        first, last = seeded_linear(dim, width * dim, generator), seeded_linear(width * dim, dim, generator)
        self.layers = nn.Sequential(first, nn.GELU(), last)

    def forward(self, features: Tensor) -> Tensor:
        """(N, D) -> (N, D)."""
        found: Tensor = self.layers(features)
        return found
