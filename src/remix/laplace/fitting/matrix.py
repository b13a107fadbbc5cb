"""Fitting to a covariance matrix instead of rows."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from remix.laplace.fitting.assemble import LOG_2PI, Clock, distribution, sample_error
from remix.laplace.fitting.prepare import Rows, from_covariance, independent_nll
from remix.laplace.fitting.report import FitReport
from remix.laplace.fitting.search import search
from remix.laplace.normal import LaplaceNormal

__all__ = ["fit_covariance"]


def fit_covariance(
    matrix: Tensor,
    mean: Tensor | None = None,
    *,
    samples: int | None = None,
    generator: torch.Generator | None = None,
    thorough: bool = False,
    progress: Callable[[str], None] | None = None,
) -> LaplaceNormal:
    """Fit a Laplace covariance to a covariance matrix by maximum likelihood, variances exact.

    Nothing is validated, there being no rows: the scale is 1. Meant for D up to a few thousand.

    Args:
        matrix: (D, D) symmetric positive semi-definite, floating.
        mean: (D,), zero by default.
        samples: number of rows the matrix was estimated from, where known: a unit changes its place on the chain only
            for gains that so many rows can support.
        generator, thorough, progress: as in `fit`.

    Raises:
        ValueError: not square, symmetric, finite or floating, a variance that is not positive, or a mean of another
            shape.
    """
    _check_covariance(matrix, mean, samples)
    clock = Clock(progress)
    clock("prepare")
    dense = matrix.detach().to("cpu", torch.float64)
    data = from_covariance(dense, samples)
    seeds = generator or torch.Generator().manual_seed(0)
    found = search(data, None, False, thorough, int(torch.randint(2**31, (), generator=seeds)), clock)
    clock("report")
    source = Rows(matrix.expand(2, *matrix.shape[1:]) if matrix.shape[0] == 1 else matrix)
    loc = torch.zeros(source.dim, dtype=torch.float64) if mean is None else mean
    normal = distribution(found.chain, data.variance, loc, None, source)
    diagonal = -0.5 * (float(data.variance.log().mean()) + 1 + LOG_2PI)
    normal.report = FitReport(
        objective="likelihood",
        samples=samples or 0,
        dim=source.dim,
        basis="original",
        start=found.start,
        scale=1.0,
        train_log_likelihood=diagonal + (independent_nll(data) - found.nll) / source.dim,
        diagonal_train_log_likelihood=diagonal,
        validation_log_likelihood=None,
        diagonal_validation_log_likelihood=None,
        frobenius_error=sample_error(data, normal.covariance),
        parameters=4 * source.dim,
        seconds=clock.done(),
    )
    return normal


def _check_covariance(matrix: Tensor, mean: Tensor | None, samples: int | None) -> None:
    if not isinstance(matrix, Tensor) or matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.numel():
        shape = tuple(matrix.shape) if isinstance(matrix, Tensor) else type(matrix).__name__
        raise ValueError(f"matrix must be a square (D, D) tensor, got {shape}")
    if not matrix.is_floating_point():
        raise ValueError(f"matrix must hold floating-point numbers, got {matrix.dtype}")
    if not torch.isfinite(matrix).all():
        raise ValueError("matrix must be finite, but it holds NaN or infinite entries")
    if not torch.allclose(matrix, matrix.mT, rtol=1e-3, atol=1e-4 * float(matrix.abs().max())):
        raise ValueError("matrix must be symmetric, as a covariance is")
    if not bool((matrix.diagonal() > 0).all()):
        raise ValueError("matrix must have positive variances on its diagonal")
    if mean is not None and mean.shape != matrix.shape[:1]:
        raise ValueError(f"mean must have shape {tuple(matrix.shape[:1])}, got {tuple(mean.shape)}")
    if samples is not None and samples < 1:
        raise ValueError(f"samples must be positive, got {samples}")
