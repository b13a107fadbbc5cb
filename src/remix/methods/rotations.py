"""Parts that methods share: images in four rotations, each to be told from the others."""

from __future__ import annotations

import torch
from torch import Tensor

from remix.networks import Backbone

__all__ = ["ROTATIONS", "check_rotations", "rotated"]

ROTATIONS = 4


def rotated(images: Tensor) -> Tensor:
    """Images (N, C, H, H) turned by 0, 90, 180 and 270 degrees, (4N, C, H, H): first all of them as they are."""
    return torch.cat([images.rot90(turns, (2, 3)) for turns in range(ROTATIONS)])


def check_rotations(method: str, backbone: Backbone, start: int) -> None:
    """Raise ValueError where images cannot be turned: they must be square, and come to the network as images."""
    _, height, width = backbone.input_shape
    if start:
        raise ValueError(f"the method {method} turns images, so no block of the network can be frozen")
    if height != width:
        raise ValueError(
            f"the method {method} turns images by 90 degrees, and this network takes {height} x {width} pixels: make "
            "them square (network.options.input_shape), or choose another method, such as ssre"
        )
