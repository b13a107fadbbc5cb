"""One fit, from rows to a distribution with its report: of rows at hand, or of rows that are read in passes.

At hand, standardised copies of all rows are kept while the fit lasts. In passes, no more than a sample of the rows is
in memory: two passes for the moments, the order and a first chain from the sample, then a few steps of maximum
likelihood over all rows, one pass per evaluation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from remix.laplace.basis import Dct2
from remix.laplace.covariance import LaplaceCovariance
from remix.laplace.fitting.frobenius import (
    Batch,
    FrobeniusRecipe,
    Parameters,
    batches_at_hand,
    batches_in_passes,
    descend,
    frobenius_error,
)
from remix.laplace.fitting.likelihood import SMALLEST_PHI, Chain, ChainData, StreamedRows, choose_scale, maximise
from remix.laplace.fitting.report import Clock, FitReport, FitStep
from remix.laplace.fitting.rows import Layout, Rows
from remix.laplace.fitting.search import Found, search
from remix.laplace.fitting.standardise import (
    Standardised,
    Survey,
    apply,
    centred,
    diagonal_log_likelihood,
    diagonal_variance,
    independent_log_likelihood,
    independent_nll,
    multiply_rows,
    standardise,
    survey,
)
from remix.laplace.normal import LaplaceNormal

__all__ = ["CLEAR_GAIN", "LOG_2PI", "FitJob", "chain_of", "sample_error"]

LOG_2PI = math.log(2 * math.pi)
FEWEST_ROWS = 8  # below, nothing can be validated
MANY_ROWS, CLEAR_GAIN = 500, 0.05  # no validation needed beyond both
STEPS, THOROUGH_STEPS = 4, 20  # over all rows in passes, after those over the sample
FROM_A_LINE = "gradient descent from a line"
Trace = Callable[[FitStep], None]


class Validation(NamedTuple):
    """The chosen scale, and log-likelihoods per dimension of the rows that chose it."""

    scale: float
    log_likelihood: float
    diagonal: float


@dataclass
class FitJob:
    """One call of `fit`, or of `fit_covariance`."""

    source: Rows
    basis: Dct2 | None
    layout: Layout | None
    thorough: bool
    seeds: torch.Generator
    clock: Clock
    trace: Trace | None = None

    def __post_init__(self) -> None:
        self.seed = int(torch.randint(2**31, (), generator=self.seeds))

    def likelihood(self) -> LaplaceNormal:
        """The default fit."""
        return self._likelihood_in_passes() if self.source.streamed else self._likelihood_at_hand()

    def frobenius(self, recipe: FrobeniusRecipe) -> LaplaceNormal:
        """The paper's fit; in passes, on batches as they are read."""
        return self._frobenius_in_passes(recipe) if self.source.streamed else self._frobenius_at_hand(recipe)

    # --- rows at hand ---

    def _likelihood_at_hand(self) -> LaplaceNormal:
        validation = None
        if FEWEST_ROWS <= self.source.rows <= MANY_ROWS:
            validation = self._validate()  # first: only one standardised copy of the data is alive at a time
        data, found = self._standardise_and_search(None, self.trace is not None)
        if self.source.rows > MANY_ROWS and (independent_nll(data) - found.nll) / self.source.dim <= CLEAR_GAIN:
            del data
            validation = self._validate()
            data = standardise(self.source, None, self.layout, self.basis)
        scale = validation.scale if validation else float(self.source.rows > MANY_ROWS)
        self.clock("report")
        self._show(found.history, scale, data.mean, data.variance)
        chain = found.chain.scaled(scale)
        normal = self.normal(chain, data.mean, data.variance)
        rows = ChainData(data, chain.order).row_nll(chain.loading, chain.phi)
        train = self._per_dim(float(rows.mean()), data.variance)
        error, diagonal = sample_error(data, normal.covariance), self._diagonal_at_hand()
        normal.report = self.report("likelihood", found.start, scale, train, diagonal, validation, error)
        return normal

    def _standardise_and_search(self, index: Tensor | None, history: bool = False) -> tuple[Standardised, Found]:
        self.clock("prepare")
        data = standardise(self.source, index, self.layout, self.basis)
        return data, self._search(data, history)

    def _search(self, data: Standardised, history: bool) -> Found:
        return search(data, self.layout, self.basis is not None, self.thorough, self.seed, self.clock, history)

    def _validate(self) -> Validation:
        shuffled = torch.randperm(self.source.rows, generator=torch.Generator().manual_seed(self.seed))
        count = max(2, self.source.rows // 5)
        held, train = shuffled[:count].sort().values, shuffled[count:].sort().values
        data, found = self._standardise_and_search(train)
        mean, variance = data.mean, data.variance
        del data
        self.clock("scale")
        scale, nll = choose_scale(apply(self.source, held, mean, variance, self.basis), found.chain)
        diagonal = diagonal_log_likelihood(self.source, train, held, self.layout)
        return Validation(scale, self._per_dim(nll, variance), diagonal)

    def _diagonal_at_hand(self) -> float:
        return diagonal_log_likelihood(self.source, None, None, self.layout)

    def _frobenius_at_hand(self, recipe: FrobeniusRecipe) -> LaplaceNormal:
        self.clock("prepare")
        u, mean, *_ = centred(self.source, None, self.basis)
        v = u[:, : self.source.rows]
        parts, normal = self._descend(batches_at_hand(v, recipe.batch_size, self.seeds), mean, recipe)
        error = frobenius_error(v, *parts)
        centre, here = torch.zeros_like(parts[0]), LaplaceCovariance(*parts)
        rows = torch.cat([here.nll(some.T.contiguous(), centre) for some in torch.split(v, 64, 1)])
        train = -float(rows.double().mean()) / self.source.dim
        normal.report = self.report("frobenius", FROM_A_LINE, 1.0, train, self._diagonal_at_hand(), error=error)
        return normal

    def _descend(
        self, batches: Iterator[Batch], mean: Tensor, recipe: FrobeniusRecipe
    ) -> tuple[Parameters, LaplaceNormal]:
        """The parameters that the recipe finds, and the distribution; ``mean`` (D,) in the basis."""
        self.clock("gradient descent")
        watch = None if self.trace is None else partial(self._show_step, self.trace, mean, recipe.steps)
        parts = descend(batches, self.source.dim, self.source.dtype, recipe, watch)
        self.clock("report")
        return parts, self._assembled(mean, parts)

    # --- rows in passes ---

    def _likelihood_in_passes(self) -> LaplaceNormal:
        self.clock("moments")
        source, found = self.source, survey(self.source, self.basis, self.layout)
        shuffled = torch.randperm(source.rows, generator=torch.Generator().manual_seed(self.seed))
        count = min(source.sample, source.rows - max(2, source.rows // 5))
        sampled, held = shuffled[:count].sort().values, shuffled[count : count + max(2, count // 4)].sort().values
        diagonal = self._diagonal_in_passes(found)
        if source.rows < FEWEST_ROWS:
            raise ValueError(f"a fit in passes needs at least {FEWEST_ROWS} rows, got {source.rows}")
        self.clock("prepare")
        rows = Rows(source.take(sampled), 1)
        data = apply(rows, None, found.mean, found.variance, self.basis, found.largest)
        del rows
        first = self._search(data, self.trace is not None)
        del data
        start = f"{first.start} through {count} of {source.rows} rows"
        chain, history = first.chain.clone(), first.history
        self.clock("likelihood of all rows")
        all_rows = StreamedRows(source, found, self.basis, chain.order)
        watch = history.append if self.trace is not None else None
        value = maximise(all_rows, chain, THOROUGH_STEPS if self.thorough else STEPS, watch)
        train, validation, scale = self._per_dim(value, found.variance), None, 1.0
        if source.rows <= MANY_ROWS or train - diagonal <= CLEAR_GAIN:
            self.clock("scale")
            validation = self._validate_on(source.take(held), first.chain, found)
            scale = validation.scale
            train = self._per_dim(all_rows.mean_nll(chain.scaled(scale)), found.variance)
        self.clock("report")
        self._show(history, scale, found.mean, found.variance)
        normal = self.normal(chain.scaled(scale), found.mean, found.variance)
        normal.report = self.report("likelihood", start, scale, train, diagonal, validation)
        return normal

    def _validate_on(self, held: Tensor, chain: Chain, found: Survey) -> Validation:
        """On rows (n, D) outside of the sample, for the chain that has only seen the sample."""
        scale, nll = choose_scale(apply(Rows(held), None, found.mean, found.variance, self.basis), chain)
        squares = (held - found.plain.to(held.dtype)).square().mean(0).double()
        diagonal = independent_log_likelihood(squares, self._diagonal_variance(found))
        return Validation(scale, self._per_dim(nll, found.variance), diagonal)

    def _diagonal_variance(self, found: Survey) -> Tensor:
        source = self.source
        return diagonal_variance(found.plain_variance, found.plain, source.rows, source.dtype, self.layout)

    def _diagonal_in_passes(self, found: Survey) -> float:
        return independent_log_likelihood(found.plain_variance, self._diagonal_variance(found))

    def _frobenius_in_passes(self, recipe: FrobeniusRecipe) -> LaplaceNormal:
        self.clock("moments")
        source, basis, found = self.source, self.basis, survey(self.source, self.basis, self.layout)
        batches = batches_in_passes(source, basis, found.mean, recipe.batch_size, self.seeds)
        parts, normal = self._descend(batches, found.mean, recipe)
        here, centre = LaplaceCovariance(*parts), found.mean.to(source.dtype)
        blocks = source.blocks() if basis is None else map(basis.forward, source.blocks())
        rows = torch.cat([here.nll(block, centre).double() for block in blocks])
        train = -float(rows.mean()) / source.dim
        normal.report = self.report("frobenius", FROM_A_LINE, 1.0, train, self._diagonal_in_passes(found))
        return normal

    # --- results ---

    def normal(self, chain: Chain, mean: Tensor, variance: Tensor) -> LaplaceNormal:
        """The distribution of a chain, like the data; ``mean`` and ``variance`` (D,) in the basis."""
        diag, weight, coord = (part.to(self.source.dtype) for part in _covariance_of(chain, variance))
        return self._assembled(mean, (diag, weight, coord))

    def _assembled(self, mean: Tensor, parts: Parameters) -> LaplaceNormal:
        """The distribution of (diag, weight, coord), copied; ``mean`` (D,) in the basis."""
        loc = (mean if self.basis is None else self.basis.inverse(mean)).to(self.source.device, self.source.dtype)
        diag, weight, coord = (part.to(self.source.device, copy=True) for part in parts)
        return LaplaceNormal(loc, LaplaceCovariance(diag, weight, coord), self.basis)

    def _show(self, history: list[Chain], scale: float, mean: Tensor, variance: Tensor) -> None:
        """Call the trace for every chain of a search."""
        if self.trace is None:
            return
        for step, chain in enumerate(history):
            present = chain.scaled(scale)
            self.trace(FitStep(step, len(history) - 1, lambda chain=present: self.normal(chain, mean, variance)))  # type: ignore[misc]

    def _show_step(self, trace: Trace, mean: Tensor, steps: int, step: int, parts: Parameters) -> None:
        """Call the trace from a gradient descent."""
        trace(FitStep(step, steps, lambda: self._assembled(mean, parts)))

    def _per_dim(self, nll: float, variance: Tensor) -> float:
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


def _covariance_of(chain: Chain, variance: Tensor) -> Parameters:
    """(diag, weight, coord) of a chain with marginal variances (D,), float64.

    Coordinates are centred on 0: in float32 the gaps then keep the most digits.
    """
    gaps = -chain.phi.clamp_min(SMALLEST_PHI).log()
    gaps[0] = 0.0
    place = gaps.cumsum(0)
    coord, loading = torch.empty_like(place), torch.empty_like(place)
    coord[chain.order] = place - place[-1] / 2
    loading[chain.order] = chain.loading
    return variance * (1 - loading) * (1 + loading), variance.sqrt() * loading, coord


def chain_of(covariance: LaplaceCovariance) -> Chain:
    """The chain of a covariance's correlations; the inverse of `_covariance_of` but for the variances."""
    diag, weight, coord = (v.detach().cpu().double() for v in (covariance.diag, covariance.weight, covariance.coord))
    order = coord.argsort(stable=True)
    phi = torch.zeros_like(coord)
    phi[1:] = (-coord[order].diff()).exp()
    return Chain(order, (weight / (diag + weight.square()).sqrt())[order], phi)


def sample_error(data: Standardised, covariance: LaplaceCovariance) -> float:
    """Normalised Frobenius error of the fit. Turns ``data.u`` back into centred features: it is used up."""
    multiply_rows(data.u, data.variance.sqrt())
    diag, weight, coord = (
        v.detach().to("cpu", data.u.dtype) for v in (covariance.diag, covariance.weight, covariance.coord)
    )
    return frobenius_error(data.u[:, : data.rows], diag, weight, coord)
