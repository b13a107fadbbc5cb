"""The factorisation of a Laplace covariance: a sort and one sweep, always in float64."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from remix.laplace import kernels
from remix.laplace.filters import DOWN, Sweep

__all__ = ["Factor", "sweeps_of"]


@dataclass(frozen=True)
class Factor:
    """What every operation needs of Sigma, in sorted order (docs/mathematics.md).

    ``order`` (D,) int64: the coordinate at each sorted position; ``rank`` (D,) int32: its inverse. ``vectors``
    (10, D) float64, by name: ``diag``, ``weight``; ``phi`` = exp(-gap to the previous position), 0 at the start; ``P``
    prior variance of the latent state, ``C`` = 1 - P, ``S`` innovation variance, ``G`` gain, ``gam`` = d/S, ``N``
    backward variance, ``f`` the backward variance carried one position down. ``logdet``: log det Sigma, float64.
    """

    order: Tensor
    rank: Tensor
    vectors: Tensor
    logdet: Tensor
    _tables: dict[torch.dtype, Tensor] = field(default_factory=dict, repr=False, compare=False)

    @property
    def dim(self) -> int:
        """D."""
        return self.order.shape[-1]

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What the operators take."""
        return self.order, self.rank, self.vectors, self.logdet

    def table(self, dtype: torch.dtype) -> Tensor:
        """Coefficients of the four sweeps in the dtype of the data, (4, D, 4); made once."""
        if dtype not in self._tables:
            with torch.inference_mode(False):  # what is kept must serve autograd later
                self._tables[dtype] = kernels.sweep_table(self.vectors, dtype)
        return self._tables[dtype]

    def unsort(self, sorted_vector: Tensor) -> Tensor:
        """From sorted positions back to coordinates, (..., D)."""
        return sorted_vector.index_select(-1, self.rank)

    diag = property(lambda self: self.vectors[0])
    weight = property(lambda self: self.vectors[1])
    phi = property(lambda self: self.vectors[2])
    P = property(lambda self: self.vectors[3])
    C = property(lambda self: self.vectors[4])
    S = property(lambda self: self.vectors[5])
    G = property(lambda self: self.vectors[6])
    gam = property(lambda self: self.vectors[7])
    N = property(lambda self: self.vectors[8])
    f = property(lambda self: self.vectors[9])


def sweeps_of(table: Tensor, *which: int) -> tuple[Sweep, ...]:
    """The named sweeps of a coefficient table."""
    return tuple(Sweep(table[number], DOWN[number]) for number in which)
