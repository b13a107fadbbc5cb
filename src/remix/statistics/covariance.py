"""Kinds of covariance of a layer's activations: one object, one file and one registration each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.distributions import Distribution

from remix.statistics.statistic import Tensors
from remix.support.registry import Registry

if TYPE_CHECKING:
    from typing_extensions import Self

    from remix.statistics.layers import LayerStatistics

__all__ = ["COVARIANCE_LIMIT", "Covariance", "Measured", "covariance_class", "covariance_kinds", "register_covariance"]

COVARIANCE_LIMIT = 1024  # coordinates up to which the full covariance is accumulated


class Measured(NamedTuple):
    """What a pass over the data leaves for a fit, in double precision.

    Attributes:
        mean: (D,).
        variance: (D,), positive.
        covariance: (D, D), where the kind asked for it.
        rows: (n, D), some of those seen, where the kind asked for them.
        samples: how many rows were seen.
        layout: (C, H, W) where the coordinates are a map's.
        transform: "dct" if maps are to be fitted in that basis.
        dtype: of the result.

    """

    mean: Tensor
    variance: Tensor
    covariance: Tensor | None
    rows: Tensor | None
    samples: int
    layout: tuple[int, int, int] | None
    transform: Any
    dtype: torch.dtype


class Covariance(ABC):
    """The covariance of one layer, of some kind. A registered kind can be measured, saved, merged and be a prior.

    Attributes:
        kind: what people type.
        title: what it is called in lists.

    """

    kind: ClassVar[str]
    title: ClassVar[str]

    @classmethod
    @abstractmethod
    def from_rows(cls, dim: int, layout: tuple[int, int, int] | None) -> bool:
        """Whether it is fitted to rows, rather than to the full covariance. Raises ValueError if there are too many
        coordinates.
        """

    @classmethod
    @abstractmethod
    def fit(cls, measured: Measured) -> Self:
        """Fit it."""

    @abstractmethod
    def distribution(self, layer: LayerStatistics) -> Distribution:
        """Of one row (D,): with ``mean``, ``log_prob``, ``entropy`` and ``precision_matrix``. Raises ValueError."""

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """What to save, under names that no other kind has."""

    def describe(self) -> dict[str, Any]:
        """What else is needed to make it again, under names that no other kind has."""
        return {}

    @classmethod
    @abstractmethod
    def from_tensors(cls, tensors: Tensors, described: Mapping[str, Any]) -> Self:
        """Make it again. Raises ValueError, KeyError."""

    @classmethod
    @abstractmethod
    def merge(cls, parts: Sequence[tuple[float, LayerStatistics]]) -> Self:
        """Of several tasks together, each with its weight; all have this kind."""

    @abstractmethod
    def rescale(self, mean: Tensor, variance: Tensor) -> Self:
        """The same correlations with another mean and other variances. Raises ValueError."""

    @abstractmethod
    def to(self, device: torch.device | str) -> Self:
        """The same on another device."""

    @abstractmethod
    def check(self, dim: int) -> None:
        """Whether it is a covariance of so many coordinates. Raises ValueError in words that follow "must"."""

    def difference(self, other: Self) -> str | None:
        """Why it cannot be merged with another, or None."""
        return None


_KINDS: Registry[type[Covariance]] = Registry("kind of covariance")
Kind = TypeVar("Kind", bound=type[Covariance])


def register_covariance(kind: Kind) -> Kind:
    """Decorate a `Covariance` so that it can be measured and be a prior. Raises ValueError if its name is taken."""
    if kind.kind in ("none", "diagonal"):
        raise ValueError(f"{kind.kind!r} means that no covariance is kept: choose another name")
    _KINDS.register(kind.kind, kind)
    return kind


def covariance_kinds() -> list[str]:
    """The registered kinds; variances alone, "diagonal", are always known."""
    return list(_KINDS)


def covariance_class(kind: str) -> type[Covariance]:
    """The class of a kind. Raises ValueError listing the known ones."""
    return _KINDS.find(kind)
