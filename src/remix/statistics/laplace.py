"""The Laplace covariance of a layer: three vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from remix.laplace import Dct2, LaplaceCovariance, LaplaceNormal, fit, fit_covariance
from remix.laplace import merge as merge_normals
from remix.statistics.covariance import COVARIANCE_LIMIT, Covariance, Measured, register_covariance
from remix.statistics.layers import LayerStatistics
from remix.statistics.moments import mixture
from remix.statistics.statistic import Tensors, integers

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Laplace"]

EXACT_LIMIT = 512  # coordinates up to which the mixture's covariance is formed and fitted


@register_covariance
@dataclass(frozen=True, eq=False)
class Laplace(Covariance):
    """A `LaplaceNormal`, perhaps in the DCT basis."""

    kind: ClassVar[str] = "laplace"
    title: ClassVar[str] = "Laplace covariance"
    normal: LaplaceNormal

    @classmethod
    def from_rows(cls, dim: int, layout: tuple[int, int, int] | None) -> bool:
        """Maps are fitted to rows even where they are small: there the fit uses their layout and validates on rows."""
        return dim > COVARIANCE_LIMIT or layout is not None

    @classmethod
    def fit(cls, measured: Measured) -> Laplace:
        """To the covariance, with exactly its variances; or to rows.

        Where the rows are only a part of those seen, mean and variances are those of all of them (in the DCT basis only
        the mean: the variances there are per frequency).
        """
        if measured.rows is None:
            assert measured.covariance is not None
            return cls(_fit_moments(measured.mean, measured.covariance, measured.samples, measured.dtype))
        normal = fit(measured.rows, layout=measured.layout, transform=measured.transform)
        if measured.samples <= len(measured.rows):
            return cls(normal)
        return cls(_with_moments(normal, measured.mean, None if normal.basis is not None else measured.variance))

    def distribution(self, layer: LayerStatistics) -> LaplaceNormal:
        """As fitted."""
        return self.normal

    def tensors(self) -> dict[str, Tensor]:
        """Mean and the three vectors."""
        return {"loc": self.normal.loc, **self.normal.covariance.tensors()}

    def describe(self) -> dict[str, Any]:
        """The layout of the DCT."""
        basis = self.normal.basis
        if basis is None:
            return {}
        if not isinstance(basis, Dct2):
            raise TypeError(f"a covariance in the basis {type(basis).__name__} cannot be saved")
        return {"dct": list(basis.layout)}

    @classmethod
    def from_tensors(cls, tensors: Tensors, described: Mapping[str, Any]) -> Self:
        """Make it again."""
        vectors = {name: tensors.pop(name) for name in ("loc", "diag", "weight", "coord")}
        channels, height, width = integers(described["dct"]) if "dct" in described else (0, 0, 0)
        basis = Dct2((channels, height, width)) if "dct" in described else None
        return cls(LaplaceNormal(vectors.pop("loc"), LaplaceCovariance(**vectors, validate_args=True), basis, True))

    @classmethod
    def merge(cls, parts: Sequence[tuple[float, LayerStatistics]]) -> Laplace:
        """Refitted to the mixture: to the matrix itself up to 512 coordinates, beyond without any dense matrix.

        The fits of the parts are among the starts, and the most likely result is kept: a refit from nothing can end
        further from the mixture than the fit of the old tasks was.
        """
        layers = [layer for _, layer in parts]
        normals = [(weight, layer.normal) for weight, layer in parts if layer.normal is not None]
        if layers[0].dim > EXACT_LIMIT or any(normal.basis is not None for _, normal in normals):
            return cls(merge_normals(normals))
        dense = [(weight, layer.mean, layer.covariance) for weight, layer in parts if layer.covariance is not None]
        exact = mixture(dense or [(w, normal.loc, normal.covariance_matrix.detach()) for w, normal in normals])
        samples = sum(layer.samples for layer in layers)
        known = [normal.covariance for _, normal in normals]
        return cls(_fit_moments(exact.mean, exact.covariance(), samples, layers[0].mean.dtype, known))

    def rescale(self, mean: Tensor, variance: Tensor) -> Self:
        """The same correlations; not in another basis, where variances are not those of coordinates."""
        if self.normal.basis is not None:
            raise ValueError("has a covariance in another basis: its variances cannot be set")
        return type(self)(_with_moments(self.normal, mean, variance))

    def to(self, device: torch.device | str) -> Self:
        """The same on another device."""
        return type(self)(self.normal.to(device))

    def check(self, dim: int) -> None:
        """One normal of so many coordinates."""
        if self.normal.loc.shape != (dim,):
            raise ValueError(f"be a single normal of {dim} coordinates, got {self.normal!r}")

    def difference(self, other: Laplace) -> str | None:
        """Bases must be one."""
        if self.normal.basis == other.normal.basis:
            return None
        return f"is in the basis {self.normal.basis} in one and {other.normal.basis} in the other"


def _fit_moments(
    mean: Tensor, covariance: Tensor, samples: int, dtype: torch.dtype, known: Sequence[LaplaceCovariance] = ()
) -> LaplaceNormal:
    """Fitted in double precision."""
    normal = fit_covariance(covariance.double(), mean.double(), samples=max(samples, 1), known=known)
    return normal.to(mean.device, dtype)


def _with_moments(normal: LaplaceNormal, mean: Tensor, variance: Tensor | None) -> LaplaceNormal:
    """The same correlations with another mean (D,) and, if given, other variances (D,) in the normal's own basis."""
    like = normal.loc
    sigma = normal.covariance if variance is None else normal.covariance.rescale(variance.to(like))
    changed = LaplaceNormal(mean.to(like), sigma, normal.basis)
    changed.report = normal.report
    return changed
