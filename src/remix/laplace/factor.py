"""The factorisation of a Laplace covariance: a sort and one sweep, always in float64."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Factor"]


@dataclass(frozen=True)
class Factor:
    """What every operation needs of Sigma, in sorted order (laplace.md, "Factorisation"). All vectors float64, (D,).

    ``order[k]`` is the coordinate at sorted position k. ``phi`` = exp(-gap to the previous position), 0 at the start;
    ``P`` prior variance of the latent state, ``C`` = 1 - P, ``S`` innovation variance, ``G`` gain, ``gam`` = d/S,
    ``N`` backward variance and ``f`` the backward variance carried one step down.
    """

    order: Tensor
    diag: Tensor
    weight: Tensor
    phi: Tensor
    P: Tensor
    C: Tensor
    S: Tensor
    G: Tensor
    gam: Tensor
    N: Tensor
    f: Tensor

    @property
    def dim(self) -> int:
        """D."""
        return self.order.shape[-1]

    def logdet(self) -> Tensor:
        """log det Sigma, a float64 scalar."""
        return self.S.log().sum()

    def inverse_diagonal(self) -> Tensor:
        """diag(Sigma^-1), float64, in the original order of the coordinates."""
        return torch.empty_like(self.S).scatter_(-1, self.order, 1 / self.S + self.G.square() * self.f)
