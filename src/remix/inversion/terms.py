"""The terms of an objective, and what they see of a batch: averages over its images.

A `Term` is a named, weighted `Loss`. A loss is a smooth function of averages over the images of the batch, and says
which: each is an `Average` of what is `Seen` of a part of the batch. Averages add up over parts, so memory can be
bounded without changing the objective (see `remix.inversion.total_loss`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from remix.inversion.passing_moments import Affine, passing_moments
from remix.statistics import LayerStatistics, Point

__all__ = ["Average", "BatchAverage", "Boost", "LayerMoments", "Loss", "Seen", "Term", "moments_about"]


@dataclass(frozen=True)
class Seen:
    """A part of the batch and what the network made of it.

    Attributes:
        part: which samples of the whole batch these are.
        variable: what is sought, (n, ...): images, or the input of a block.
        inputs: what the network received: the variable, perhaps jittered, flipped, resized.
        output: what it gave.
        activations: at the points that averages named.
        passed: by key, the moments that were measured on the way.

    """

    part: slice
    variable: Tensor
    inputs: Tensor
    output: Tensor
    activations: Mapping[Point, Tensor] = field(default_factory=dict)
    passed: Mapping[object, Tensor] = field(default_factory=dict)


class Average:
    """The mean over images of a function of what is seen, (n, ...) -> (...), differentiable.

    Attributes:
        key: averages with equal keys are the same numbers; they are measured once.
        detail: of two with one key, the one with more detail serves both.
        points: of the network whose activations it looks at.

    """

    detail: int = 0
    points: tuple[Point, ...] = ()

    def __init__(self, per_image: Callable[[Seen], Tensor]) -> None:
        self._per_image = per_image

    @property
    def key(self) -> object:
        """By default itself."""
        return self

    def __call__(self, seen: Seen) -> Tensor:
        """The average over this part of the batch."""
        return self._per_image(seen).mean(0)


class BatchAverage(NamedTuple):
    """A batch average and what measured it."""

    by: Average
    average: Tensor


class Loss:
    """A smooth function of batch averages; by default the first one itself.

    Args:
        averages: that it is a function of.

    """

    def __init__(self, *averages: Average) -> None:
        self.averages: Sequence[Average] = averages

    def value(self, measured: Sequence[BatchAverage], count: int) -> Tensor:
        """The loss (a scalar) of a batch of ``count`` images, from its averages in their order."""
        return measured[0].average


@dataclass(frozen=True)
class Boost:
    """Multiply a term's weight by ``factor`` in every step in which the term is larger than it was in step 0.

    The weight never exceeds ``cap`` times its first value and never shrinks again.
    """

    cap: float = 10.0
    factor: float = 2.0

    def __post_init__(self) -> None:
        if self.cap < 1 or self.factor <= 1:
            raise ValueError(f"a boost needs a cap of at least 1 and a factor above 1, got {self}")


@dataclass(frozen=True)
class Term:
    """A named, weighted part of an objective. ``boost`` is None for a weight that stays.

    Raises:
        ValueError: if the weight is negative or not finite.

    """

    name: str
    weight: float
    loss: Loss
    boost: Boost | None = None

    def __post_init__(self) -> None:
        if not (self.weight >= 0 and math.isfinite(self.weight)):
            raise ValueError(f"the weight of term {self.name!r} must not be negative, got {self.weight}")


class LayerMoments(Average):
    """The moments of a layer's rows about the mean of its statistics, as one tensor (2, D) or (1 + D, D).

    They are measured while the network passes the activation on, when it is in the cache.

    Args:
        layer: where, and how activations are read.
        full: all products, or only squares.
        of_variable: whether the layer is the unknown itself, so that no module needs to be watched.

    """

    def __init__(self, layer: LayerStatistics, full: bool, of_variable: bool = False) -> None:
        self.layer, self.full, self.detail = layer, full, int(full)
        self.points = () if of_variable else (layer.point,)
        self._origins: dict[tuple[torch.dtype, torch.device], Tensor] = {}

    @property
    def key(self) -> object:
        """Point and view."""
        return self.layer.key

    def __call__(self, seen: Seen) -> Tensor:
        """Mean and second moment, stacked."""
        return seen.passed[self.key] if self.points else self.passing(seen.variable)[1]

    def passing(self, x: Tensor, then: Affine | None = None) -> tuple[Tensor, Tensor]:
        """An activation (N, ...) as it goes on, and its moments; see `passing_moments`.

        ``then``, a map of every channel that comes next, can be given for views along axis 1.
        """
        view = self.layer.view
        kind = (x.dtype, x.device)
        origin = self._origins.get(kind)
        if origin is None:
            origin = self._origins[kind] = self.layer.mean.detach().to(x).contiguous()
        if view.axis is None:
            return x, passing_moments(view.rows(x), 1, origin, self.full)[1]
        return passing_moments(x, view.axis, origin, self.full, then)


def moments_about(mean: Tensor, measured: BatchAverage) -> tuple[Tensor, Tensor]:
    """Mean (D,) and second moment (D,) or (D, D) about ``mean``, from what `LayerMoments` measured about its origin."""
    assert isinstance(measured.by, LayerMoments)
    origin, stacked = measured.by.layer.mean, measured.average
    first, second = stacked[0], stacked[1] if len(stacked) == 2 else stacked[1:]
    shift = (origin - mean.to(origin)).to(stacked)
    if second.dim() == 1:
        return first + shift, second + 2 * first * shift + shift.square()
    cross = torch.outer(first, shift)
    return first + shift, second + cross + cross.mT + torch.outer(shift, shift)
