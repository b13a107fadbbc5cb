"""Standardised, feature-major data, and the moments they are standardised by: of rows at hand, or in two passes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from scipy.special import digamma, polygamma
from torch import Tensor

from remix.laplace.basis import Dct2
from remix.laplace.fitting.rows import Layout, Rows
from remix.laplace.kernels import single_thread

__all__ = [
    "Standardised", "Survey", "apply", "centred", "diagonal_log_likelihood", "diagonal_variance", "from_covariance",
    "independent_log_likelihood", "independent_nll", "multiply_rows", "pseudo_rows", "standardise", "survey",
]  # fmt: skip

LARGEST_LOADING = 0.9995
PRIOR_ROWS = 2.0  # weight of the variance prior, in rows
_BLOCK = 1024  # columns handled at a time, so that a block stays in the cache


@dataclass
class Standardised:
    """Feature-major standardised data.

    ``u`` (D, stride): sample n of unit i is u[i, n]; columns beyond ``rows`` are zero (stride is a multiple of a cache
    line). ``mean``, ``variance`` (D,) float64: what was subtracted, and the shrunk variance that was divided by.
    ``largest`` (D,) float64: the largest |loading| that the data can support (`_largest_loading`); 0 for units that do
    not vary, whose u is 0. ``samples``: the rows the data stand for (differs from ``rows`` for pseudo-rows).
    """

    u: Tensor
    rows: int
    mean: Tensor
    variance: Tensor
    largest: Tensor
    samples: int


def standardise(source: Rows, index: Tensor | None, layout: Layout | None, basis: Dct2 | None) -> Standardised:
    """Centre, change basis, shrink variances, divide. One copy of the data, made in blocks of columns.

    Raises:
        ValueError: NaN or infinite entries, or all rows equal.
    """
    u, mean, variance, fourth = centred(source, index, basis)
    rows = source.rows if index is None else int(index.shape[0])
    variance, constant, largest = _settle(variance, fourth, mean, rows, source.dtype, layout, basis is not None)
    multiply_rows(u, torch.where(constant, 0.0, variance.rsqrt()))
    return Standardised(u, rows, mean, variance, largest, rows)


def _settle(
    variance: Tensor, fourth: Tensor, mean: Tensor, rows: int, dtype: torch.dtype, layout: Layout | None,
    frequencies: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """From raw central moments (D,) of ``rows`` rows to shrunk variance, which are constant, and the largest loading.

    Raises:
        ValueError: NaN or infinite entries, or all rows equal.
    """
    _check_finite(variance)
    _check_finite(fourth)
    constant = _constant(variance, mean, dtype)
    if bool(constant.all()):
        raise ValueError(
            "x must have at least 2 distinct rows, also without a fifth that is held out: no feature varies, or so "
            "little that its square is 0"
        )
    largest = _largest_loading(variance, fourth, constant, rows)
    return shrunk_variance(variance, constant, rows, layout, frequencies), constant, largest


def _check_finite(variance: Tensor) -> None:
    """Raise ValueError naming the first feature whose variance, or fourth moment, (D,) is not finite."""
    if not torch.isfinite(variance).all():
        bad = int((~torch.isfinite(variance)).nonzero()[0])
        raise ValueError(
            f"x must be finite; feature {bad} contains NaN or infinite values, or numbers whose powers are"
        )


@single_thread()
def multiply_rows(u: Tensor, factor: Tensor) -> None:
    """u[i] *= factor[i] in place, without a temporary of the size of u."""
    for start in range(0, u.shape[0], _BLOCK):
        u[start : start + _BLOCK] *= factor[start : start + _BLOCK, None].to(u.dtype)


def _feature_major(source: Rows, index: Tensor | None, basis: Dct2 | None) -> Iterator[tuple[slice, Tensor]]:
    """Blocks of features, (features, rows), in the basis."""
    plane = 1 if basis is None else math.prod(basis.layout[1:])
    step = plane * max(1, _BLOCK // plane)  # whole channels
    for start in range(0, source.dim, step):
        stop = min(start + step, source.dim)
        block = source.columns(start, stop, index)
        if basis is not None:
            block = Dct2(((stop - start) // plane, *basis.layout[1:])).forward(block)
        yield slice(start, stop), block.T


@single_thread()
def centred(source: Rows, index: Tensor | None, basis: Dct2 | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Feature-major centred data (D, stride), and per feature mean, variance and fourth central moment, float64."""
    rows = source.rows if index is None else int(index.shape[0])
    u = torch.zeros(source.dim, _stride(rows, source.dtype), dtype=source.dtype)
    mean, variance, fourth = (torch.empty(source.dim, dtype=torch.float64) for _ in range(3))
    for units, block in _feature_major(source, index, basis):
        part = u[units, :rows]
        part.copy_(block)
        centre = part.mean(1)
        part -= centre[:, None]
        mean[units] = centre.double()
        variance[units] = torch.linalg.vector_norm(part, dim=1).double().square() / rows
        fourth[units] = torch.linalg.vector_norm(part, ord=4, dim=1).double().pow(4) / rows
    return u, mean, variance, fourth


