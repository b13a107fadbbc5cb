"""Laplace covariances fitted and merged as published: as the paper has it, and as its authors' code does.

Ours (`remix.statistics.laplace`) maximises the likelihood with exact variances; these two are for comparison.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from remix.laplace import FrobeniusRecipe, LaplaceCovariance, LaplaceNormal, fit
from remix.laplace.fitting.frobenius import descend_on_matrix
from remix.laplace.fitting.report import FitReport
from remix.statistics.covariance import COVARIANCE_LIMIT, Measured, register_covariance
from remix.statistics.laplace import Laplace
from remix.statistics.layers import LayerStatistics
from remix.statistics.statistic import Tensors

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["CodeLaplace", "PaperLaplace"]

_RECIPE = FrobeniusRecipe(floor=1e-6)  # Adam at 0.01, 200 steps


class _Published(Laplace):
    """Of channels."""

    @classmethod
    def from_rows(cls, dim: int, layout: tuple[int, int, int] | None) -> bool:
        """Never."""
        if dim > COVARIANCE_LIMIT or layout is not None:
            raise ValueError(f"is of at most {COVARIANCE_LIMIT} channels; use kind 'laplace' there")
        return False

    def tensors(self) -> dict[str, Tensor]:
        """Under names of its own."""
        return {f"{self.kind}.{name}": tensor for name, tensor in super().tensors().items()}

    @classmethod
    def from_tensors(cls, tensors: Tensors, described: Mapping[str, Any]) -> Self:
        """Make it again."""
        return super().from_tensors(tensors.under(f"{cls.kind}."), {})


@register_covariance
@dataclass(frozen=True, eq=False)
class PaperLaplace(_Published):
    """As the paper has it: the Frobenius distance of covariances, tasks as a weighted sum without spread of means.

    Of whole maps too, with the settings behind the paper's images; these are not merged.
    """

    kind: ClassVar[str] = "laplace-paper"
    title: ClassVar[str] = "Laplace covariance (paper)"

    @classmethod
    def from_rows(cls, dim: int, layout: tuple[int, int, int] | None) -> bool:
        """Maps are."""
        return layout is not None or super().from_rows(dim, layout)

    @classmethod
    def fit(cls, measured: Measured) -> PaperLaplace:
        """To the covariance; or to rows of maps, without a transform."""
        if measured.layout is not None:
            assert measured.rows is not None
            normal = fit(measured.rows, "frobenius", recipe=FrobeniusRecipe.for_images(len(measured.rows)))
            return cls(LaplaceNormal(measured.mean.to(normal.loc), normal.covariance))
        assert measured.covariance is not None
        normal = _normal(measured.mean, descend_on_matrix(measured.covariance, _RECIPE), measured.dtype)
        return cls(_reported(normal, measured.covariance, measured.samples))

    @classmethod
    def merge(cls, parts: Sequence[tuple[float, LayerStatistics]]) -> PaperLaplace:
        """Sigma = sum_i c_i Sigma_i of the fitted models, fitted again."""
        if parts[0][1].view.per_image:
            raise ValueError("the published Laplace covariances of whole maps cannot be merged: use kind 'laplace'")
        total = sum(weight for weight, _ in parts)
        normals = [(weight / total, _normal_of(layer, cls.kind)) for weight, layer in parts]
        target = sum(share * normal.covariance_matrix.double() for share, normal in normals)
        mean = sum(share * normal.loc.double() for share, normal in normals)
        assert isinstance(target, Tensor)
        assert isinstance(mean, Tensor)
        normal = _normal(mean, descend_on_matrix(target, _RECIPE), parts[0][1].mean.dtype)
        return cls(_reported(normal, target, _samples(parts)))


@register_covariance
@dataclass(frozen=True, eq=False)
class CodeLaplace(_Published):
    """As the authors' code does: on correlations, one fit to a blend of the last fit and what was just measured.

    Attributes:
        correlation: what was just measured, (D, D), until it is merged; it is not saved.

    """

    kind: ClassVar[str] = "laplace-code"
    title: ClassVar[str] = "Laplace covariance (code)"
    correlation: Tensor | None = None

    @classmethod
    def fit(cls, measured: Measured) -> CodeLaplace:
        """To the correlation; the variances are those measured."""
        assert measured.covariance is not None
        parts = descend_on_matrix(measured.covariance, _RECIPE, correlation=True)
        normal = _scaled(_normal(measured.mean, parts, measured.dtype), measured.variance)
        return cls(_reported(normal, measured.covariance, measured.samples), _correlation(measured.covariance))

    @classmethod
    def merge(cls, parts: Sequence[tuple[float, LayerStatistics]]) -> CodeLaplace:
        """R = sum_i c_i R_i, of the first part the fitted model's, of others what was measured; begun at the first."""
        total = sum(weight for weight, _ in parts)
        first = _normal_of(parts[0][1], cls.kind)
        target = parts[0][0] / total * _correlation(first.covariance_matrix.double())
        for weight, layer in parts[1:]:
            new = layer.covariances[cls.kind]
            assert isinstance(new, CodeLaplace)
            seen = _correlation(new.normal.covariance_matrix.double()) if new.correlation is None else new.correlation
            target = target + weight / total * seen
        sigma = first.covariance.rescale(torch.ones_like(first.loc))
        found = descend_on_matrix(target, _RECIPE, True, (sigma.diag, sigma.weight, sigma.coord))
        mean = sum(weight / total * layer.mean.double() for weight, layer in parts)
        assert isinstance(mean, Tensor)
        variance = sum(weight / total * layer.variance.double() for weight, layer in parts)
        assert isinstance(variance, Tensor)
        normal = _scaled(_normal(mean, found, parts[0][1].mean.dtype), variance)
        spread = variance.sqrt()
        return cls(_reported(normal, spread[:, None] * target * spread, _samples(parts)))

    def to(self, device: torch.device | str) -> Self:
        """The same on another device."""
        correlation = None if self.correlation is None else self.correlation.to(device)
        return type(self)(super().to(device).normal, correlation)


