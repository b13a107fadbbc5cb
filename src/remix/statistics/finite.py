"""Activations that are not numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from remix.networks.hooks import Point

__all__ = ["NonFiniteActivationError", "require_finite"]


class NonFiniteActivationError(ValueError):
    """NaN or infinite activations; ``point`` says where."""

    def __init__(self, point: Point, message: str) -> None:
        super().__init__(message)
        self.point = point


def require_finite(point: Point, activation: Tensor, batch: int) -> None:
    """Check an activation.

    Raises:
        NonFiniteActivationError: naming the layer, the batch and the first bad image.

    """
    # A sum of finite numbers may overflow, so only a suspicious sum is looked at closely.
    if bool(torch.isfinite(activation.sum())):
        return
    bad = ~torch.isfinite(activation)
    if bool(bad.any()):
        first = int(bad.flatten(1).any(1).nonzero()[0]) if bad.dim() > 1 else 0
        raise NonFiniteActivationError(
            point,
            f"activations at '{point}' hold {int(bad.sum())} NaN or infinite values in batch {batch}, first in image "
            f"{first}: check the images and the weights of the network up to there",
        )