@single_thread()
def apply(
    source: Rows, index: Tensor | None, mean: Tensor, variance: Tensor, basis: Dct2 | None,
    largest: Tensor | None = None,
) -> Standardised:  # fmt: skip
    """Other rows (all where ``index`` is None), standardised by a given mean and variance; all vectors (D,)."""
    rows = source.rows if index is None else int(index.shape[0])
    u = torch.zeros(source.dim, _stride(rows, source.dtype), dtype=source.dtype)
    for units, block in _feature_major(source, index, basis):
        u[units, :rows] = (block - mean[units, None].to(u.dtype)) * variance[units, None].rsqrt().to(u.dtype)
    largest = torch.ones(source.dim, dtype=torch.float64) if largest is None else largest
    return Standardised(u, rows, mean, variance, largest, rows)


@dataclass
class Survey:
    """What two passes over the rows tell, all (D,) float64, in the basis of the fit unless said otherwise.

    ``variance`` is shrunk as `standardise` does it. ``plain``, ``plain_variance``: mean and raw variance in the
    original basis. The rest is as in `Standardised`.
    """

    mean: Tensor
    variance: Tensor
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


def survey(source: Rows, basis: Dct2 | None, layout: Layout | None) -> Survey:
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
    _check_finite(plain.scatter)
    mean = plain.mean if basis is None else changed.mean
    second, fourth = torch.zeros_like(mean), torch.zeros_like(mean)
    centre = mean.to(source.dtype)
    for block in source.blocks():
        square = ((block if basis is None else basis.forward(block)) - centre).square_()
        second += square.sum(0).double()
        fourth += square.square_().sum(0).double()
    rows = source.rows
    raw = second / rows
    variance, _, largest = _settle(raw, fourth / rows, mean, rows, source.dtype, layout, basis is not None)
    plain_variance = raw if basis is None else plain.scatter / rows
    return Survey(mean, variance, largest, plain.mean, plain_variance)


@single_thread()
def diagonal_log_likelihood(source: Rows, train: Tensor | None, index: Tensor | None, layout: Layout | None) -> float:
    """Mean log-likelihood per dimension of rows ``index`` under the diagonal Gaussian of rows ``train``.

    Original basis, shrunk variances: what a Laplace covariance has to beat.
    """
    rows = source.rows if train is None else int(train.shape[0])
    mean, variance, squares = (torch.empty(source.dim, dtype=torch.float64) for _ in range(3))
    for units, block in _feature_major(source, train, None):
        centre = block.mean(1)
        mean[units] = centre.double()
        variance[units] = torch.linalg.vector_norm(block - centre[:, None], dim=1).double().square() / rows
    shrunk = diagonal_variance(variance, mean, rows, source.dtype, layout)
    if index is None:
        squares = variance
    else:
        for units, block in _feature_major(source, index, None):
            squares[units] = (block - mean[units, None].to(block.dtype)).square().mean(1).double()
    return independent_log_likelihood(squares, shrunk)


def diagonal_variance(variance: Tensor, mean: Tensor, rows: int, dtype: torch.dtype, layout: Layout | None) -> Tensor:
    """The shrunk variances (D,) of the diagonal Gaussian in the original basis."""
    return shrunk_variance(variance, _constant(variance, mean, dtype), rows, layout, False)


def independent_log_likelihood(squares: Tensor, variance: Tensor) -> float:
    """Mean log-likelihood per dimension of rows with mean squared distances ``squares`` (D,) from the mean."""
    return -0.5 * float((squares / variance + variance.log()).mean() + math.log(2 * math.pi))


def _constant(variance: Tensor, mean: Tensor, dtype: torch.dtype) -> Tensor:
    """Features that do not vary: rounding of the mean leaves about eps * |mean| in them."""
    noise = (torch.finfo(dtype).eps * mean.abs()).square()
    return variance <= torch.maximum(4 * noise, 1e-14 * variance.mean()).clamp_min(1e-290)