def _normal_of(layer: LayerStatistics, kind: str) -> LaplaceNormal:
    found = layer.covariances[kind]
    assert isinstance(found, Laplace)
    return found.normal


def _normal(mean: Tensor, parts: tuple[Tensor, Tensor, Tensor], dtype: torch.dtype) -> LaplaceNormal:
    diag, weight, coord = (part.to(dtype) for part in parts)
    return LaplaceNormal(mean.to(dtype), LaplaceCovariance(diag, weight, coord))


def _scaled(normal: LaplaceNormal, variance: Tensor) -> LaplaceNormal:
    """The same correlations with other variances."""
    return LaplaceNormal(normal.loc, normal.covariance.rescale(variance.to(normal.loc)))


def _reported(normal: LaplaceNormal, covariance: Tensor, samples: int) -> LaplaceNormal:
    """The same with what the fit tells about itself: how likely rows of this covariance (D, D) are, on average."""
    dim, sigma, target = len(covariance), normal.covariance_matrix.double(), covariance.double()
    constant = dim * math.log(2 * math.pi)
    likelihood = -0.5 * (constant + torch.logdet(sigma) + torch.linalg.solve(sigma, target).trace()) / dim
    diagonal = -0.5 * (constant + target.diagonal().log().sum() + dim) / dim
    error = torch.linalg.matrix_norm(sigma - target) / torch.linalg.matrix_norm(target)
    normal.report = FitReport(
        objective="frobenius", samples=samples, dim=dim, basis="original", start="in order", scale=1.0,
        train_log_likelihood=float(likelihood), diagonal_train_log_likelihood=float(diagonal),
        validation_log_likelihood=None, diagonal_validation_log_likelihood=None,
        frobenius_error=float(error), parameters=3 * dim,
    )  # fmt: skip
    return normal


def _samples(parts: Sequence[tuple[float, LayerStatistics]]) -> int:
    return sum(layer.samples for _, layer in parts)


def _correlation(matrix: Tensor) -> Tensor:
    scale = matrix.diagonal().rsqrt()
    return scale[:, None] * matrix * scale
