"""From what the user has (tensor, memory-mapped array, batches) to standardised, feature-major data."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import digamma, polygamma
from torch import Tensor

from ..basis import CosineBasis

__all__ = ["Rows", "Standardised", "pseudo_rows", "standardise"]

PRIOR_ROWS = 2.0  # weight of the variance prior, in rows (design/fit.md, "Small N")
_BLOCK = 1024  # columns handled at a time, so that a block stays in the cache


class Rows:
    """N rows of D features, read a block of columns at a time in the dtype that computes.

    Args:
        x: (N, D) floating tensor (any device, strides), (N, D) numpy array or memory map, or an iterable of such batches.

    Raises:
        ValueError: not two-dimensional, not floating, empty, or fewer than two rows.
    """

    def __init__(self, x: Tensor | np.ndarray | Iterable[Tensor | np.ndarray]) -> None:
        if not isinstance(x, Tensor | np.ndarray):
            x = _concatenate(x)
        if x.ndim != 2:
            raise ValueError(f"x must be two-dimensional (rows, features), got shape {tuple(x.shape)}; flatten maps first")
        floating = x.is_floating_point() if isinstance(x, Tensor) else np.issubdtype(x.dtype, np.floating)
        if not floating:
            raise ValueError(f"x must hold floating-point numbers, got {x.dtype}; convert it with .float()")
        if x.shape[0] < 2 or x.shape[1] < 1:
            raise ValueError(f"x must have at least 2 rows and 1 feature to have a covariance, got shape {tuple(x.shape)}")
        self.x = x
        self.rows, self.dim = int(x.shape[0]), int(x.shape[1])
        wide = x.dtype in (torch.float64, np.float64)
        self.dtype = torch.float64 if wide else torch.float32
        self.device = x.device if isinstance(x, Tensor) else torch.device("cpu")

    def columns(self, start: int, stop: int, index: Tensor | None) -> Tensor:
        """Features start..stop of the rows ``index`` (all where None), (rows, stop - start), on the CPU."""
        if isinstance(self.x, Tensor):
            block = self.x[:, start:stop].detach()
            block = block if index is None else block[index.to(block.device)]
            return block.to("cpu", self.dtype)
        rows = self.x[:, start:stop] if index is None else self.x[index.numpy(), start:stop]
        return torch.from_numpy(np.array(rows)).to(self.dtype)


def _concatenate(batches: Iterable[Tensor | np.ndarray]) -> Tensor:
    try:
        parts = [torch.as_tensor(batch) for batch in batches]
    except TypeError as error:
        raise ValueError(f"x must be a tensor, an array or an iterable of batches, got {type(batches).__name__}") from error
    if not parts:
        raise ValueError("x is an iterable without any batch; expected at least one of shape (rows, features)")
    if any(part.ndim != 2 or part.shape[1] != parts[0].shape[1] for part in parts):
        shapes = sorted({tuple(part.shape) for part in parts})
        raise ValueError(f"the batches of x must be (rows, features) with one number of features, got shapes {shapes}")
    return torch.cat(parts)


@dataclass
class Standardised:
    """Feature-major standardised data.

    ``u`` (D, stride): sample n of unit i is u[i, n]; columns beyond ``rows`` are zero (stride is a multiple of a cache
    line). ``mean``, ``variance`` (D,) float64: what was subtracted, and the shrunk variance that was divided by.
    ``constant`` (D,) bool: units that do not vary; their u is 0. ``largest`` (D,) float64: the largest |loading| that the
    data can support (`largest_loading`). ``samples``: the rows the data stand for (differs from
    ``rows`` for pseudo-rows).
    """

    u: Tensor
    rows: int
    mean: Tensor
    variance: Tensor
    constant: Tensor
    largest: Tensor
    samples: int


def standardise(
    source: Rows, index: Tensor | None, layout: tuple[int, int, int] | None, basis: CosineBasis | None
) -> Standardised:
    """Centre, change basis, shrink variances, divide. One copy of the data, made in blocks of columns.

    Raises:
        ValueError: NaN or infinite entries, or all rows equal.
    """
    u, mean, variance, fourth = _centred(source, index, basis)
    rows = source.rows if index is None else int(index.shape[0])
    if not torch.isfinite(variance).all():
        bad = int((~torch.isfinite(variance)).nonzero()[0])
        raise ValueError(f"x must be finite; feature {bad} contains NaN or infinite values (or overflows when squared)")
    # Rounding of the mean leaves about eps * |mean| in a unit that does not vary at all.
    noise = (torch.finfo(source.dtype).eps * mean.abs()).square()
    constant = variance <= torch.maximum(4 * noise, 1e-14 * variance.mean())
    if bool(constant.all()):
        raise ValueError("x must have at least 2 distinct rows: no feature varies")
    largest = largest_loading(variance, fourth, constant, rows)
    variance = shrunk_variance(variance, constant, rows, layout, basis is not None)
    scale = torch.where(constant, 0.0, variance.rsqrt()).to(u.dtype)
    for start in range(0, source.dim, _BLOCK):
        u[start : start + _BLOCK] *= scale[start : start + _BLOCK, None]
    return Standardised(u, rows, mean, variance, constant, largest, rows)


def _centred(source: Rows, index: Tensor | None, basis: CosineBasis | None) -> tuple[Tensor, ...]:
    rows = source.rows if index is None else int(index.shape[0])
    u = torch.zeros(source.dim, _stride(rows, source.dtype), dtype=source.dtype)
    mean, variance, fourth = (torch.empty(source.dim, dtype=torch.float64) for _ in range(3))
    step = _BLOCK
    if basis is not None:  # whole channels
        step = math.prod(basis.layout[1:]) * max(1, _BLOCK // math.prod(basis.layout[1:]))
    for start in range(0, source.dim, step):
        stop = min(start + step, source.dim)
        block = source.columns(start, stop, index)
        if basis is not None:
            maps = CosineBasis(((stop - start) // math.prod(basis.layout[1:]), *basis.layout[1:]))
            block = maps.forward(block)
        part = u[start:stop, :rows]
        part.copy_(block.T)
        centre = part.mean(1)
        part -= centre[:, None]
        mean[start:stop] = centre
        variance[start:stop] = torch.linalg.vector_norm(part, dim=1).double().square() / rows
        fourth[start:stop] = torch.linalg.vector_norm(part, ord=4, dim=1).double().pow(4) / rows
    return u, mean, variance, fourth


def largest_loading(variance: Tensor, fourth: Tensor, constant: Tensor, rows: int) -> Tensor:
    """The largest |r| that each unit may take, (D,): 0.9995 for plentiful, well-behaved data.

    A unit whose variance comes from a handful of rows (a nearly dead unit) can be perfectly correlated with another by
    accident, and the likelihood would believe it. Its variance rests on n = N / kurtosis rows; 1 - r^2 >= n^-3 leaves all
    units alone but those with n of a few (held-out gain of the digits pixels, N = 1200: -0.62 without, +0.17 with).
    """
    rested = rows * variance.square() / fourth.clamp_min(torch.finfo(torch.float64).tiny)
    largest = (1 - rested.clamp_min(1).pow(-3)).sqrt().clamp_max(0.9995)
    return torch.where(constant, 0.0, largest)


def shrunk_variance(
    variance: Tensor, constant: Tensor, rows: int, layout: tuple[int, int, int] | None, frequencies: bool
) -> Tensor:
    """Variances drawn towards a prior that counts as (at most) two rows, (D,); never 0.

    Maps: towards the mean of the channel. In the DCT basis: towards channel mean times frequency mean over the mean.
    Otherwise the units may have any scale: towards their typical variance, and only as strongly as the spread of the
    logarithms says that they have one (the moments of a scaled F distribution).
    """
    if layout is None:
        weight, prior = _typical_variance(variance[~constant], rows)
    else:
        weight = PRIOR_ROWS
        maps = variance.reshape(layout[0], -1)
        channel = maps.mean(1, keepdim=True)
        prior = channel.expand_as(maps)
        if frequencies:
            prior = channel * maps.mean(0, keepdim=True) / maps.mean()
        prior = prior.reshape(-1)
    shrunk = (rows * variance + weight * prior) / (rows + weight)
    smallest = variance[~constant].min()
    return torch.where(shrunk > 0, shrunk, smallest)


def _typical_variance(variance: Tensor, rows: int) -> tuple[float, float]:
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
    dim = data.u.shape[0]
    moments = (data.u.double() @ data.u.double().T) / data.rows
    factor, failed = torch.linalg.cholesky_ex(moments)
    if int(failed) or not torch.isfinite(factor).all():
        values, vectors = torch.linalg.eigh(moments)
        factor = vectors * values.clamp_min(0).sqrt()
    u = torch.zeros(dim, _stride(dim, data.u.dtype), dtype=data.u.dtype)
    u[:, :dim] = (factor * math.sqrt(dim)).to(u.dtype)
    return Standardised(u, dim, data.mean, data.variance, data.constant, data.largest, data.samples)


def _stride(rows: int, dtype: torch.dtype) -> int:
    lanes = 64 // torch.empty((), dtype=dtype).element_size()
    return math.ceil(rows / lanes) * lanes
