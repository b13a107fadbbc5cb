"""Batch averages: the only way in which terms look at a batch.

Every term of an objective is a smooth function of averages over the images of the batch. Averages add up over parts of
a batch, so its memory can be bounded without changing the objective (see `remix.inversion.objective`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.distributions import Distribution

from remix.inversion.channel_moments import passing_moments
from remix.inversion.moment_kernels import Affine
from remix.inversion.observed import Observed
from remix.laplace import LaplaceNormal
from remix.statistics import LayerStatistics, Point

__all__ = ["ImageAverage", "LayerMoments", "Measurement", "Moments", "Reading", "RowForms", "WhitenedMoments"]


class Measurement(Protocol):
    """An average over images, (...) in any shape; measurements with one key are made once and shared."""

    @property
    def key(self) -> object:
        """Equal keys mean the same numbers."""
        ...

    @property
    def detail(self) -> int:
        """Of two measurements with one key the one with more detail serves both."""
        ...

    @property
    def points(self) -> tuple[Point, ...]:
        """What has to be watched for it."""
        ...

    def __call__(self, seen: Observed) -> Tensor:
        """The average over the images of this part of the batch, differentiable."""
        ...


class Reading(NamedTuple):
    """A batch average and what measured it."""

    by: Measurement
    average: Tensor

    def moments(self, mean: Tensor) -> Moments:
        """The moments of a layer about ``mean`` (D,), from what a `LayerMoments` measured about its own origin."""
        assert isinstance(self.by, LayerMoments)
        first, second = self.average[0], self.average[1] if len(self.average) == 2 else self.average[1:]
        return Moments(first, second).about((self.by.layer.mean - mean.to(self.by.layer.mean)).to(first))


@dataclass(frozen=True, eq=False)
class ImageAverage:
    """The mean over images of any function of a part of the batch: (n, ...) -> (...)."""

    function: Callable[[Observed], Tensor]
    detail: int = 0
    points: tuple[Point, ...] = ()

    @property
    def key(self) -> object:
        """Itself."""
        return self

    def __call__(self, seen: Observed) -> Tensor:
        """Average."""
        return self.function(seen).mean(0)


@dataclass(frozen=True)
class Moments:
    """First and second moments of rows about some origin: mean (D,), second (D,) or (D, D)."""

    mean: Tensor
    second: Tensor

    @property
    def variance(self) -> Tensor:
        """Biased variances (D,)."""
        squares = self.second if self.second.dim() == 1 else self.second.diagonal()
        return (squares - self.mean.square()).clamp_min(0)

    @property
    def products(self) -> Tensor:
        """The second moment as a matrix (D, D); known where all products were measured."""
        return self.second if self.second.dim() == 2 else self.second[:, None]

    @property
    def covariance(self) -> Tensor:
        """(D, D), biased."""
        return self.products - torch.outer(self.mean, self.mean)

    def about(self, shift: Tensor) -> Moments:
        """The moments about a point that lies ``shift`` (D,) before the origin."""
        if self.second.dim() == 1:
            return Moments(self.mean + shift, self.second + 2 * self.mean * shift + shift.square())
        cross = torch.outer(self.mean, shift)
        return Moments(self.mean + shift, self.second + cross + cross.mT + torch.outer(shift, shift))


@dataclass(frozen=True, eq=False)
class LayerMoments:
    """The moments of a layer's rows about the mean of its statistics, as one tensor (2, D) or (1 + D, D)."""

    layer: LayerStatistics
    full: bool
    _origins: dict[tuple[torch.dtype, torch.device], Tensor] = field(default_factory=dict, init=False, repr=False)

    @property
    def key(self) -> object:
        """Point and view."""
        return self.layer.key

    @property
    def detail(self) -> int:
        """All products serve where squares are wanted."""
        return int(self.full)

    @property
    def points(self) -> tuple[Point, ...]:
        """The layer's."""
        return (self.layer.point,)

    def __call__(self, seen: Observed) -> Tensor:
        """Mean and second moment, stacked."""
        passed = seen.passed.get(self.key)
        return self.passing(seen.activations[self.layer.point])[1] if passed is None else passed

    @property
    def by_channel(self) -> bool:
        """Whether its coordinates are the channels."""
        return self.layer.view.name == "channels"

    def passing(self, x: Tensor, then: Affine | None = None) -> tuple[Tensor, Tensor]:
        """An activation (N, ...) as it goes on, and its moments; see `passing_moments`."""
        view = self.layer.view
        kind = (x.dtype, x.device)
        origin = self._origins.get(kind)
        if origin is None:
            origin = self._origins[kind] = self.layer.mean.detach().to(x).contiguous()
        if view.name in ("channels", "token-positions"):
            return passing_moments(x, 1, origin, self.full, then)
        assert then is None
        if view.name == "token-channels":
            return passing_moments(x, 2, origin, self.full)
        return x, passing_moments(view.rows(x), 1, origin, self.full)[1]


@dataclass(frozen=True, eq=False)
class RowForms:
    """The mean over images of the Mahalanobis form q of their rows (per row), one number."""

    layer: LayerStatistics
    prior: Distribution
    detail: int = 0
    key: object = field(default_factory=object)

    @property
    def points(self) -> tuple[Point, ...]:
        """The layer's."""
        return (self.layer.point,)

    def __call__(self, seen: Observed) -> Tensor:
        """Average."""
        rows = self.layer.view.rows(seen.activations[self.layer.point])
        # -2 log p = q + log det Sigma + D log 2 pi; the last two are known.
        constant = 2 * self.prior.entropy() - self.layer.dim
        return (-2 * self.prior.log_prob(rows) - constant).mean()


@dataclass(frozen=True, eq=False)
class WhitenedMoments:
    """Mean and mean square (2, D) of whitened rows: under the prior they are 0 and 1."""

    layer: LayerStatistics
    prior: LaplaceNormal
    detail: int = 0
    key: object = field(default_factory=object)

    @property
    def points(self) -> tuple[Point, ...]:
        """The layer's."""
        return (self.layer.point,)

    def __call__(self, seen: Observed) -> Tensor:
        """Average."""
        rows = self.layer.view.rows(seen.activations[self.layer.point]) - self.prior.loc
        if self.prior.basis is not None:
            rows = self.prior.basis.forward(rows)
        white = self.prior.covariance.whiten(rows)
        return torch.stack([white.mean(0), white.square().mean(0)])
