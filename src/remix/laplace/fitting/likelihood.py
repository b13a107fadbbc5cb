"""Likelihood of a chain of standardised units, with gradients, its maximisation, and the scale of its correlations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit, logit
from torch import Tensor

from remix.laplace import kernels
from remix.laplace.basis import Dct2
from remix.laplace.fitting.rows import Rows
from remix.laplace.fitting.standardise import Standardised, Survey, apply

__all__ = [
    "SMALLEST_PHI", "Chain", "ChainData", "StreamedRows", "choose_scale", "factorise", "maximise", "minimise",
]  # fmt: skip

SMALLEST_PHI = 1e-3
PHI_RANGE = 1 - SMALLEST_PHI
FIRST_STEP = 0.1  # largest change of any variable in the first step of the search
PAIRS = 6  # steps that it remembers
SCALES = (0.0, 0.2, 0.4, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.99, 1.0)

Vector = NDArray[np.float64]


@dataclass
class Chain:
    """A Laplace correlation in its sequential form, in chain order.

    ``order`` (D,) int64: unit at each position. ``loading`` (D,) r = w / sigma in (-1, 1) and ``phi`` (D,) = exp(-gap
    to the previous position), phi[0] = 0; both float64.
    """

    order: Tensor
    loading: Tensor
    phi: Tensor

    def clone(self) -> Chain:
        """An independent copy."""
        return Chain(self.order.clone(), self.loading.clone(), self.phi.clone())

    def scaled(self, scale: float) -> Chain:
        """Every correlation multiplied by ``scale`` squared."""
        return Chain(self.order, scale * self.loading, self.phi)


class ChainData:
    """Standardised rows laid out in the order of a chain, ready for likelihood sweeps.

    Native: tiles (N / lanes, D, lanes), one cache line per position. Without the native library: (D, N) rows in order.
    """

    def __init__(self, data: Standardised, order: Tensor, native_threads: int | None = None) -> None:
        self.rows, self.size = data.rows, order.shape[0]
        self.largest = data.largest[order]
        self._threads = native_threads or kernels.threads(self.rows * self.size)
        self._library, self._dtype = kernels.native(), data.u.dtype
        if self._library is None:
            self._sorted = data.u[order, : self.rows].double()
            return
        stride = data.u.shape[1]
        self._tiles = torch.empty(self.size * stride, dtype=self._dtype)
        arguments = (data.u, stride, self.size, order.contiguous(), self._tiles, self._threads)
        self._library.call("remix_fit_tiles_", *arguments, dtype=self._dtype)
        size = self._library.call("remix_fit_workspace_", self.size, self.rows, dtype=self._dtype)
        self._workspace = torch.empty(size, dtype=torch.uint8)

    def nll(self, loading: Tensor, phi: Tensor) -> tuple[float, Tensor, Tensor]:
        """Mean over rows of the negative log-likelihood without 2 pi, and its gradients in loading and phi, (D,)."""
        loading_bar, phi_bar = torch.empty_like(loading), torch.empty_like(phi)
        if self._library is None:
            value = _nll(self._sorted, loading, phi, loading_bar, phi_bar)
        else:
            arguments = (loading, phi, loading_bar, phi_bar, self._workspace, self._threads)
            data = (self._tiles, self.rows, self.size)
            value = self._library.call("remix_fit_nll_", *data, *arguments, dtype=self._dtype)
        return value / self.rows, loading_bar.div_(self.rows), phi_bar.div_(self.rows)

    def row_nll(self, loading: Tensor, phi: Tensor) -> Tensor:
        """Negative log-likelihood of every row without 2 pi, (N,) float64."""
        if self._library is None:
            return _row_nll(self._sorted, loading, phi)
        forms = torch.empty(self.rows, dtype=torch.float64)
        arguments = (self._tiles, self.rows, self.size, loading, phi, forms, self._workspace, self._threads)
        logdet = self._library.call("remix_fit_rows_", *arguments, dtype=self._dtype)
        return (forms + float(logdet)) / 2


class StreamedRows:
    """All rows, standardised and laid out block by block, for likelihood sweeps; as `ChainData`."""

    def __init__(self, source: Rows, found: Survey, basis: Dct2 | None, order: Tensor) -> None:
        self.size, self.largest = source.dim, found.largest[order]
        self._source, self._found, self._basis, self._order = source, found, basis, order

    def nll(self, loading: Tensor, phi: Tensor) -> tuple[float, Tensor, Tensor]:
        """Mean over rows of the negative log-likelihood without 2 pi, and its gradients in loading and phi, (D,)."""
        value, bars = 0.0, [torch.zeros_like(loading), torch.zeros_like(phi)]
        for block in self._blocks():
            share = block.rows / self._source.rows
            part, *gradients = block.nll(loading, phi)
            value += share * part
            for bar, gradient in zip(bars, gradients, strict=True):
                bar += gradient.mul_(share)
        return value, bars[0], bars[1]

    def mean_nll(self, chain: Chain) -> float:
        """The value alone."""
        rows = [block.row_nll(chain.loading, chain.phi).sum() for block in self._blocks()]
        return float(torch.stack(rows).sum()) / self._source.rows

    def _blocks(self) -> Iterator[ChainData]:
        mean, variance, largest = self._found.mean, self._found.variance, self._found.largest
        for block in self._source.blocks():
            yield ChainData(apply(Rows(block, 1), None, mean, variance, self._basis, largest), self._order)


def maximise(
    data: ChainData | StreamedRows, chain: Chain, steps: int, watch: Callable[[Chain], None] | None = None
) -> float:
    """Maximum likelihood in (loading, phi) from the values of ``chain``, changed in place; order fixed.

    The search runs in atanh(loading) and logit(phi), where there are no bounds. ``watch`` is given a copy of the chain
    after every step. Returns the mean negative log-likelihood reached.
    """
    size = data.size
    largest = data.largest.numpy()

    def natural(point: Vector) -> tuple[Vector, Vector]:
        return largest * np.tanh(point[:size]), SMALLEST_PHI + PHI_RANGE * expit(point[size:])

    def objective(point: Vector) -> tuple[float, Vector]:
        loading, phi = natural(point)
        value, loading_bar, phi_bar = data.nll(torch.from_numpy(loading), torch.from_numpy(phi))
        share = (phi - SMALLEST_PHI) / PHI_RANGE
        gradient = np.empty_like(point)
        gradient[:size] = loading_bar.numpy() * (largest - loading**2 / np.maximum(largest, 1e-12))
        gradient[size:] = phi_bar.numpy() * PHI_RANGE * share * (1 - share)
        return value, gradient

    def chain_at(point: Vector) -> Chain:
        loading, phi = natural(point)
        phi[0] = 0.0
        return Chain(chain.order.clone(), torch.from_numpy(loading), torch.from_numpy(phi))

    ratio = (chain.loading.numpy() / np.maximum(largest, 1e-12)).clip(-0.999, 0.999)
    share = ((chain.phi.numpy() - SMALLEST_PHI) / PHI_RANGE).clip(1e-3, 1 - 1e-4)
    start = np.concatenate([np.arctanh(ratio), logit(share)])
    seen = None if watch is None else lambda point: watch(chain_at(point))
    point, value = minimise(objective, start, steps, watch=seen)
    best = chain_at(point)
    chain.loading, chain.phi = best.loading, best.phi
    return value


def _dot(a: Vector, b: Vector) -> float:
    # Not BLAS: its sums depend on the number of threads, and waking them costs more than the product.
    return float(np.einsum("i,i->", a, b))


class _Memory:
    """The last few (step, change of gradient) pairs and the inverse Hessian they imply."""

    def __init__(self, size: int) -> None:
        self.steps, self.changes = np.empty((PAIRS, size)), np.empty((PAIRS, size))
        self.curvature = np.empty(PAIRS)
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
    watch: Callable[[Vector], None] | None = None,
) -> tuple[Vector, float]:
    """Minimise a smooth ``objective`` (point -> value, gradient) from ``start``: the point and its value.

    A limited-memory quasi-Newton method. scipy's L-BFGS-B spends ten times the cost of a likelihood sweep on its own
    bookkeeping when there are 400,000 variables; without bounds the method is a dozen lines.

    Stops after ``steps`` steps, or when two successive steps gain less than ``tolerance`` relative to |value| (at least
    1). ``watch`` sees the point after each.
    """
    point = start.copy()
    value, gradient = objective(point)
    pairs = _Memory(start.shape[0])
    small = 0
    for _ in range(steps):
        direction = pairs.direction(gradient)
        slope = _dot(direction, gradient)
        largest = float(np.abs(direction).max())
        if largest == 0 or not slope < 0:
            return point, value
        length = FIRST_STEP / largest if not pairs.used else min(1.0, 3.0 / largest)
        for _ in range(12):
            trial = point + length * direction
            trial_value, trial_gradient = objective(trial)
            if trial_value <= value + 1e-4 * length * slope:
                break
            # the minimum of the parabola through what is known, kept inside sensible limits
            curve = 2 * (trial_value - value - length * slope) / length**2
            length = float(np.clip(-slope / curve if curve > 0 else 0.5 * length, 0.1 * length, 0.5 * length))
        else:
            return point, value
        gain = value - trial_value
        pairs.add(trial - point, trial_gradient - gradient)
        point, value, gradient = trial, trial_value, trial_gradient
        if watch is not None:
            watch(point)
        small = small + 1 if gain <= tolerance * max(1.0, abs(value)) else 0
        if small == 2:
            return point, value
    return point, value


def choose_scale(held: Standardised, chain: Chain) -> tuple[float, float]:
    """The scale c of the loadings with the best likelihood of ``held``; 0 unless its gain exceeds its standard error.

    Also the mean negative log-likelihood of ``held`` at it, without 2 pi.

    Multiplying every loading by c shrinks every correlation by c^2 and leaves the variances as they are; c = 0 is the
    diagonal, so on these rows the choice is never below it.
    """
    data = ChainData(held, chain.order)
    rows = {scale: data.row_nll(scale * chain.loading, chain.phi) for scale in SCALES}
    gains = {scale: float((rows[0.0] - nll).mean()) for scale, nll in rows.items()}
    best = max(SCALES, key=lambda scale: gains[scale])
    error = float((rows[0.0] - rows[best]).std()) / math.sqrt(held.rows) if held.rows > 1 else math.inf
    if gains[best] <= error:
        best = 0.0
    return best, float(rows[best].mean())


def factorise(loading: Tensor, phi: Tensor) -> dict[str, list[float]]:
    """The factorisation of docs/mathematics.md with d = 1 - r^2, sequentially."""
    r, decay = loading.tolist(), phi.tolist()
    size = len(r)
    P, C, S, G, gam, N, f = ([0.0] * size for _ in range(7))
    prior, known = 1.0, 0.0
    for k in range(size):
        d = (1 - r[k]) * (1 + r[k])
        P[k], C[k], S[k] = prior, known, d + r[k] ** 2 * prior
        G[k], gam[k] = r[k] * prior / S[k], d / S[k]
        if k + 1 < size:
            square = decay[k + 1] ** 2
            known = square * (d * known + r[k] ** 2 * prior) / S[k]
            prior = square * gam[k] * prior + 1 - square
    for k in reversed(range(size)):
        f[k] = decay[k + 1] ** 2 * N[k + 1] if k + 1 < size else 0.0
        N[k] = gam[k] ** 2 * f[k] + r[k] ** 2 / S[k]
    return {"r": r, "phi": decay, "P": P, "C": C, "S": S, "G": G, "gam": gam, "N": N, "f": f}


def _nll(x: Tensor, loading: Tensor, phi: Tensor, loading_bar: Tensor, phi_bar: Tensor) -> float:
    """Twin of the native likelihood: one position at a time, x (D, N) float64 in chain order."""
    c = factorise(loading, phi)
    size, rows = x.shape
    h, total = torch.zeros(rows, dtype=torch.float64), 0.0
    states, scaled = [], []
    for k in range(size):
        v = x[k] - c["r"][k] * h
        states.append(h)
        scaled.append(v / c["S"][k])
        total += rows * math.log(c["S"][k]) + float(v @ scaled[k])
        if k + 1 < size:
            h = c["phi"][k + 1] * (c["gam"][k] * h + c["G"][k] * x[k])
    s = torch.zeros(rows, dtype=torch.float64)
    for k in reversed(range(size)):
        G, P, gam, f = c["G"][k], c["P"][k], c["gam"][k], c["f"][k]
        g = scaled[k] - G * s
        rho = gam * s + c["r"][k] * scaled[k]
        diag_bar = 0.5 * (rows * (1 / c["S"][k] + G**2 * f) - float(g @ g))
        weight_bar = rows * G * (1 - P * gam * f) - float(g @ (states[k] + P * rho))
        loading_bar[k] = weight_bar - 2 * c["r"][k] * diag_bar
        pull = rows * c["C"][k] * c["N"][k] + float(rho @ (states[k] - c["C"][k] * rho))
        phi_bar[k] = -pull / c["phi"][k] if k else 0.0
        s = c["phi"][k] * rho
    return 0.5 * total


def _row_nll(x: Tensor, loading: Tensor, phi: Tensor) -> Tensor:
    c = factorise(loading, phi)
    size, rows = x.shape
    h, total = torch.zeros(rows, dtype=torch.float64), torch.zeros(rows, dtype=torch.float64)
    for k in range(size):
        v = x[k] - c["r"][k] * h
        total += math.log(c["S"][k]) + v.square() / c["S"][k]
        if k + 1 < size:
            h = c["phi"][k + 1] * (c["gam"][k] * h + c["G"][k] * x[k])
    return 0.5 * total
