"""The fit of rows that fit in memory."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from remix.laplace.covariance import LaplaceCovariance
from remix.laplace.fitting.assemble import sample_error
from remix.laplace.fitting.frobenius import FrobeniusRecipe, descend, frobenius_error
from remix.laplace.fitting.job import CLEAR_GAIN, FEWEST_ROWS, MANY_ROWS, FitJob, Validation
from remix.laplace.fitting.likelihood import ChainData
from remix.laplace.fitting.prepare import (
    Rows,
    Standardised,
    apply,
    centred,
    diagonal_log_likelihood,
    independent_nll,
    standardise,
)
from remix.laplace.fitting.scale import choose_scale
from remix.laplace.fitting.search import Found, search
from remix.laplace.normal import LaplaceNormal

__all__ = ["FitInMemory"]


@dataclass
class FitInMemory(FitJob):
    """Standardised copies of all rows are kept while the fit lasts."""

    source: Rows

    def likelihood(self) -> LaplaceNormal:
        """The default fit."""
        validation = None
        if FEWEST_ROWS <= self.source.rows <= MANY_ROWS:
            validation = self._validate()  # first: only one standardised copy of the data is alive at a time
        data, found = self._once(None, self.trace is not None)
        if self.source.rows > MANY_ROWS and (independent_nll(data) - found.nll) / self.source.dim <= CLEAR_GAIN:
            del data
            validation = self._validate()
            data = standardise(self.source, None, self.layout, self.basis)
        scale = validation.scale if validation else float(self.source.rows > MANY_ROWS)
        self.clock("report")
        self.show(found.history, scale, data.mean, data.variance)
        chain = found.chain.scaled(scale)
        normal = self.normal(chain, data.mean, data.variance)
        rows = ChainData(data, chain.order).row_nll(chain.loading, chain.phi)
        train = self.per_dim(float(rows.mean()), data.variance)
        error = sample_error(data, normal.covariance)
        normal.report = self.report("likelihood", found.start, scale, train, self._diagonal(), validation, error)
        return normal

    def frobenius(self, recipe: FrobeniusRecipe) -> LaplaceNormal:
        """The paper's fit."""
        self.clock("prepare")
        u, mean, *_ = centred(self.source, None, self.basis)
        v = u[:, : self.source.rows]
        self.clock("gradient descent")
        parts = descend(v, recipe, self.seeds, self.watcher(mean, recipe.steps))
        self.clock("report")
        error = frobenius_error(v, *parts)
        normal = self.assembled(mean, parts)
        centre, here = torch.zeros_like(parts[0]), LaplaceCovariance(*parts)
        rows = torch.cat([here.nll(some.T.contiguous(), centre) for some in torch.split(v, 64, 1)])
        train = -float(rows.double().mean()) / self.source.dim
        start = "gradient descent from a line"
        normal.report = self.report("frobenius", start, 1.0, train, self._diagonal(), error=error)
        return normal

    def _diagonal(self) -> float:
        return diagonal_log_likelihood(self.source, None, None, self.layout)

    def _once(self, index: Tensor | None, history: bool = False) -> tuple[Standardised, Found]:
        self.clock("prepare")
        data = standardise(self.source, index, self.layout, self.basis)
        frequencies = self.basis is not None
        return data, search(data, self.layout, frequencies, self.thorough, self.seed, self.clock, history)

    def _validate(self) -> Validation:
        shuffled = torch.randperm(self.source.rows, generator=torch.Generator().manual_seed(self.seed))
        count = max(2, self.source.rows // 5)
        held, train = shuffled[:count].sort().values, shuffled[count:].sort().values
        data, found = self._once(train)
        mean, variance = data.mean, data.variance
        del data
        self.clock("scale")
        choice = choose_scale(apply(self.source, held, mean, variance, self.basis), found.chain)
        diagonal = diagonal_log_likelihood(self.source, train, held, self.layout)
        return Validation(choice.scale, self.per_dim(float(choice.row_nll.mean()), variance), diagonal)
