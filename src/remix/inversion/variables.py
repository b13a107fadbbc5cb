"""What is optimised: tensors, and how they become what a network sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from remix.inversion.augment import Augmentation

__all__ = ["Render", "TensorVariable", "Variable"]

Render = Callable[[list[Tensor], slice], tuple[Tensor, Tensor]]
"""From leaves and their part of the batch to the images (or block inputs) and what the network receives."""


class Variable(Protocol):
    """The unknowns of an optimisation.

    Attributes:
        tensors: their current values; the loop replaces or overwrites them.
        count: size of the batch.
        divisible: whether parts of the batch can be looked at one after another.

    """

    tensors: list[Tensor]
    count: int
    divisible: bool

    def draw(self, generator: torch.Generator) -> Render:
        """Draw what is random in one step."""
        ...

    def leaves(self, part: slice) -> list[Tensor]:
        """The unknowns behind a part of the batch, ready for gradients."""
        ...

    def commit(self) -> None:
        """Make what else changed in the last rendering (such as running averages) permanent."""
        ...

    def extras(self) -> dict[str, Tensor]:
        """State besides the unknowns, for a checkpoint."""
        ...

    def restore(self, extras: dict[str, Tensor]) -> None:
        """Take back what `extras` gave."""
        ...


class TensorVariable:
    """A batch of images, or of block inputs, (N, ...), perhaps seen through an augmentation."""

    divisible = True

    def __init__(self, start: Tensor, augmentation: Augmentation | None = None) -> None:
        self.tensors = [start.detach().clone()]
        self.count = len(start)
        self.augmentation = augmentation

    def draw(self, generator: torch.Generator) -> Render:
        """Draw the augmentation."""
        if self.augmentation is None:
            return lambda leaves, part: (leaves[0], leaves[0])
        drawn = self.augmentation.draw(self.count, generator)
        return lambda leaves, part: (leaves[0], drawn(leaves[0], part))

    def leaves(self, part: slice) -> list[Tensor]:
        """The part's own tensor."""
        return [self.tensors[0][part].detach().requires_grad_()]

    def commit(self) -> None:
        """Nothing else changes."""

    def extras(self) -> dict[str, Tensor]:
        """Nothing."""
        return {}

    def restore(self, extras: dict[str, Tensor]) -> None:
        """Nothing."""
