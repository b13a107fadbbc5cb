"""Small networks without BatchNorm layers: a transformer, and plain convolutions."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import relu, scaled_dot_product_attention

from remix.networks import Backbone, Block
from remix.networks.backbone import initialise_convolutions
from remix.networks.hooks import Point
from remix.networks.views import TOKEN_CHANNELS, View


class _Patches(nn.Module):
    """Images (N, C, H, W) to tokens (N, L, D), each with its place added."""

    def __init__(self, channels: int, size: int, patch: int, width: int) -> None:
        super().__init__()
        self.embed = nn.Conv2d(channels, width, patch, patch)
        self.places = nn.Parameter(0.5 * torch.randn((size // patch) ** 2, width))

    def forward(self, images: Tensor) -> Tensor:
        return self.embed(images).flatten(2).mT + self.places


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.project(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)  # (3, N, heads, L, D / heads)
        return self.out(scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2))


class _Layer(nn.Module):
    """(N, L, D) -> (N, L, D): attention and an MLP, each after a LayerNorm and beside the residual stream."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), _Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class TinyTransformer(Backbone):
    """Patches, then layers of attention and MLP; features are the mean over tokens. Random weights, float64.

    ``view`` says how tokens are read where statistics are taken: of block inputs and of what attention and MLP receive.
    """

    def __init__(self, view: View = TOKEN_CHANNELS, depth: int = 3, width: int = 8, size: int = 8) -> None:
        super().__init__((1, size, size), width)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.patches = _Patches(1, size, 2, width)
            self.layers = nn.ModuleList(_Layer(width, 2) for _ in range(depth))
        self.view = view
        self.double().eval()

    def blocks(self) -> list[Block]:
        layers = [Block(f"layers.{i}", layer, self.view) for i, layer in enumerate(self.layers)]
        return [Block("patches", self.patches), *layers]

    def watched(self, start: int = 0) -> list[tuple[Point, View]]:
        inside = [
            (Point(f"{block.name}.{part}", "input"), self.view)
            for block in self.blocks()[max(start, 1) :]
            for part in ("attention", "mlp")
        ]
        return [*self.block_inputs(start), *inside]


class _Convolution(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inside, outside, 3, stride, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return relu(self.conv(x))


class PlainConvolutions(Backbone):
    """Convolutions with ReLU and nothing else; random weights, float64."""

    def __init__(self, width: int = 6, size: int = 8) -> None:
        super().__init__((1, size, size), 2 * width)
        widths = [(1, width, 1), (width, width, 2), (width, 2 * width, 2)]
        self.steps = nn.ModuleList(_Convolution(*sizes) for sizes in widths)
        initialise_convolutions(self, torch.Generator().manual_seed(0))
        self.double().eval()

    def blocks(self) -> list[Block]:
        return [Block(f"steps.{i}", step) for i, step in enumerate(self.steps)]
