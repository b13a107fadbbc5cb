"""Numbers of many layers at once.

A network has dozens of layers with a few dozen channels each. An operation of torch on so few numbers costs a hundred
times its work, so the numbers of all layers are laid one after another and every operation is done once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from remix.inversion.measurements import Measurement, Reading

__all__ = ["Remembered", "linear_forms", "mean_and_squares"]

T = TypeVar("T")


def mean_and_squares(readings: Sequence[Reading]) -> tuple[Tensor, Tensor]:
    """Means and mean squares of layers about the origins from which they were measured, one after another: (sum D,)."""
    means, squares = _MeanAndSquares.apply(*(reading.average for reading in readings))
    return means, squares


def linear_forms(readings: Sequence[Reading], coefficients: Sequence[Tensor]) -> Tensor:
    """By layer, the sum of all numbers of its reading times coefficients of the same shape: (layers,)."""
    forms: Tensor = _LinearForms.apply(coefficients, *(reading.average for reading in readings))
    return forms


class Remembered(Generic[T]):
    """Constants that depend only on what measured the readings, their dtype and their device: made once for each."""

    def __init__(self, make: Callable[[Sequence[Reading]], T]) -> None:
        self._make = make
        self._sources: list[Measurement] = []
        self._kind: tuple[torch.dtype, torch.device] | None = None
        self._value: T | None = None

    def __call__(self, readings: Sequence[Reading]) -> T:
        """The constants for these readings."""
        sources, kind = [reading.by for reading in readings], (readings[0].average.dtype, readings[0].average.device)
        same = kind == self._kind and all(a is b for a, b in zip(sources, self._sources, strict=True))
        if self._value is None or not same:
            with torch.no_grad():
                self._value = self._make(readings)
            self._sources, self._kind = sources, kind
        return self._value


class _MeanAndSquares(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *averages: Tensor) -> tuple[Tensor, Tensor]:
        ctx.shapes = [average.shape for average in averages]
        squares = [average[1] if len(average) == 2 else average[1:].diagonal() for average in averages]
        return torch.cat([average[0] for average in averages]), torch.cat(squares)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_means: Tensor, of_squares: Tensor) -> tuple[Tensor, ...]:
        sizes = [shape[1] for shape in ctx.shapes]
        gradients = []
        for shape, mean, square in zip(ctx.shapes, of_means.split(sizes), of_squares.split(sizes), strict=True):
            gradient = mean.new_zeros(shape)
            gradient[0] = mean
            (gradient[1] if len(gradient) == 2 else gradient[1:].diagonal()).copy_(square)
            gradients.append(gradient)
        return tuple(gradients)


class _LinearForms(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, coefficients: Sequence[Tensor], *averages: Tensor) -> Tensor:
        ctx.coefficients = coefficients
        pairs = zip(coefficients, averages, strict=True)
        return torch.stack([torch.dot(factor.reshape(-1), average.reshape(-1)) for factor, average in pairs])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_forms: Tensor) -> tuple[Tensor | None, ...]:
        slopes = of_forms.unbind()
        return None, *(slope * factor for slope, factor in zip(slopes, ctx.coefficients, strict=True))
