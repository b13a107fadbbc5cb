"""The scale of the correlations, chosen on rows that the fit did not see."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from remix.laplace.fitting.likelihood import Chain, ChainData
from remix.laplace.fitting.prepare import Standardised

__all__ = ["SCALES", "Choice", "choose_scale"]

SCALES = (0.0, 0.2, 0.4, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.99, 1.0)


@dataclass(frozen=True)
class Choice:
    """The chosen ``scale`` and the negative log-likelihood of every validation row at it, without 2 pi, (N,)."""

    scale: float
    row_nll: Tensor


def choose_scale(held: Standardised, chain: Chain) -> Choice:
    """The scale c of the loadings with the best likelihood of ``held``; 0 unless its gain exceeds its standard error.

    Multiplying every loading by c shrinks every correlation by c^2 and leaves the variances as they are; c = 0 is the
    diagonal, so on these rows the choice is never below it.
    """
    data = ChainData(held, chain.order)
    rows = {scale: data.row_nll(scale * chain.loading, chain.phi) for scale in SCALES}
    gains = {scale: float((rows[0.0] - nll).mean()) for scale, nll in rows.items()}
    best = max(SCALES, key=lambda scale: gains[scale])
    error = float((rows[0.0] - rows[best]).std()) / math.sqrt(held.rows) if held.rows > 1 else math.inf
    if gains[best] <= error:
        best = 0.0
    return Choice(best, rows[best])
