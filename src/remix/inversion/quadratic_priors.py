"""Priors that see the rows of a layer only through q = mean of (x - mu)' P (x - mu): all layers at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from remix.inversion.gaussian_forms import Form, form_of_quadratic
from remix.inversion.layer_readings import Remembered, linear_forms
from remix.inversion.measurements import LayerMoments, Reading
from remix.statistics import LayerStatistics

__all__ = ["QuadraticPrior", "QuadraticValues"]


@dataclass(frozen=True, eq=False)
class QuadraticPrior:
    """A Gaussian on the rows of a layer: mean (D,), precision (D, D) or, diagonal, (D,), log det Sigma."""

    layer: LayerStatistics
    measurement: LayerMoments
    mean: Tensor
    precision: Tensor
    logdet: Tensor

    def coefficients(self, reading: Reading) -> tuple[Tensor, Tensor]:
        """A and c with q = <A, reading> + c.

        With moments m and S about an origin o and s = o - mu: q = <P, S> + 2 s' P m + s' P s.
        """
        assert isinstance(reading.by, LayerMoments)
        origin = reading.by.layer.mean.to(self.mean)
        shift = origin - self.mean
        full = len(reading.average) > 2
        if self.precision.dim() == 2:
            pulled, second = self.precision @ shift, self.precision
        else:
            pulled, second = self.precision * shift, self.precision.diag() if full else self.precision[None]
        factors = torch.cat([2 * pulled[None], second])
        return factors.to(reading.average), (shift @ pulled).to(reading.average)


class QuadraticValues:
    """The penalties of some layers under `QuadraticPrior`, (layers,), from their readings."""

    def __init__(self, priors: Sequence[QuadraticPrior], form: Form) -> None:
        self._priors, self._form = list(priors), form
        self._constants = Remembered(self._make)

    def _make(self, readings: Sequence[Reading]) -> tuple[list[Tensor], Tensor, Tensor, Tensor]:
        pairs = [prior.coefficients(reading) for prior, reading in zip(self._priors, readings, strict=True)]
        like = readings[0].average
        logdets = torch.stack([prior.logdet.to(like) for prior in self._priors])
        dims = like.new_tensor([prior.layer.dim for prior in self._priors])
        return [factors for factors, _ in pairs], torch.stack([constant for _, constant in pairs]), logdets, dims

    def __call__(self, readings: Sequence[Reading]) -> Tensor:
        """The penalties."""
        factors, constants, logdets, dims = self._constants(readings)
        return form_of_quadratic(linear_forms(readings, factors) + constants, logdets, dims, self._form)
