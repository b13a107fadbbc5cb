"""A layer of a transformer: attention and an MLP, each on a residual stream."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, relu, scaled_dot_product_attention, silu

__all__ = ["ACTIVATIONS", "TransformerLayer"]


def _quick_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


_tanh_gelu = partial(gelu, approximate="tanh")
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": gelu, "quick_gelu": _quick_gelu, "gelu_new": _tanh_gelu, "gelu_pytorch_tanh": _tanh_gelu,
    "relu": relu, "silu": silu,
}  # fmt: skip
"""By the names that configs of `transformers` have for them."""


class TransformerLayer(nn.Module):
    """Tokens (N, L, D) -> (N, L, D): x + s attention(norm(x)), then x + t mlp(norm(x)).

    Attributes:
        adapter: tokens (N, L, D) -> (N, L, D), added to the MLP of the same x; none by default.
        prompts: what brings further tokens in; none by default.

    Args:
        width: D.
        heads: of the attention.
        hidden: width of the MLP.
        activation: one of `ACTIVATIONS`.
        eps: of the norms.
        bias: whether queries, keys and values have one.
        scaled: whether there are factors s and t per channel; 1 otherwise.
        gated: whether the MLP is a gated one, of silu, instead.
        causal: whether a token sees only those before it.

    Raises:
        ValueError: for an activation that is not known, or a width that heads cannot share.

    """

    scale1: nn.Parameter | None
    scale2: nn.Parameter | None

    def __init__(
        self,
        width: int,
        heads: int,
        hidden: int,
        activation: str = "gelu",
        eps: float = 1e-6,
        *,
        bias: bool = True,
        scaled: bool = False,
        gated: bool = False,
        causal: bool = False,
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=eps)
        self.attention = _Attention(width, heads, bias, causal)
        self.norm2 = nn.LayerNorm(width, eps=eps)
        self.mlp = _GatedMlp(width, hidden) if gated else _Mlp(width, hidden, activation)
        for name in ("scale1", "scale2"):
            self.register_parameter(name, nn.Parameter(torch.ones(width)) if scaled else None)
        self.adapter: nn.Module | None = None
        self.prompts: nn.Module | None = None

    def forward(self, x: Tensor, adapter: nn.Module | None = None) -> Tensor:
        """Run the layer, with its own adapter or another."""
        if self.prompts is None:
            return self._run(x, adapter or self.adapter)
        prompted: Tensor = self.prompts(x, lambda tokens: self._run(tokens, self.adapter))
        return prompted

    def _run(self, x: Tensor, adapter: nn.Module | None) -> Tensor:
        x = x + _scaled(self.attention(self.norm1(x)), self.scale1)
        added = _scaled(self.mlp(self.norm2(x)), self.scale2)
        return x + added if adapter is None else x + added + adapter(x)

    def bare(self, x: Tensor) -> Tensor:
        """The layer without anything that is plugged in, and without being watched."""
        x = x + _scaled(self.attention.forward(self.norm1(x)), self.scale1)
        return x + _scaled(self.mlp.forward(self.norm2(x)), self.scale2)


def _scaled(x: Tensor, scale: Tensor | None) -> Tensor:
    return x if scale is None else scale * x


class _Attention(nn.Module):
    """Every token to every other, or to those before it."""

    def __init__(self, width: int, heads: int, bias: bool, causal: bool) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"{heads} heads cannot share a width of {width}")
        self.heads, self.causal = heads, causal
        self.query, self.key, self.value = (nn.Linear(width, width, bias=bias) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part(x).unflatten(2, (self.heads, -1)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        mixed: Tensor = self.out(
            scaled_dot_product_attention(q, k, v, is_causal=self.causal).transpose(1, 2).flatten(2)
        )
        return mixed


class _Mlp(nn.Module):
    def __init__(self, width: int, hidden: int, activation: str) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(
                f"a transformer has no activation {activation[:60]!r}; there are: {', '.join(ACTIVATIONS)}"
            )
        self.up, self.down, self.activation = nn.Linear(width, hidden), nn.Linear(hidden, width), activation

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.down(ACTIVATIONS[self.activation](self.up(x)))
        return result


class _GatedMlp(nn.Module):
    """Two thirds as wide, in steps of 8, since it has three matrices."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        hidden = (int(hidden * 2 / 3) + 7) // 8 * 8
        self.gate, self.up, self.down = nn.Linear(width, hidden), nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.down(silu(self.gate(x)) * self.up(x))
        return result
