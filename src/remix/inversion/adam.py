"""Adam on a few tensors, with a state that can be saved and a step that can leave the old point in place."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["Adam"]


class Adam:
    """Adam (Kingma and Ba, 2015) with betas 0.9, 0.999 and eps 1e-8, as `torch.optim.Adam` computes it.

    Unlike there, a step may write the new point to other tensors, so that the old one can be kept as the best so far
    without being copied first.

    Attributes:
        first: running means of the gradients.
        second: running means of their squares.
        steps: steps made.

    """

    betas = (0.9, 0.999)
    eps = 1e-8

    def __init__(self, like: Sequence[Tensor]) -> None:
        self.first = [torch.zeros_like(tensor) for tensor in like]
        self.second = [torch.zeros_like(tensor) for tensor in like]
        self.steps = 0

    @torch.no_grad()
    def step(self, old: Sequence[Tensor], new: Sequence[Tensor], gradients: Sequence[Tensor], rate: float) -> None:
        """Write the point after ``old`` to ``new``, which may be the same tensors. The gradients are overwritten."""
        beta1, beta2 = self.betas
        self.steps += 1
        size = rate / (1 - beta1**self.steps)
        scale = (1 - beta2**self.steps) ** 0.5
        for x, y, g, m, v in zip(old, new, gradients, self.first, self.second, strict=True):
            m.lerp_(g, 1 - beta1)
            v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
            spread = torch.sqrt(v, out=g).div_(scale).add_(self.eps)
            torch.addcdiv(x, m, spread, value=-size, out=y)
