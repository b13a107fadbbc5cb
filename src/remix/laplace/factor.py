"""The factorisation of a Laplace covariance, and the four sweeps into which every operation on rows is taken apart.

With Sigma = L L' (L lower triangular in sorted order), ``whiten`` is L^-1, ``unwhiten`` is L; their transposes run
downwards. Each is an affine filter along the sorted positions,

    out_k = p_k in_k + q_k state,    state <- c_k state + e_k in_k,

with coefficients (p, q, c, e) that do not depend on the data (docs/mathematics.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["DOWN", "SWEEPS", "TRANSPOSE", "VECTORS", "Factor", "Sweep", "states", "sweep_table", "sweeps_of"]

# Rows of `Factor.vectors`.
VECTORS = ("diag", "weight", "phi", "P", "C", "S", "G", "gam", "N", "f")


@dataclass(frozen=True)
class Factor:
    """What every operation needs of Sigma, in sorted order (docs/mathematics.md).

    ``order`` (D,) int64: the coordinate at each sorted position; ``rank`` (D,) int32: its inverse. ``vectors``
    (10, D) float64, by name: ``diag``, ``weight``; ``phi`` = exp(-gap to the previous position), 0 at the start; ``P``
    prior variance of the latent state, ``C`` = 1 - P, ``S`` innovation variance, ``G`` gain, ``gam`` = d/S, ``N``
    backward variance, ``f`` the backward variance carried one position down. ``logdet``: log det Sigma, float64.
    ``tables``: the sweeps' coefficients by dtype, where `kernels.sweep_table` has made them.
    """

    order: Tensor
    rank: Tensor
    vectors: Tensor
    logdet: Tensor
    tables: dict[torch.dtype, Tensor] = field(default_factory=dict, repr=False, compare=False)

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What the operators take."""
        return self.order, self.rank, self.vectors, self.logdet

    def unsort(self, sorted_vector: Tensor) -> Tensor:
        """From sorted positions back to coordinates, (..., D)."""
        return sorted_vector.index_select(-1, self.rank)

    def __getattr__(self, name: str) -> Tensor:
        """A row of ``vectors`` by its name."""
        if name not in VECTORS:
            raise AttributeError(name)
        return self.vectors[VECTORS.index(name)]


class Sweep(NamedTuple):
    """One filter: coefficients (D, 4) in the dtype of the data, and its direction."""

    coef: Tensor
    down: bool


WHITEN, WHITEN_T, UNWHITEN, UNWHITEN_T = range(4)
DOWN = (False, True, False, True)

# Which sweeps, one after the other, make an operation; and the operation that is its transpose.
SWEEPS: dict[str, tuple[int, ...]] = {
    "whiten": (WHITEN,),
    "whiten_t": (WHITEN_T,),
    "unwhiten": (UNWHITEN,),
    "unwhiten_t": (UNWHITEN_T,),
    "solve": (WHITEN, WHITEN_T),
    "matvec": (UNWHITEN_T, UNWHITEN),
}
TRANSPOSE = {
    "whiten": "whiten_t",
    "whiten_t": "whiten",
    "unwhiten": "unwhiten_t",
    "unwhiten_t": "unwhiten",
    "solve": "solve",
    "matvec": "matvec",
}


def sweep_table(vectors: Tensor, dtype: torch.dtype) -> Tensor:
    """Coefficients of the four sweeps, (4, D, 4), from the float64 vectors of a `Factor`."""
    _, weight, phi, _, _, S, G, gam, _, _ = vectors
    following = torch.cat([phi[1:], phi.new_zeros(1)])
    root = S.sqrt()
    inverse = 1 / root
    rows = (
        (inverse, -inverse * weight, following * gam, following * G),
        (inverse, -G, phi * gam, phi * weight * inverse),
        (root, weight, following, following * G * root),
        (root, root * G, phi, phi * weight),
    )
    table = torch.stack([torch.stack(row, -1) for row in rows])
    if dtype == torch.float32:
        table[..., 2] = _rounded_decays(table[..., 2])
    return table.to(dtype)


def _rounded_decays(decay: Tensor) -> Tensor:
    """Decays (4, D) rounded to multiples of 2^-24 so that the errors of neighbours cancel.

    Products of many decays near 1, which carry slow correlations over a million positions, keep their accuracy
    although each factor has only 24 bits.
    """
    unit = 2.0**-24
    near = decay > 0.5
    units = (torch.where(near, 1 - decay, 0).cumsum(-1) / unit).round()
    own = units.diff(dim=-1, prepend=units.new_zeros(len(units), 1))
    return torch.where(near, 1 - own * unit, decay)


def sweeps_of(table: Tensor, *which: int) -> tuple[Sweep, ...]:
    """The named sweeps of a coefficient table."""
    return tuple(Sweep(table[number], DOWN[number]) for number in which)


def states(sweep: Sweep) -> Sweep:
    """The filter whose output is the state that arrives at each position in ``sweep``."""
    c, e = sweep.coef[:, 2], sweep.coef[:, 3]
    return Sweep(torch.stack([torch.zeros_like(c), torch.ones_like(c), c, e], -1), sweep.down)
