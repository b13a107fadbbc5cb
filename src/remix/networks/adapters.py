"""Adapters: small modules that learn inside the layers of a transformer while the rest stays as it is."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from remix.networks.prompts import CodaPrompts, DeepPrompts, PassedQuery
from remix.networks.transformer_layer import TransformerLayer
from remix.support.text import did_you_mean

__all__ = ["ADAPTERS", "MoEAdapter", "plug_in"]

_HIDDEN, _SCALE, _DROPOUT, _LEAST_NOISE = 64, 0.1, 0.1, 0.01


class MoEAdapter(nn.Module):
    """Mixture of adapters: tokens (N, L, D) -> (N, L, D), zero until it has learned.

    Two experts, 0.1 up(dropout(relu(down(x)))) each, are weighed for every sequence by a router that reads its first
    token. In training the router's logits get normal noise, whose deviation is learned too. Noise and dropout come from
    a count of the draws, which is saved with the weights: a run that goes on draws what it would have drawn.

    Args:
        width: D.
        hidden: width of an expert.
        experts: how many; all of them are used.

    """

    def __init__(self, width: int, hidden: int = _HIDDEN, experts: int = 2) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.empty(experts, hidden, width))
        self.down_bias = nn.Parameter(torch.zeros(experts, hidden))
        self.up = nn.Parameter(torch.zeros(experts, width, hidden))
        self.up_bias = nn.Parameter(torch.zeros(experts, width))
        self.router = nn.Parameter(torch.zeros(width, experts))
        self.noise = nn.Parameter(torch.zeros(width, experts))
        self.draws: Tensor
        self.register_buffer("draws", torch.randint(1 << 31, ()))
        for one in self.down:
            nn.init.kaiming_uniform_(one, a=math.sqrt(5))

    def gates(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Weights of the experts (N, experts) for sequences (N, L, D), noisy with a generator."""
        first = x[:, 0]
        logits = first @ self.router
        if generator is not None:
            noise = torch.randn(logits.shape, generator=generator, dtype=logits.dtype).to(logits.device)
            logits = logits + noise * (softplus(first @ self.noise) + _LEAST_NOISE)
        return logits.softmax(1)

    def forward(self, x: Tensor) -> Tensor:
        """What is added to the residual stream."""
        generator = self._drawn() if self.training else None
        inner = (torch.einsum("nld,ehd->nelh", x, self.down) + self.down_bias[:, None]).relu()
        if generator is not None:
            kept = torch.rand(inner.shape, generator=generator) >= _DROPOUT
            inner = inner * kept.to(inner.device) / (1 - _DROPOUT)
        gates = _SCALE * self.gates(x, generator)
        mixed = torch.einsum("nelh,edh,ne->nld", inner, self.up, gates)
        return mixed + (gates @ self.up_bias)[:, None]

    def _drawn(self) -> torch.Generator:
        """Always of the processor: a seed means the same numbers on every device."""
        self.draws += 1
        return torch.Generator().manual_seed(int(self.draws))


ADAPTERS = ("moe", "prompts", "deep-prompts", "coda")
"""Names of what can be plugged into a transformer: mixtures of adapters; prompts before the first layer, of every
layer, or put together for every image in the first five (CODA-P)."""

_CODA_LAYERS = 5


def plug_in(name: str, layers: Sequence[TransformerLayer], width: int) -> None:
    """Give layers what the name says; "prompts" are no layer's.

    Raises:
        ValueError: for a name that there is not.

    """
    if name not in ADAPTERS:
        hint = did_you_mean(name, ADAPTERS)
        raise ValueError(f"there is no adapter {name[:60]!r}{hint}; there are: {', '.join(ADAPTERS)}")
    for number, layer in enumerate(layers):
        if name == "moe":
            layer.adapter = MoEAdapter(width)
        elif name == "deep-prompts":
            layer.prompts = DeepPrompts(width)
        elif name == "coda":
            layer.prompts = CodaPrompts(width) if number < _CODA_LAYERS else PassedQuery()
