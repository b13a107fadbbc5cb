"""A covariance prior on activations, in one of several forms: two independent choices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution

from remix.inversion.statistics_losses import (
    FORMS,
    Form,
    Remembered,
    diagonal_kl,
    form_of_quadratic,
    gaussian_kl,
    linear_forms,
)
from remix.inversion.terms import Average, BatchAverage, LayerMoments, Loss, Seen, moments_about
from remix.laplace import LaplaceCovariance, LaplaceNormal
from remix.statistics import LayerStatistics, covariance_kinds

__all__ = ["PRIORS", "CovariancePrior", "PriorKind", "check_prior"]

PriorKind = str
PRIORS: tuple[PriorKind, ...] = ("none", "diagonal", "laplace", "laplace-dct", "dense")
"""Those that come with REMIX; every other registered kind of covariance is one too."""

# Coordinates up to which a layer with several rows per image enters through its D x D second moment: up to there the
# product costs less than the network's own convolutions, and far less than whitening every row.
_MOMENT_LIMIT = 1024
_LOG_2_PI_E = 2.8378770664093453


def check_prior(kind: str, form: str) -> None:
    """Check the names of a prior and its form.

    Raises:
        ValueError: listing the known ones.

    """
    known = dict.fromkeys((*PRIORS, *covariance_kinds()))
    if kind not in known:
        raise ValueError(f"unknown prior {kind!r}; there are: {', '.join(known)}")
    if form not in FORMS:
        raise ValueError(f"unknown form of a prior {form!r}; there are: {', '.join(FORMS)}")


class CovariancePrior(Loss):
    """A penalty under a Gaussian with the given kind of covariance: per coordinate, and of layers the mean.

    Kinds: ``diagonal``, ``laplace`` (as fitted), ``laplace-dct`` (a Laplace covariance that was fitted in the DCT
    basis), ``dense``, and whatever else `LayerStatistics.prior` gives. Forms: ``nll`` and ``typical`` (see
    `form_of_quadratic`), and ``kl``: the divergence of the batch's Gaussian from the model's; for views with one row
    per image, whose batch covariance is singular, it is that of the coordinates after whitening, taken as independent.
    ``frobenius``: |S - Sigma|^2 / D between the covariances of batch and model, which says nothing of the means.

    Args:
        layers: statistics; each must hold a covariance of this kind.
        kind: of covariance, not "none".
        form: of the penalty.
        summed: whether the penalties of all coordinates of all layers are added up instead.

    Raises:
        ValueError: for an unknown kind or form, no layers, or a layer without this kind.

    """

    def __init__(
        self,
        layers: Iterable[LayerStatistics] | Mapping[str, LayerStatistics],
        kind: PriorKind,
        form: Form = "nll",
        *,
        summed: bool = False,
    ) -> None:
        check_prior(kind, form)
        chosen = list(layers.values() if isinstance(layers, Mapping) else layers)
        if kind == "none" or not chosen:
            raise ValueError("a covariance prior needs a kind other than 'none' and at least one layer")
        self._parts = [_layer_prior(layer, kind, form) for layer in chosen]
        self._quadratic = [part for part in self._parts if isinstance(part, _Quadratic)]
        self._constants = Remembered(self._make)
        self._form = form
        quadratic = [isinstance(part, _Quadratic) for part in self._parts]
        # In the order in which `value` has them.
        dims = [
            layer.dim for wanted in (False, True) for layer, is_ in zip(chosen, quadratic, strict=True) if is_ is wanted
        ]
        self._dims = torch.tensor(dims, dtype=torch.float64) if summed else None
        super().__init__(*(part.average for part in self._parts))

    def value(self, measured: Sequence[BatchAverage], count: int) -> Tensor:
        """The penalty."""
        quadratic, values = [], []
        for part, one in zip(self._parts, measured, strict=True):
            if isinstance(part, _Quadratic):
                quadratic.append(one)
            else:
                values.append(part.value(one, count))
        parts = [torch.stack(values)] if values else []
        if quadratic:  # all such layers at once
            factors, constants, logdets, dims = self._constants(quadratic)
            forms = linear_forms(quadratic, factors) + constants
            parts.append(form_of_quadratic(forms, logdets, dims, self._form))
        found = torch.cat(parts)
        return found.mean() if self._dims is None else torch.dot(found, self._dims.to(found))

    def _make(self, measured: Sequence[BatchAverage]) -> tuple[list[Tensor], Tensor, Tensor, Tensor]:
        pairs = [part.coefficients(one) for part, one in zip(self._quadratic, measured, strict=True)]
        like = measured[0].average
        logdets = torch.stack([part.logdet.to(like) for part in self._quadratic])
        dims = like.new_tensor([part.average.layer.dim for part in self._quadratic])
        return [factors for factors, _ in pairs], torch.stack([constant for _, constant in pairs]), logdets, dims


class _Quadratic(NamedTuple):
    """A Gaussian that sees the rows of a layer only through q = mean of (x - mu)' P (x - mu).

    Its mean mu is (D,), its precision P (D, D) or, diagonal, (D,); ``logdet`` is log det Sigma.
    """

    average: LayerMoments
    mean: Tensor
    precision: Tensor
    logdet: Tensor

    def coefficients(self, measured: BatchAverage) -> tuple[Tensor, Tensor]:
        """A and c with q = <A, measured> + c.

        With moments m and S about an origin o and s = o - mu: q = <P, S> + 2 s' P m + s' P s.
        """
        assert isinstance(measured.by, LayerMoments)
        shift = measured.by.layer.mean.to(self.mean) - self.mean
        if self.precision.dim() == 2:
            pulled, second = self.precision @ shift, self.precision
        else:
            full = len(measured.average) > 2
            pulled, second = self.precision * shift, self.precision.diag() if full else self.precision[None]
        factors = torch.cat([2 * pulled[None], second])
        return factors.to(measured.average), (shift @ pulled).to(measured.average)


class _Other(NamedTuple):
    """The penalty of one layer, from its average and the number of images."""

    average: Average
    value: Callable[[BatchAverage, int], Tensor]


def _layer_prior(layer: LayerStatistics, kind: PriorKind, form: Form) -> _Quadratic | _Other:
    if form == "frobenius":
        return _frobenius_prior(layer, kind)
    if kind == "diagonal":
        moments = LayerMoments(layer, full=False)
        if form == "kl":
            return _Other(moments, lambda measured, _: _diagonal_kl(layer, measured))
        return _Quadratic(moments, layer.mean, 1 / layer.variance, layer.variance.log().sum())
    prior = layer.prior("laplace" if kind == "laplace-dct" else kind)
    if isinstance(prior, LaplaceNormal):
        prior = _without_checks(prior)
    if kind == "laplace-dct" and (not isinstance(prior, LaplaceNormal) or prior.basis is None):
        raise ValueError(f"'{layer.key}' has no covariance in the DCT basis: measure it with transform='dct'")
    logdet = 2 * prior.entropy() - layer.dim * _LOG_2_PI_E
    if not layer.view.per_image and layer.dim <= _MOMENT_LIMIT:
        moments, precision = LayerMoments(layer, full=True), prior.precision_matrix  # type: ignore[attr-defined]
        if form == "kl":
            return _Other(moments, lambda one, count: _full_kl(layer, one, count, prior.mean, precision, logdet))
        return _Quadratic(moments, prior.mean, precision, logdet)
    if form == "kl":
        if not isinstance(prior, LaplaceNormal):
            raise ValueError(
                f"the form 'kl' of a {kind} prior needs a view with several rows per image, not '{layer.key}'"
            )
        return _Other(_WhitenedMoments(layer, prior), lambda one, count: _whitened_kl(layer, one, count))
    return _Other(
        _RowForms(layer, prior),
        lambda one, _: form_of_quadratic(one.average, logdet.to(one.average), layer.dim, form),
    )


def _frobenius_prior(layer: LayerStatistics, kind: PriorKind) -> _Other:
    if kind == "laplace-dct" or layer.view.per_image or layer.dim > _MOMENT_LIMIT:
        raise ValueError(
            f"the form 'frobenius' compares covariance matrices of at most {_MOMENT_LIMIT:,} channels, which "
            f"'{layer.key}' has none of: use another form, or statistics of channels"
        )
    if kind == "diagonal":
        model = torch.diag(layer.variance)
    else:
        model = layer.prior(kind).covariance_matrix.detach()  # type: ignore[attr-defined]
    return _Other(LayerMoments(layer, full=True), lambda measured, _: _frobenius_distance(layer, measured, model))


def _frobenius_distance(layer: LayerStatistics, measured: BatchAverage, model: Tensor) -> Tensor:
    """|S - Sigma|^2 / D. The norm of S stays in: without it the value would have no lower bound."""
    shift, second = moments_about(layer.mean, measured)
    products = second if second.dim() == 2 else second[:, None]  # of one coordinate
    covariance = products - torch.outer(shift, shift)
    return (covariance - model.to(covariance)).square().sum() / layer.dim


def _without_checks(normal: LaplaceNormal) -> LaplaceNormal:
    """The loop itself looks for activations that are not finite, and can say in which layer they begin."""
    covariance = LaplaceCovariance(**normal.covariance.tensors(), validate_args=False)
    return LaplaceNormal(normal.loc.detach(), covariance, normal.basis, validate_args=False)


def _diagonal_kl(layer: LayerStatistics, measured: BatchAverage) -> Tensor:
    shift, second = moments_about(layer.mean, measured)
    squares = second if second.dim() == 1 else second.diagonal()
    return diagonal_kl(shift, (squares - shift.square()).clamp_min(0), layer.variance.to(shift)).mean()


def _full_kl(
    layer: LayerStatistics, measured: BatchAverage, count: int, mean: Tensor, precision: Tensor, logdet: Tensor
) -> Tensor:
    """The rows enter only through their moments: q = tr(Sigma^-1 S), one small product."""
    rows = count * layer.samples // max(layer.images, 1)
    if rows <= layer.dim:
        raise ValueError(
            f"the form 'kl' needs more rows than coordinates: a batch of {count} gives {rows} rows at "
            f"'{layer.key}', which has {layer.dim}; use a larger batch, or 'nll' or 'typical'"
        )
    shift, second = moments_about(mean, measured)
    products = second if second.dim() == 2 else second[:, None]  # of one coordinate
    quadratic = (precision.to(shift) * products).sum()
    return gaussian_kl(quadratic, logdet.to(quadratic), products - torch.outer(shift, shift))


def _whitened_kl(layer: LayerStatistics, measured: BatchAverage, count: int) -> Tensor:
    if count < 2:
        raise ValueError(f"the form 'kl' compares spreads: '{layer.key}' needs a batch of at least 2, got {count}")
    mean, square = measured.average
    variance = (square - mean.square()).clamp_min(0)
    return diagonal_kl(mean, variance, torch.ones_like(variance), eps=1e-6).mean()


class _RowForms(Average):
    """The mean over images of the Mahalanobis form q of their rows (per row), one number."""

    def __init__(self, layer: LayerStatistics, prior: Distribution) -> None:
        self.layer, self.prior, self.points = layer, prior, (layer.point,)

    def __call__(self, seen: Seen) -> Tensor:
        rows = self.layer.view.rows(seen.activations[self.layer.point])
        # -2 log p = q + log det Sigma + D log 2 pi; the last two are known.
        constant = 2 * self.prior.entropy() - self.layer.dim
        return (-2 * self.prior.log_prob(rows) - constant).mean()


class _WhitenedMoments(Average):
    """Mean and mean square (2, D) of whitened rows: under the prior they are 0 and 1."""

    def __init__(self, layer: LayerStatistics, prior: LaplaceNormal) -> None:
        self.layer, self.prior, self.points = layer, prior, (layer.point,)

    def __call__(self, seen: Seen) -> Tensor:
        rows = self.layer.view.rows(seen.activations[self.layer.point]) - self.prior.loc
        if self.prior.basis is not None:
            rows = self.prior.basis.forward(rows)
        white = self.prior.covariance.whiten(rows)
        return torch.stack([white.mean(0), white.square().mean(0)])
