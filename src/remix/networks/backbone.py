"""What the rest of the package may ask of a network: ordered blocks, feature maps, pooled features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor, nn


class Block(NamedTuple):
    """One named step of a backbone. Calling it runs this step alone; it unpacks as ``name, module``."""

    name: str
    module: nn.Module

    def __call__(self, x: Tensor) -> Tensor:
        """Map the block's input to its output, batch first."""
        result: Tensor = self.module(x)
        return result


@runtime_checkable
class Backbone(Protocol):
    """The promise every backbone keeps. Any ``nn.Module`` with these members is one; no base class is needed.

    ``features`` is exactly the composition of ``blocks()``, and ``pooled`` is ``pool`` of ``features``.
    """

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of one image."""
        ...

    @property
    def feature_dim(self) -> int:
        """Length of a pooled feature vector."""
        ...

    def blocks(self) -> list[Block]:
        """Return the network's steps in the order in which data flows through them."""
        ...

    def features(self, x: Tensor) -> Tensor:
        """Map images (N, *input_shape) to the output of the last block."""
        ...

    def pool(self, features: Tensor) -> Tensor:
        """Map the output of the last block to (N, feature_dim)."""
        ...

    def pooled(self, x: Tensor) -> Tensor:
        """Map images (N, *input_shape) to (N, feature_dim)."""
        ...


def average_pool(features: Tensor) -> Tensor:
    """Average over positions: (N, C, H, W) -> (N, C), tokens (N, L, C) -> (N, C), (N, C) stays as it is.

    Raises:
        ValueError: for any other number of axes.

    """
    if features.dim() == 4:
        return features.mean((2, 3))
    if features.dim() == 3:
        return features.mean(1)
    if features.dim() == 2:
        return features
    raise ValueError(
        f"cannot pool features of shape {tuple(features.shape)}: expected (N, C, H, W), (N, L, C) or (N, C)"
    )


def image_shape(shape: Sequence[int]) -> tuple[int, int, int]:
    """Return ``shape`` as (C, H, W).

    Raises:
        ValueError: if it is not three numbers from 1 up.

    """
    if len(shape) != 3 or any(size < 1 for size in shape):
        raise ValueError(f"input_shape must be (channels, height, width), each at least 1, got {tuple(shape)}")
    channels, height, width = shape
    return channels, height, width


class BlockBackbone(nn.Module):
    """Base class that derives everything from ``blocks()``; subclasses implement that one method.

    Args:
        input_shape: (C, H, W) of one image.
        feature_dim: length of a pooled feature.

    Raises:
        ValueError: if ``input_shape`` is not three numbers from 1 up.

    """

    def __init__(self, input_shape: Sequence[int], feature_dim: int) -> None:
        super().__init__()
        self.input_shape = image_shape(input_shape)
        self.feature_dim = feature_dim

    def blocks(self) -> list[Block]:
        """Return the network's steps in the order in which data flows through them."""
        raise NotImplementedError(f"{type(self).__name__} must implement blocks()")

    def features(self, x: Tensor) -> Tensor:
        """Map images (N, C, H, W) to the output of the last block.

        Raises:
            ValueError: if ``x`` is not a batch of images with the channels of ``input_shape``. Height and width may
                differ from it where the network itself allows that.

        """
        channels = self.input_shape[0]
        if x.dim() != 4 or x.shape[1] != channels:
            kind = {1: "grey images", 3: "colour images"}.get(channels, "images")
            raise ValueError(
                f"{type(self).__name__} takes a batch of {kind} (N, {channels}, H, W), got shape {tuple(x.shape)}"
            )
        for block in self.blocks():
            x = block(x)
        return x

    def pool(self, features: Tensor) -> Tensor:
        """Average the output of the last block over positions: (N, feature_dim)."""
        return average_pool(features)

    def pooled(self, x: Tensor) -> Tensor:
        """Map images (N, C, H, W) to (N, feature_dim)."""
        return self.pool(self.features(x))

    def forward(self, x: Tensor) -> Tensor:
        """Same as :meth:`features`."""
        return self.features(x)
