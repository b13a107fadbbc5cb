"""How features moved while the network learned: an affine map from those before to those after."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Drift", "fit_drift"]


class Drift(NamedTuple):
    """Features x (N, D) before are about ``x @ matrix + shift`` after.

    Attributes:
        matrix: (D, D).
        shift: (D,).

    """

    matrix: Tensor
    shift: Tensor

    def __call__(self, features: Tensor) -> Tensor:
        """Features (N, D) where they are expected now."""
        return features @ self.matrix.to(features) + self.shift.to(features)


def fit_drift(before: Tensor, after: Tensor, ridge: float = 1e-4) -> Drift:
    """The affine map that comes nearest to the drift of features of the same images, in least squares.

    Args:
        before: features (N, D) of the network as it was.
        after: features (N, D) as it is.
        ridge: how much a direction that varies little is held to staying as it was: a multiple of the mean variance.

    Raises:
        ValueError: for shapes that differ, no rows, or numbers that are not finite.

    """
    if before.dim() != 2 or before.shape != after.shape or not len(before):
        raise ValueError(
            f"features before and after must be (N, D), got {tuple(before.shape)} and {tuple(after.shape)}"
        )
    x, y = before.double(), after.double()
    if not bool(torch.isfinite(x).all() and torch.isfinite(y).all()):
        raise ValueError("features before and after must be finite")
    middle, target = x.mean(0), y.mean(0)
    centred = x - middle
    scatter = centred.T @ centred
    identity = torch.eye(len(scatter), dtype=x.dtype, device=x.device)
    hold = (ridge * scatter.trace() / len(scatter)).clamp_min(1e-12) * identity
    # Of (y - x), so that what is held is the identity.
    moved = torch.linalg.solve(scatter + hold, centred.T @ ((y - target) - centred))
    matrix = identity + moved
    return Drift(matrix.to(before), (target - middle @ matrix).to(before))
