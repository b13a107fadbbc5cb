"""From a chain back to a distribution, and the clock of the phases."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch
from torch import Tensor

from remix.laplace.basis import Dct2
from remix.laplace.covariance import LaplaceCovariance
from remix.laplace.fitting.frobenius import frobenius_error
from remix.laplace.fitting.likelihood import SMALLEST_PHI, Chain
from remix.laplace.fitting.passes import Passes
from remix.laplace.fitting.prepare import Rows, Standardised, multiply_rows
from remix.laplace.normal import LaplaceNormal

__all__ = ["LOG_2PI", "Clock", "covariance_of", "distribution", "sample_error"]

LOG_2PI = math.log(2 * math.pi)


class Clock:
    """Seconds per phase: calling it with a name ends the last phase and starts the next."""

    def __init__(self, progress: Callable[[str], None] | None) -> None:
        self._progress = progress
        self._seconds: dict[str, float] = {}
        self._phase, self._since = "", time.perf_counter()

    def __call__(self, phase: str) -> None:
        """Start ``phase``."""
        self.done()
        self._phase = phase
        if self._progress is not None:
            self._progress(phase)

    def done(self) -> dict[str, float]:
        """End the present phase; all phases so far, in seconds."""
        now = time.perf_counter()
        if self._phase:
            self._seconds[self._phase] = self._seconds.get(self._phase, 0.0) + now - self._since
        self._phase, self._since = "", now
        return self._seconds


def covariance_of(chain: Chain, variance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(diag, weight, coord) of a chain with marginal variances (D,), float64.

    Coordinates are centred on 0: in float32 the gaps then keep the most digits.
    """
    gaps = -chain.phi.clamp_min(SMALLEST_PHI).log()
    gaps[0] = 0.0
    place = gaps.cumsum(0)
    coord, loading = torch.empty_like(place), torch.empty_like(place)
    coord[chain.order] = place - place[-1] / 2
    loading[chain.order] = chain.loading
    return variance * (1 - loading) * (1 + loading), variance.sqrt() * loading, coord


def distribution(
    chain: Chain, variance: Tensor, loc: Tensor, basis: Dct2 | None, source: Rows | Passes
) -> LaplaceNormal:
    """The `LaplaceNormal` of a chain, in the dtype and on the device of the data."""
    diag, weight, coord = (v.to(source.device, source.dtype) for v in covariance_of(chain, variance))
    return LaplaceNormal(loc.to(source.device, source.dtype), LaplaceCovariance(diag, weight, coord), basis)


def sample_error(data: Standardised, covariance: LaplaceCovariance) -> float:
    """Normalised Frobenius error of the fit. Turns ``data.u`` back into centred features: it is used up."""
    multiply_rows(data.u, data.variance.sqrt())
    diag, weight, coord = (
        v.detach().to("cpu", data.u.dtype) for v in (covariance.diag, covariance.weight, covariance.coord)
    )
    return frobenius_error(data.u[:, : data.rows], diag, weight, coord)
