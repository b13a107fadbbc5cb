"""The fit of rows that do not fit in memory.

Two passes for the moments, the order and a first chain from a sample of rows that fits, then a few steps of maximum
likelihood over all rows, one pass per evaluation.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from remix.laplace.fitting.frobenius import FrobeniusRecipe, descend_batches
from remix.laplace.fitting.job import CLEAR_GAIN, FEWEST_ROWS, MANY_ROWS, FitJob, Validation
from remix.laplace.fitting.likelihood import Chain, maximise
from remix.laplace.fitting.passes import Passes
from remix.laplace.fitting.prepare import Rows, apply, diagonal_variance, independent_log_likelihood
from remix.laplace.fitting.scale import choose_scale
from remix.laplace.fitting.search import Found, search
from remix.laplace.fitting.streaming import (
    StreamedRows,
    Survey,
    centred_batches,
    row_likelihoods,
    standardised,
    survey,
)
from remix.laplace.normal import LaplaceNormal

__all__ = ["FitInPasses"]

STEPS, THOROUGH_STEPS = 4, 20  # over all rows, after those over the sample


@dataclass
class FitInPasses(FitJob):
    """No more than a sample of the rows is in memory at a time."""

    source: Passes

    def likelihood(self) -> LaplaceNormal:
        """The default fit."""
        self.clock("moments")
        found = survey(self.source, self.basis, self.layout)
        shuffled = torch.randperm(self.source.rows, generator=torch.Generator().manual_seed(self.seed))
        count = min(self.source.sample, self.source.rows - max(2, self.source.rows // 5))
        sampled, held = shuffled[:count].sort().values, shuffled[count : count + max(2, count // 4)].sort().values
        diagonal = self._diagonal(found)
        if self.source.rows < FEWEST_ROWS:
            raise ValueError(f"a fit in passes needs at least {FEWEST_ROWS} rows, got {self.source.rows}")
        first = self._search(sampled, found)
        start = f"{first.start} through {count} of {self.source.rows} rows"
        chain, history = first.chain.clone(), first.history
        self.clock("likelihood of all rows")
        rows = StreamedRows(self.source, found, self.basis, chain.order)
        watch = history.append if self.trace is not None else None
        value = maximise(rows, chain, THOROUGH_STEPS if self.thorough else STEPS, watch=watch)
        train, validation, scale = self.per_dim(value, found.variance), None, 1.0
        if self.source.rows <= MANY_ROWS or train - diagonal <= CLEAR_GAIN:
            self.clock("scale")
            validation = self._validate(first.chain, found, held)
            scale = validation.scale
            train = self.per_dim(rows.mean_nll(chain.scaled(scale)), found.variance)
        self.clock("report")
        self.show(history, scale, found.mean, found.variance)
        normal = self.normal(chain.scaled(scale), found.mean, found.variance)
        normal.report = self.report("likelihood", start, scale, train, diagonal, validation)
        return normal

    def frobenius(self, recipe: FrobeniusRecipe) -> LaplaceNormal:
        """The paper's fit, on batches as they are read."""
        self.clock("moments")
        found = survey(self.source, None, self.layout)
        self.clock("gradient descent")
        batches = centred_batches(self.source, found, recipe.batch_size, self.seeds)
        watch = self.watcher(found.mean, recipe.steps)
        parts = descend_batches(batches, self.source.dim, self.source.dtype, recipe, watch)
        self.clock("report")
        normal = self.assembled(found.mean, parts)
        train = -float(row_likelihoods(self.source, found, parts).mean()) / self.source.dim
        start = "gradient descent from a line"
        normal.report = self.report("frobenius", start, 1.0, train, self._diagonal(found))
        return normal

    def _search(self, index: Tensor, found: Survey) -> Found:
        self.clock("prepare")
        data = standardised(self.source.take(index), found, self.basis)
        frequencies, history = self.basis is not None, self.trace is not None
        return search(data, self.layout, frequencies, self.thorough, self.seed, self.clock, history)

    def _validate(self, chain: Chain, found: Survey, held: Tensor) -> Validation:
        """On rows outside of the sample, for the chain that has only seen the sample."""
        raw = Rows(self.source.take(held))
        choice = choose_scale(apply(raw, None, found.mean, found.variance, self.basis), chain)
        squares = (raw.columns(0, raw.dim, None) - found.plain.to(raw.dtype)).square().mean(0).double()
        diagonal = independent_log_likelihood(squares, self._diagonal_variance(found))
        return Validation(choice.scale, self.per_dim(float(choice.row_nll.mean()), found.variance), diagonal)

    def _diagonal_variance(self, found: Survey) -> Tensor:
        source = self.source
        return diagonal_variance(found.plain_variance, found.plain, source.rows, source.dtype, self.layout)

    def _diagonal(self, found: Survey) -> float:
        return independent_log_likelihood(found.plain_variance, self._diagonal_variance(found))
