"""What the fit in memory and the fit in passes have in common: the request, the trace of steps, the report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from remix.laplace.basis import Dct2
from remix.laplace.covariance import LaplaceCovariance
from remix.laplace.fitting.assemble import LOG_2PI, Clock, distribution
from remix.laplace.fitting.frobenius import Parameters
from remix.laplace.fitting.likelihood import Chain
from remix.laplace.fitting.passes import Passes
from remix.laplace.fitting.prepare import Layout, Rows
from remix.laplace.fitting.report import FitReport, FitStep
from remix.laplace.normal import LaplaceNormal

__all__ = ["CLEAR_GAIN", "FEWEST_ROWS", "MANY_ROWS", "FitJob", "Validation"]

FEWEST_ROWS = 8  # below, nothing can be validated
MANY_ROWS, CLEAR_GAIN = 500, 0.05  # no validation needed beyond both


@dataclass
class Validation:
    """The chosen scale, and log-likelihoods per dimension of the rows that chose it."""

    scale: float
    log_likelihood: float
    diagonal: float


@dataclass
class FitJob:
    """One call of `fit`; the two ways to read rows are its subclasses."""

    source: Rows | Passes
    basis: Dct2 | None
    layout: Layout | None
    thorough: bool
    seeds: torch.Generator
    clock: Clock
    trace: Callable[[FitStep], None] | None = None

    def __post_init__(self) -> None:
        self.seed = int(torch.randint(2**31, (), generator=self.seeds))

    def normal(self, chain: Chain, mean: Tensor, variance: Tensor) -> LaplaceNormal:
        """The distribution of a chain; ``mean`` and ``variance`` (D,) in the basis."""
        loc = mean if self.basis is None else self.basis.inverse(mean)
        return distribution(chain, variance, loc, self.basis, self.source)

    def show(self, history: list[Chain], scale: float, mean: Tensor, variance: Tensor) -> None:
        """Call the trace for every chain of a search."""
        if self.trace is None:
            return
        for step, chain in enumerate(history):
            present = chain.scaled(scale)
            self.trace(FitStep(step, len(history) - 1, lambda chain=present: self.normal(chain, mean, variance)))  # type: ignore[misc]

    def watcher(self, mean: Tensor, steps: int) -> Callable[[int, Parameters], None] | None:
        """Calls the trace from a gradient descent; ``mean`` (D,) in the basis."""
        trace = self.trace
        if trace is None:
            return None
        return lambda step, parts: trace(FitStep(step, steps, lambda: self.assembled(mean, parts)))

    def assembled(self, mean: Tensor, parts: Parameters) -> LaplaceNormal:
        """The distribution of (diag, weight, coord), copied; ``mean`` (D,) in the basis."""
        loc = (mean if self.basis is None else self.basis.inverse(mean)).to(self.source.device, self.source.dtype)
        diag, weight, coord = (part.to(self.source.device, copy=True) for part in parts)
        return LaplaceNormal(loc, LaplaceCovariance(diag, weight, coord), self.basis)

    def per_dim(self, nll: float, variance: Tensor) -> float:
        """Log-likelihood per dimension from a standardised mean negative log-likelihood without its 2 pi part."""
        return -(nll + 0.5 * float(variance.log().sum())) / self.source.dim - 0.5 * LOG_2PI

    def report(
        self,
        objective: str,
        start: str,
        scale: float,
        train: float,
        diagonal: float,
        validation: Validation | None = None,
        error: float | None = None,
    ) -> FitReport:
        """The report of a fit that ends now."""
        return FitReport(
            objective=objective,
            samples=self.source.rows,
            dim=self.source.dim,
            basis="original" if self.basis is None else "2-D DCT",
            start=start,
            scale=scale,
            train_log_likelihood=train,
            diagonal_train_log_likelihood=diagonal,
            validation_log_likelihood=validation.log_likelihood if validation else None,
            diagonal_validation_log_likelihood=validation.diagonal if validation else None,
            frobenius_error=error,
            parameters=4 * self.source.dim,
            seconds=self.clock.done(),
        )