def _largest_loading(variance: Tensor, fourth: Tensor, constant: Tensor, rows: int) -> Tensor:
    """The largest |r| that each unit may take, (D,): 0.9995 for plentiful, well-behaved data.

    A unit whose variance comes from a handful of rows (a nearly dead unit) can be perfectly correlated with another by
    accident, and the likelihood would believe it. Its variance rests on n = N / kurtosis rows; 1 - r^2 >= n^-3 leaves
    all units alone but those with n of a few (held-out gain of the digits pixels, N = 1200: -0.62 without, +0.17 with).
    """
    rested = rows * variance.square() / fourth.clamp_min(torch.finfo(torch.float64).tiny)
    largest = (1 - rested.clamp_min(1).pow(-3)).sqrt().clamp_max(LARGEST_LOADING)
    return torch.where(constant, 0.0, largest)


def shrunk_variance(variance: Tensor, constant: Tensor, rows: int, layout: Layout | None, frequencies: bool) -> Tensor:
    """Variances drawn towards a prior that counts as (at most) two rows, (D,); never 0.

    Maps: towards the mean of the channel. In the DCT basis: towards channel mean times frequency mean over the mean.
    Otherwise the units may have any scale: towards their typical variance, geometrically, and only as strongly as the
    spread of the logarithms says that they have one.
    """
    if layout is None:
        weight, typical = _typical_variance(variance[~constant], rows)
        shrunk = variance * (typical / variance).pow(weight / (rows + weight))
        return torch.where(constant, weight * typical / (rows + weight), shrunk)
    maps = variance.reshape(layout[0], -1)
    prior = maps.mean(1, keepdim=True).expand_as(maps)
    if frequencies:
        prior = prior * maps.mean(0, keepdim=True) / maps.mean()
    shrunk = (rows * variance + PRIOR_ROWS * prior.reshape(-1)) / (rows + PRIOR_ROWS)
    return torch.where(shrunk > 0, shrunk, variance[~constant].min())


def _typical_variance(variance: Tensor, rows: int) -> tuple[float, float]:
    """Weight in rows (at most `PRIOR_ROWS`) and value of the prior: the moments of a scaled F distribution."""
    log = variance.log()
    half = 0.5 * (rows - 1)
    excess = float(log.var(correction=1)) - float(polygamma(1, half)) if log.shape[0] > 1 else 0.0
    if excess <= 0:
        return PRIOR_ROWS, float(variance.mean())
    degrees = 2 * _inverse_trigamma(excess)
    offset = float(digamma(half)) - math.log(half) - (float(digamma(degrees / 2)) - math.log(degrees / 2))
    return min(PRIOR_ROWS, degrees), math.exp(float(log.mean()) - offset)


def _inverse_trigamma(value: float) -> float:
    """x with trigamma(x) = value, by Newton steps on 1 / trigamma, which is nearly linear."""
    x = 0.5 + 1 / value
    for _ in range(30):
        tri = float(polygamma(1, x))
        x = max(x + tri * (1 - tri / value) / float(polygamma(2, x)), 1e-8)
    return x


def pseudo_rows(data: Standardised) -> Standardised:
    """D rows with the same second moments as N > D ones: the same likelihood at less cost."""
    moments = torch.zeros(data.u.shape[0], data.u.shape[0], dtype=torch.float64)
    for part in torch.split(data.u, 4096, dim=1):
        moments += part.double() @ part.double().T
    u = _root_rows(moments / data.rows, data.u.dtype)
    return Standardised(u, u.shape[0], data.mean, data.variance, data.largest, data.samples)


def independent_nll(data: Standardised) -> float:
    """Mean negative log-likelihood of standardised data if all units were independent, without 2 pi."""
    return 0.5 * float(torch.linalg.vector_norm(data.u, dim=1).double().square().sum()) / data.rows


def from_covariance(matrix: Tensor, samples: int | None) -> Standardised:
    """D rows whose second moments are the correlations of ``matrix`` (D, D) float64, computed in float64."""
    variance = matrix.diagonal().clone()
    scale = variance.rsqrt()
    u = _root_rows(scale[:, None] * matrix * scale[None, :], torch.float64)
    largest = torch.full_like(variance, LARGEST_LOADING)
    return Standardised(u, len(variance), torch.zeros_like(variance), variance, largest, samples or 10_000)


def _root_rows(moments: Tensor, dtype: torch.dtype) -> Tensor:
    """Feature-major (D, stride) data of D rows with second moments ``moments`` (D, D)."""
    size = moments.shape[0]
    with single_thread():
        root, failed = torch.linalg.cholesky_ex(moments)
        if int(failed):
            values, vectors = torch.linalg.eigh(moments)
            root = vectors * values.clamp_min(0).sqrt()
    u = torch.zeros(size, _stride(size, dtype), dtype=dtype)
    u[:, :size] = (root * math.sqrt(size)).to(dtype)
    return u


def _stride(rows: int, dtype: torch.dtype) -> int:
    """Rows rounded up to whole cache lines."""
    lanes = 64 // dtype.itemsize
    return math.ceil(rows / lanes) * lanes
