"""How sure a model may be: the scale of its logits, and how familiar images of its classes look to it."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from remix.statistics.records import is_count
from remix.statistics.statistic import Statistic, StoredItem, Tensors, register_statistic, size_of

__all__ = ["Calibration"]

_LEVELS = 101


@register_statistic
@dataclass(frozen=True, eq=False)
class Calibration(Statistic):
    """Measured on images of known classes that the head had not seen: held out, or each left out in turn.

    Attributes:
        scale: that logits are multiplied by to be probabilities; 1 where the head does it.
        images: that it was measured on.
        quantiles: of the scores of `Familiarity`, at 0, 1, ... 100 percent; None without such scores.

    Raises:
        ValueError: for what is none.

    """

    name: ClassVar[str] = "calibration"
    precise: ClassVar[bool] = True
    scale: float
    images: int
    quantiles: Tensor | None = None

    def __post_init__(self) -> None:
        if type(self.scale) is not float or not 0 < self.scale < math.inf:
            raise ValueError(f"the scale of logits must be above 0 and finite, got {str(self.scale)[:60]}")
        if not is_count(self.images, 1):
            raise ValueError(f"a calibration is measured on images, got {str(self.images)[:60]} of them")
        if self.quantiles is None:
            return
        if self.quantiles.shape != (_LEVELS,) or self.quantiles.dtype != torch.float64:
            raise ValueError(f"quantiles must be {_LEVELS} numbers, got {tuple(self.quantiles.shape)}")
        if not bool(torch.isfinite(self.quantiles).all()) or bool((self.quantiles.diff() < 0).any()):
            raise ValueError("quantiles must be finite and ascend")

    @classmethod
    def of(cls, scores: Tensor | None, images: int, scale: float = 1.0) -> Calibration:
        """Of scores (N,) of images; None where there are none."""
        if scores is None:
            return cls(scale, images)
        return cls(scale, images, torch.quantile(scores.double().cpu(), _levels()))

    def share(self, scores: Tensor) -> Tensor:
        """The share of images of known classes that look no more familiar, for each score (N,), in float64.

        Raises:
            ValueError: without quantiles.

        """
        if self.quantiles is None:
            raise ValueError("no scores of images of known classes are kept")
        scores = scores.double().cpu()
        return torch.where(scores < self.quantiles[0], 0.0, _interpolated(scores, self.quantiles, _levels()))

    def merge(self, other: Calibration, classes: tuple[int, int] = (0, 0)) -> Calibration:
        """Of the images of both; the scale is the newer one's, since heads change."""
        images = self.images + other.images
        if self.quantiles is None or other.quantiles is None:
            return Calibration(other.scale, images)
        values, order = torch.cat([self.quantiles, other.quantiles]).sort(stable=True)
        weights = torch.tensor([self.images, other.images], dtype=torch.float64).repeat_interleave(_LEVELS)[order]
        reached = weights.cumsum(0) - 0.5 * weights
        reached = (reached - reached[0]) / (reached[-1] - reached[0])
        return Calibration(other.scale, images, _interpolated(_levels(), reached, values))

    # --- as a statistic of a memory ---

    def tensors(self) -> dict[str, Tensor]:
        """The quantiles."""
        return {} if self.quantiles is None else {"quantiles": self.quantiles}

    def describe(self) -> dict[str, Any]:
        """Numbers, and whether there are quantiles."""
        return {"scale": self.scale, "images": self.images, "scores": self.quantiles is not None}

    @classmethod
    def from_tensors(cls, tensors: Tensors, described: Any) -> Calibration:
        """Make it again."""
        quantiles = tensors.pop("quantiles") if described["scores"] is True else None
        return cls(described["scale"], described["images"], quantiles)

    def to(self, device: torch.device | str) -> Calibration:
        """It stays on the processor: not every device has double precision."""
        return self

    def without(self, labels: Collection[int]) -> tuple[Calibration, str]:
        """Nothing in it is one class's own."""
        return self, "how familiar images look is of all classes together"

    def stored(self) -> list[StoredItem]:
        """What is kept, for a person."""
        detail = f"scale of logits, and of scores of {self.images} images {len(self.tensors()) * _LEVELS} quantiles"
        return [StoredItem("calibration", "answers", detail, size_of(list(self.tensors().values())) + 8)]


def _levels() -> Tensor:
    return torch.linspace(0, 1, _LEVELS, dtype=torch.float64)


def _interpolated(at: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Values at some places of the broken line through the points (x, y), x ascending; level beyond its ends."""
    right = torch.searchsorted(x, at.to(x), right=True).clamp(1, len(x) - 1)
    left = right - 1
    width = x[right] - x[left]
    part = torch.where(width > 0, (at - x[left]) / torch.where(width > 0, width, 1.0), 1.0).clamp(0, 1)
    return y[left] + part * (y[right] - y[left])
