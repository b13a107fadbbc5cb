"""A limited-memory quasi-Newton minimiser for smooth functions of many variables.

scipy's L-BFGS-B spends ten times the cost of a likelihood sweep on its own bookkeeping when there are 400,000
variables; without bounds the method is a dozen lines.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Minimum", "minimise"]

Vector = NDArray[np.float64]


@dataclass
class Minimum:
    """Where the search ended: ``point``, ``value``, and how many ``steps`` it took."""

    point: Vector
    value: float
    steps: int


def _dot(a: Vector, b: Vector) -> float:
    # Not BLAS: its sums depend on the number of threads, and waking them costs more than the product.
    return float(np.einsum("i,i->", a, b))


class _Memory:
    """The last few (step, change of gradient) pairs and the inverse Hessian they imply."""

    def __init__(self, size: int, most: int) -> None:
        self.steps = np.empty((most, size))
        self.changes = np.empty((most, size))
        self.curvature = np.empty(most)
        self.used: list[int] = []

    def add(self, step: Vector, change: Vector) -> None:
        curvature = _dot(step, change)
        if curvature <= 1e-10 * np.sqrt(_dot(step, step) * _dot(change, change)):
            return
        row = len(self.used) if len(self.used) < len(self.steps) else self.used.pop(0)
        self.steps[row], self.changes[row], self.curvature[row] = step, change, curvature
        self.used.append(row)

    def direction(self, gradient: Vector) -> Vector:
        """- H gradient by the two-loop recursion."""
        result = -gradient
        if not self.used:
            return result
        shares = {}
        for row in reversed(self.used):
            shares[row] = _dot(self.steps[row], result) / self.curvature[row]
            result -= shares[row] * self.changes[row]
        last = self.changes[self.used[-1]]
        result *= self.curvature[self.used[-1]] / _dot(last, last)
        for row in self.used:
            result += (shares[row] - _dot(self.changes[row], result) / self.curvature[row]) * self.steps[row]
        return result


def minimise(
    objective: Callable[[Vector], tuple[float, Vector]],
    start: Vector,
    steps: int,
    tolerance: float = 1e-7,
    first_step: float = 0.1,
    memory: int = 6,
    watch: Callable[[Vector], None] | None = None,
) -> Minimum:
    """Minimise ``objective`` (point -> value, gradient) from ``start``.

    Stops after ``steps`` steps, or when two successive steps gain less than ``tolerance`` relative to |value| (at least
    1). ``first_step`` is the largest change of any variable in the first step. ``watch`` sees the point after each.
    """
    point = start.copy()
    value, gradient = objective(point)
    pairs = _Memory(start.shape[0], memory)
    small = 0
    for step in range(steps):
        direction = pairs.direction(gradient)
        slope = _dot(direction, gradient)
        largest = float(np.abs(direction).max())
        if largest == 0 or not slope < 0:
            return Minimum(point, value, step)
        length = first_step / largest if not pairs.used else min(1.0, 3.0 / largest)
        for _ in range(12):
            trial = point + length * direction
            trial_value, trial_gradient = objective(trial)
            if trial_value <= value + 1e-4 * length * slope:
                break
            # the minimum of the parabola through what is known, kept inside sensible limits
            curve = 2 * (trial_value - value - length * slope) / length**2
            length = float(np.clip(-slope / curve if curve > 0 else 0.5 * length, 0.1 * length, 0.5 * length))
        else:
            return Minimum(point, value, step)
        gain = value - trial_value
        pairs.add(trial - point, trial_gradient - gradient)
        point, value, gradient = trial, trial_value, trial_gradient
        if watch is not None:
            watch(point)
        small = small + 1 if gain <= tolerance * max(1.0, abs(value)) else 0
        if small == 2:
            return Minimum(point, value, step + 1)
    return Minimum(point, value, steps)
