"""What is remembered of the activations at one place of a network."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, MultivariateNormal, Normal

from remix.laplace import LaplaceNormal
from remix.networks.hooks import Point
from remix.networks.views import View
from remix.statistics.dense import is_covariance, shrunk_covariance
from remix.statistics.normals import move_normal, with_moments
from remix.statistics.records import is_count

__all__ = ["Kind", "LayerStatistics"]

Kind = Literal["diagonal", "laplace", "dense"]


@dataclass(frozen=True, eq=False)
class LayerStatistics:
    """Mean, variances and, if measured, covariances of the activations at one point, read through one view.

    Attributes:
        point: where.
        view: how activations become rows of D coordinates.
        shape: of one activation, without the batch axis.
        images: images measured; 0 where the numbers are a network's own running averages.
        mean: (D,).
        variance: (D,), positive.
        normal: the Laplace normal, or None.
        covariance: (D, D) as measured, not shrunk, or None.

    Raises:
        ValueError: if shapes disagree, numbers are not finite, or a variance is not positive.

    """

    point: Point
    view: View
    shape: tuple[int, ...]
    images: int
    mean: Tensor
    variance: Tensor
    normal: LaplaceNormal | None = None
    covariance: Tensor | None = None

    def __post_init__(self) -> None:
        dim = self.view.dim(self.shape)
        if min(self.shape) < 1:
            raise ValueError(f"shape at '{self.key}' must be positive, got {self.shape}")
        expected = {"mean": (dim,), "variance": (dim,), "covariance": (dim, dim)}
        for name, shape in expected.items():
            value = getattr(self, name)
            if value is None and name == "covariance":
                continue
            if not isinstance(value, Tensor) or not value.is_floating_point() or value.shape != shape:
                raise ValueError(f"{name} at '{self.key}' must be a floating-point tensor of shape {shape}")
            if not bool(torch.isfinite(value).all()):
                raise ValueError(f"{name} at '{self.key}' must be finite")
        if not bool((self.variance > 0).all()):
            raise ValueError(f"variance at '{self.key}' must be positive")
        if self.normal is not None and self.normal.loc.shape != (dim,):
            raise ValueError(f"normal at '{self.key}' must be a single one of {dim} coordinates, got {self.normal!r}")
        tensors = [self.mean, self.variance, self.covariance, self.normal and self.normal.loc]
        if len({tensor.dtype for tensor in tensors if isinstance(tensor, Tensor)}) > 1:
            raise ValueError(f"mean, variance and covariance at '{self.key}' must have one precision")
        if self.covariance is not None and not is_covariance(self.covariance):
            raise ValueError(f"covariance at '{self.key}' must be symmetric, its diagonal positive and the largest")
        if not is_count(self.images):
            raise ValueError(f"images at '{self.key}' must be a number of images, got {str(self.images)[:60]}")

    @property
    def dim(self) -> int:
        """D."""
        return len(self.mean)

    @property
    def samples(self) -> int:
        """Rows that were measured: images times rows per image."""
        return self.images * (math.prod(self.shape) // self.dim)

    @property
    def key(self) -> str:
        """Point and view: ``"stage_1.0.bn1:input:channels"``."""
        return f"{self.point}:{self.view.name}"

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The priors that `prior` can give."""
        laplace: tuple[Kind, ...] = () if self.normal is None else ("laplace",)
        dense: tuple[Kind, ...] = () if self.covariance is None else ("dense",)
        return ("diagonal", *laplace, *dense)

    def prior(self, kind: Kind) -> Distribution:
        """The distribution of one row (D,) under a covariance of this kind.

        ``diagonal``: independent coordinates. ``laplace``: the fitted Laplace normal. ``dense``: the full covariance,
        its correlations shrunk towards zero as the number of samples asks for (`shrunk_covariance`).

        Raises:
            ValueError: if this kind was not measured, or the covariance is none.

        """
        if kind == "laplace" and self.normal is not None:
            return self.normal
        if kind == "dense" and self.covariance is not None:
            covariance = shrunk_covariance(self.covariance, self.samples)
            try:
                return MultivariateNormal(self.mean, covariance, validate_args=False)
            except RuntimeError as error:
                raise ValueError(f"covariance at '{self.key}' is none: it has negative eigenvalues") from error
        if kind == "diagonal":
            return Independent(Normal(self.mean, self.variance.sqrt(), validate_args=False), 1, validate_args=False)
        raise ValueError(f"there is no {kind!r} prior at '{self.key}'; measured are: {', '.join(self.kinds)}")

    def rescale(self, mean: Tensor, variance: Tensor) -> LayerStatistics:
        """The same correlations with another mean (D,) and other variances (D,), positive.

        Raises:
            ValueError: for wrong shapes or values, or if the normal lives in a basis other than the coordinates.

        """
        mean, variance = mean.detach().to(self.mean, copy=True), variance.detach().to(self.variance, copy=True)
        normal, covariance = self.normal, self.covariance
        if normal is not None:
            if normal.basis is not None:
                raise ValueError(f"'{self.key}' has a covariance in another basis: its variances cannot be set")
            normal = with_moments(normal, mean, variance)
        if covariance is not None:
            ratio = (variance / covariance.diagonal()).sqrt()
            covariance = ratio[:, None] * covariance * ratio
        return replace(self, mean=mean, variance=variance, normal=normal, covariance=covariance)

    def to(self, device: torch.device | str) -> LayerStatistics:
        """The same statistics on another device."""
        return replace(
            self,
            mean=self.mean.to(device),
            variance=self.variance.to(device),
            normal=None if self.normal is None else move_normal(self.normal, device),
            covariance=None if self.covariance is None else self.covariance.to(device),
        )
