"""Adam on a few tensors, with a state that can be read and set."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["Adam"]

_FUSED = ("cpu", "cuda")  # where torch makes the step in one pass over memory, four times as fast


class Adam:
    """`torch.optim.Adam` with its default settings, for tensors that are no parameters of a module.

    Args:
        tensors: what every step changes in place.

    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors = list(tensors)
        fused = all(tensor.device.type in _FUSED for tensor in tensors)
        self._optimiser = torch.optim.Adam(self._tensors, fused=fused)
        self.set(0, *([torch.zeros_like(tensor) for tensor in tensors] for _ in range(2)))

    @property
    def steps(self) -> int:
        """Steps made."""
        return int(self._optimiser.state[self._tensors[0]]["step"])

    @property
    def first(self) -> list[Tensor]:
        """Running means of the gradients."""
        return [self._optimiser.state[tensor]["exp_avg"] for tensor in self._tensors]

    @property
    def second(self) -> list[Tensor]:
        """Running means of the squared gradients."""
        return [self._optimiser.state[tensor]["exp_avg_sq"] for tensor in self._tensors]

    def set(self, steps: int, first: Sequence[Tensor], second: Sequence[Tensor]) -> None:
        """Go on from here."""
        for tensor, m, v in zip(self._tensors, first, second, strict=True):
            count = torch.tensor(float(steps), device=tensor.device)
            self._optimiser.state[tensor] = {"step": count, "exp_avg": m, "exp_avg_sq": v}

    def step(self, gradients: Sequence[Tensor], rate: float) -> None:
        """Change the tensors."""
        for tensor, gradient in zip(self._tensors, gradients, strict=True):
            tensor.grad = gradient
        self._optimiser.param_groups[0]["lr"] = rate
        self._optimiser.step()
        self._optimiser.zero_grad()
