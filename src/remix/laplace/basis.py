"""Orthonormal changes of basis that may stand in front of a Laplace covariance."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from remix.laplace.reference import dense

if TYPE_CHECKING:
    from remix.laplace.covariance import LaplaceCovariance

__all__ = ["Basis", "Dct2", "cosine_matrix"]


class Basis(Protocol):
    """An orthonormal transform T of rows (..., D)."""

    @property
    def dim(self) -> int:
        """D."""

    def forward(self, x: Tensor) -> Tensor:
        """T x."""

    def inverse(self, y: Tensor) -> Tensor:
        """T' y."""

    def variance(self, covariance: LaplaceCovariance) -> Tensor:
        """The diagonal of T' Sigma T, (..., D)."""


def cosine_matrix(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The orthonormal DCT-II matrix, (size, size): row f is the cosine of frequency f.

    Made anew every time: one kept from inside inference mode or a fake tensor mode would spoil what comes after.
    """
    frequency = torch.arange(size, dtype=torch.float64, device="cpu")[:, None]
    place = torch.arange(size, dtype=torch.float64, device="cpu")[None, :]
    matrix = torch.cos(math.pi / size * (place + 0.5) * frequency) * math.sqrt(2 / size)
    matrix[0] /= math.sqrt(2)
    return matrix.to(device, dtype)


class Dct2:
    """The two-dimensional orthonormal DCT of every channel of a feature map; no parameters, its own inverse transposed.

    Feature maps are nearly stationary in space, so their covariance is nearly diagonal over spatial frequencies: a
    Laplace covariance in this basis has far less left to explain.

    Args:
        layout: (channels, height, width) of the flattened map, channels outermost as torch flattens them.
    """

    def __init__(self, layout: tuple[int, int, int]) -> None:
        if len(layout) != 3 or any(int(n) != n or n < 1 for n in layout):
            raise ValueError(f"layout must be three positive integers (channels, height, width), got {layout!r}")
        self.layout = (int(layout[0]), int(layout[1]), int(layout[2]))

    @property
    def dim(self) -> int:
        """D = channels * height * width."""
        return math.prod(self.layout)

    def forward(self, x: Tensor) -> Tensor:
        """Maps x (..., D) to frequencies (..., D)."""
        rows, columns = self._matrices(x)
        return (rows @ self._maps(x) @ columns.mT).reshape(x.shape)

    def inverse(self, y: Tensor) -> Tensor:
        """Frequencies y (..., D) to maps (..., D)."""
        rows, columns = self._matrices(y)
        return (rows.mT @ self._maps(y) @ columns).reshape(y.shape)

    def variance(self, covariance: LaplaceCovariance) -> Tensor:
        """The diagonal of T' Sigma T, (..., D): exact, channel by channel, O(D H W (H + W))."""
        batch = covariance.batch_shape
        parts = [v.reshape(-1, self.dim) for v in (covariance.diag, covariance.weight, covariance.coord)]
        rows = [self._channel_variances(*(v[i] for v in parts)) for i in range(parts[0].shape[0])]
        return torch.stack(rows).reshape(*batch, self.dim)

    def _channel_variances(self, diag: Tensor, weight: Tensor, coord: Tensor) -> Tensor:
        channels, height, width = self.layout
        plane = Dct2((1, height, width))
        transform = torch.kron(*self._matrices(diag))  # (H W, H W), row = frequency, column = pixel
        found = []
        for d, w, a in zip(*(v.reshape(channels, -1) for v in (diag, weight, coord)), strict=True):
            found.append((plane.inverse(dense(d, w, a)) * transform).sum(0))
        return torch.cat(found)

    def _matrices(self, x: Tensor) -> tuple[Tensor, Tensor]:
        _, height, width = self.layout
        rows = cosine_matrix(height, x.dtype, x.device)
        return rows, rows if height == width else cosine_matrix(width, x.dtype, x.device)

    def _maps(self, x: Tensor) -> Tensor:
        if x.shape[-1] != self.dim:
            raise ValueError(f"the last dimension must be {self.dim} = {self.layout}, got shape {tuple(x.shape)}")
        return x.reshape(*x.shape[:-1], *self.layout)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dct2) and other.layout == self.layout

    def __hash__(self) -> int:
        return hash(self.layout)

    def __repr__(self) -> str:
        return f"Dct2(layout={self.layout})"
