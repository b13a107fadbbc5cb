"""Likelihood of a chain of standardised units, with gradients, and its maximisation in (loading, phi)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from scipy.special import expit, logit
from torch import Tensor

from remix.laplace.fitting.library import call, library, threads
from remix.laplace.fitting.optimise import Vector, minimise
from remix.laplace.fitting.prepare import Standardised

__all__ = ["SMALLEST_PHI", "Chain", "ChainData", "Sweeps", "factorise", "maximise"]

SMALLEST_PHI = 1e-3
PHI_RANGE = 1 - SMALLEST_PHI


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
        self.threads = native_threads or threads(self.rows * self.size)
        self.native = library() is not None
        if not self.native:
            self.sorted = data.u[order, : self.rows].double()
            return
        self.tiles = torch.empty(self.size * data.u.shape[1], dtype=data.u.dtype)
        call("remix_fit_tiles_", data.u.dtype, data.u, data.u.shape[1], self.size, order, self.tiles, self.threads)
        size = call("remix_fit_workspace_", data.u.dtype, self.size, self.rows)
        self.workspace = torch.empty(size, dtype=torch.uint8)

    def nll(self, loading: Tensor, phi: Tensor) -> tuple[float, Tensor, Tensor]:
        """Mean over rows of the negative log-likelihood without 2 pi, and its gradients in loading and phi, (D,)."""
        loading_bar, phi_bar = torch.empty_like(loading), torch.empty_like(phi)
        if self.native:
            value = call(
                "remix_fit_nll_", self.tiles.dtype, self.tiles, self.rows, self.size, loading, phi, loading_bar,
                phi_bar, self.workspace, self.threads,
            )  # fmt: skip
        else:
            value = _nll(self.sorted, loading, phi, loading_bar, phi_bar)
        return value / self.rows, loading_bar.div_(self.rows), phi_bar.div_(self.rows)

    def row_nll(self, loading: Tensor, phi: Tensor) -> Tensor:
        """Negative log-likelihood of every row without 2 pi, (N,) float64."""
        if not self.native:
            return _row_nll(self.sorted, loading, phi)
        forms = torch.empty(self.rows, dtype=torch.float64)
        logdet = call(
            "remix_fit_rows_", self.tiles.dtype, self.tiles, self.rows, self.size, loading, phi, forms, self.workspace,
            self.threads,
        )  # fmt: skip
        return (forms + float(logdet)) / 2


class Sweeps(Protocol):
    """Rows whose likelihood under a chain of fixed order can be asked for."""

    size: int
    largest: Tensor

    def nll(self, loading: Tensor, phi: Tensor) -> tuple[float, Tensor, Tensor]:
        """Mean over rows of the negative log-likelihood without 2 pi, and its gradients, (D,)."""


def maximise(
    data: Sweeps,
    chain: Chain,
    steps: int,
    tolerance: float = 1e-7,
    watch: Callable[[Chain], None] | None = None,
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
    found = minimise(objective, start, steps, tolerance, watch=seen)
    best = chain_at(found.point)
    chain.loading, chain.phi = best.loading, best.phi
    return found.value


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
