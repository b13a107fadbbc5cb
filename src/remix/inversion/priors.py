"""A covariance prior on activations, in one of several forms: two independent choices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from remix.inversion.gaussian_forms import FORMS, Form, diagonal_kl, form_of_quadratic, gaussian_kl
from remix.inversion.measurements import LayerMoments, Measurement, Reading, RowForms, WhitenedMoments
from remix.inversion.quadratic_priors import QuadraticPrior, QuadraticValues
from remix.laplace import LaplaceCovariance, LaplaceNormal
from remix.statistics import LayerStatistics

__all__ = ["PRIORS", "CovariancePrior", "PriorKind", "check_prior"]

PriorKind = Literal["none", "diagonal", "laplace", "laplace-dct", "dense"]
PRIORS: tuple[PriorKind, ...] = get_args(PriorKind)

# Coordinates up to which a layer with several rows per image enters through its D x D second moment: up to there the
# product costs less than the network's own convolutions, and far less than whitening every row.
_MOMENT_LIMIT = 1024


def check_prior(kind: str, form: str) -> None:
    """Check the names of a prior and its form.

    Raises:
        ValueError: listing the known ones.

    """
    if kind not in PRIORS:
        raise ValueError(f"unknown prior {kind!r}; there are: {', '.join(PRIORS)}")
    if form not in FORMS:
        raise ValueError(f"unknown form of a prior {form!r}; there are: {', '.join(FORMS)}")


class CovariancePrior:
    """The mean over layers of a penalty per coordinate under a Gaussian with the given kind of covariance.

    Kinds: ``diagonal``, ``laplace`` (as fitted), ``laplace-dct`` (a Laplace covariance that was fitted in the DCT
    basis), ``dense``. Forms: ``nll`` and ``typical`` (see `form_of_quadratic`), and ``kl``: the divergence of the
    batch's Gaussian from the model's; for views with one row per image, whose batch covariance is singular, it is that
    of the coordinates after whitening, taken as independent.

    Args:
        layers: statistics; each must hold a covariance of this kind.
        kind: of covariance, not "none".
        form: of the penalty.

    Raises:
        ValueError: for an unknown kind or form, no layers, or a layer without this kind.

    """

    def __init__(
        self, layers: Iterable[LayerStatistics] | Mapping[str, LayerStatistics], kind: PriorKind, form: Form = "nll"
    ) -> None:
        check_prior(kind, form)
        chosen = list(layers.values() if isinstance(layers, Mapping) else layers)
        if kind == "none" or not chosen:
            raise ValueError("a covariance prior needs a kind other than 'none' and at least one layer")
        self._layers: list[_LayerPrior] = [_layer_prior(layer, kind, form) for layer in chosen]
        quadratic = [layer for layer in self._layers if isinstance(layer, QuadraticPrior)]
        self._quadratic = QuadraticValues(quadratic, form)

    @property
    def measurements(self) -> Sequence[Measurement]:
        """One per layer."""
        return [layer.measurement for layer in self._layers]

    def value(self, readings: Sequence[Reading], count: int) -> Tensor:
        """The penalty."""
        quadratic, values = [], []
        for layer, reading in zip(self._layers, readings, strict=True):
            if isinstance(layer, QuadraticPrior):
                quadratic.append(reading)
            else:
                values.append(layer.value(reading, count))
        parts = [torch.stack(values)] if values else []
        if quadratic:
            parts.append(self._quadratic(quadratic))
        return torch.cat(parts).mean()


def _layer_prior(layer: LayerStatistics, kind: PriorKind, form: Form) -> _LayerPrior:
    if kind == "diagonal":
        moments = LayerMoments(layer, full=False)
        if form == "kl":
            return _DiagonalKl(layer, moments)
        return QuadraticPrior(layer, moments, layer.mean, 1 / layer.variance, layer.variance.log().sum())
    wanted = "dense" if kind == "dense" else "laplace"
    prior = layer.prior(wanted)
    if kind == "laplace-dct" and (not isinstance(prior, LaplaceNormal) or prior.basis is None):
        raise ValueError(f"'{layer.key}' has no covariance in the DCT basis: measure it with transform='dct'")
    assert isinstance(prior, LaplaceNormal | MultivariateNormal)
    if isinstance(prior, LaplaceNormal):
        prior = _without_checks(prior)
    logdet = 2 * prior.entropy() - layer.dim * _LOG_2_PI_E
    if layer.view.name != "map" and layer.dim <= _MOMENT_LIMIT:
        make = _MomentKl if form == "kl" else QuadraticPrior
        return make(layer, LayerMoments(layer, full=True), prior.mean, prior.precision_matrix, logdet)
    if form == "kl":
        if not isinstance(prior, LaplaceNormal):
            raise ValueError(
                f"the form 'kl' of a dense prior needs a view with several rows per image, not '{layer.key}'"
            )
        return _WhitenedPrior(layer, WhitenedMoments(layer, prior))
    return _RowPrior(layer, RowForms(layer, prior), form, logdet)


def _without_checks(normal: LaplaceNormal) -> LaplaceNormal:
    """The loop itself looks for activations that are not finite, and can say in which layer they begin."""
    covariance = LaplaceCovariance(**normal.covariance.tensors(), validate_args=False)
    return LaplaceNormal(normal.loc.detach(), covariance, normal.basis, validate_args=False)


_LOG_2_PI_E = 2.8378770664093453


@dataclass(frozen=True, eq=False)
class _DiagonalKl:
    layer: LayerStatistics
    measurement: LayerMoments

    def value(self, reading: Reading, count: int) -> Tensor:
        moments = reading.moments(self.layer.mean)
        return diagonal_kl(moments.mean, moments.variance, self.layer.variance.to(moments.mean)).mean()


@dataclass(frozen=True, eq=False)
class _MomentKl:
    """The rows enter only through their moments: q = tr(Sigma^-1 S), one small product."""

    layer: LayerStatistics
    measurement: LayerMoments
    mean: Tensor
    precision: Tensor
    logdet: Tensor

    def value(self, reading: Reading, count: int) -> Tensor:
        rows = count * self.layer.samples // max(self.layer.images, 1)
        if rows <= self.layer.dim:
            raise ValueError(
                f"the form 'kl' needs more rows than coordinates: a batch of {count} gives {rows} rows at "
                f"'{self.layer.key}', which has {self.layer.dim}; use a larger batch, or 'nll' or 'typical'"
            )
        moments = reading.moments(self.mean)
        quadratic = (self.precision.to(moments.mean) * moments.products).sum()
        return gaussian_kl(quadratic, self.logdet.to(quadratic), moments.covariance)


@dataclass(frozen=True, eq=False)
class _RowPrior:
    layer: LayerStatistics
    measurement: RowForms
    form: Form
    logdet: Tensor

    def value(self, reading: Reading, count: int) -> Tensor:
        return form_of_quadratic(reading.average, self.logdet.to(reading.average), self.layer.dim, self.form)


@dataclass(frozen=True, eq=False)
class _WhitenedPrior:
    layer: LayerStatistics
    measurement: WhitenedMoments

    def value(self, reading: Reading, count: int) -> Tensor:
        if count < 2:
            raise ValueError(
                f"the form 'kl' compares spreads: '{self.layer.key}' needs a batch of at least 2, got {count}"
            )
        mean, square = reading.average
        variance = (square - mean.square()).clamp_min(0)
        return diagonal_kl(mean, variance, torch.ones_like(variance), eps=1e-6).mean()


_LayerPrior = QuadraticPrior | _DiagonalKl | _MomentKl | _RowPrior | _WhitenedPrior
