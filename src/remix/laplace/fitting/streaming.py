"""Fitting rows that do not fit in memory: moments in two passes, the order from a sample, likelihood over all rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from remix.laplace.basis import Dct2
from remix.laplace.fitting.frobenius import Parameters
from remix.laplace.fitting.likelihood import Chain, ChainData
from remix.laplace.fitting.passes import Passes
from remix.laplace.fitting.prepare import Layout, Rows, Standardised, apply, check_finite, settle

__all__ = ["StreamedRows", "Survey", "centred_batches", "survey"]


@dataclass
class Survey:
    """What two passes over the rows tell, all (D,) float64, in the basis of the fit unless said otherwise.

    ``variance`` is shrunk as `standardise` does it. ``plain``, ``plain_variance``: mean and raw variance in the
    original basis. The rest is as in `Standardised`.
    """

    mean: Tensor
    variance: Tensor
    constant: Tensor
    largest: Tensor
    plain: Tensor
    plain_variance: Tensor


class _Running:
    """Mean and sum of squares of rows, block by block."""

    def __init__(self, dim: int) -> None:
        self.rows = 0
        self.mean, self.scatter = (torch.zeros(dim, dtype=torch.float64) for _ in range(2))

    def add(self, block: Tensor) -> None:
        count, total = len(block), self.rows + len(block)
        centre = block.mean(0)
        shift = centre.double() - self.mean
        self.scatter += (block - centre).square_().sum(0).double() + shift.square() * (self.rows * count / total)
        self.mean += shift * (count / total)
        self.rows = total


def survey(source: Passes, basis: Dct2 | None, layout: Layout | None) -> Survey:
    """Moments of all rows, in two passes; also counts them (``source.rows``).

    Raises:
        ValueError: NaN or infinite entries, fewer than two rows, or all rows equal.
    """
    plain, changed = _Running(source.dim), _Running(source.dim)
    for block in source.blocks():
        plain.add(block)
        if basis is not None:
            changed.add(basis.forward(block))
    source.rows = plain.rows
    if source.rows < 2:
        raise ValueError(f"x must have at least 2 rows and 1 feature, got {source.rows} rows")
    check_finite(plain.scatter)
    mean = plain.mean if basis is None else changed.mean
    second, fourth = torch.zeros_like(mean), torch.zeros_like(mean)
    centre = mean.to(source.dtype)
    for block in source.blocks():
        square = ((block if basis is None else basis.forward(block)) - centre).square_()
        second += square.sum(0).double()
        fourth += square.square_().sum(0).double()
    rows = source.rows
    raw = second / rows
    variance, constant, largest = settle(raw, fourth / rows, mean, rows, source.dtype, layout, basis is not None)
    plain_variance = raw if basis is None else plain.scatter / rows
    return Survey(mean, variance, constant, largest, plain.mean, plain_variance)


def standardised(rows: Tensor, found: Survey, basis: Dct2 | None) -> Standardised:
    """Rows (n, D) by the moments of all."""
    data = apply(Rows(rows, fewest=1), None, found.mean, found.variance, basis)
    data.constant, data.largest = found.constant, found.largest
    return data


class StreamedRows:
    """All rows, standardised and laid out block by block, for likelihood sweeps (`Sweeps`)."""

    def __init__(self, source: Passes, found: Survey, basis: Dct2 | None, order: Tensor) -> None:
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
        for block in self._source.blocks():
            yield ChainData(standardised(block, self._found, self._basis), self._order)


def centred_batches(
    source: Passes, found: Survey, size: int | None, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless feature-major batches (D, n) of centred rows with their sums of squares (D,), for gradient descent.

    Rows are drawn without replacement within an epoch where single ones can be read, else taken in their order.
    """
    centre = found.plain.to(source.dtype)
    count = min(size or source.step, source.step)
    while True:
        if source.shuffles:
            order = torch.randperm(source.rows, generator=generator)
            batches: Iterator[Tensor] = (source.take(index) for index in order.split(count))
        else:
            batches = (part for block in source.blocks() for part in block.split(count))
        for rows in batches:
            part = (rows - centre).T.contiguous()
            yield part, part.square().sum(1)


def row_likelihoods(source: Passes, found: Survey, parts: Parameters) -> Tensor:
    """Negative log-likelihood of every row under N(mean, (diag, weight, coord)), (N,) float64."""
    from remix.laplace.covariance import LaplaceCovariance

    here, centre = LaplaceCovariance(*parts), found.plain.to(source.dtype)
    return torch.cat([here.nll(block, centre).double() for block in source.blocks()])
