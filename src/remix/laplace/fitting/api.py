"""The public functions: `fit` to rows, `fit_covariance` to a matrix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from remix.laplace.basis import Dct2
from remix.laplace.covariance import LaplaceCovariance
from remix.laplace.fitting.frobenius import FrobeniusRecipe
from remix.laplace.fitting.job import CLEAR_GAIN, LOG_2PI, FitJob, chain_of, sample_error
from remix.laplace.fitting.report import Clock, FitStep
from remix.laplace.fitting.rows import MEMORY, Data, Layout, Rows, open_rows
from remix.laplace.fitting.search import search
from remix.laplace.fitting.standardise import from_covariance, independent_nll
from remix.laplace.normal import LaplaceNormal

__all__ = ["fit", "fit_covariance"]

_SMALLEST_MAP = 8  # height and width from which "auto" takes the DCT


def fit(
    x: Data,
    objective: str = "likelihood",
    *,
    layout: Layout | None = None,
    transform: str | None = "auto",
    generator: torch.Generator | None = None,
    thorough: bool = False,
    recipe: FrobeniusRecipe | None = None,
    progress: Callable[[str], None] | None = None,
    memory: int = MEMORY,
    trace: Callable[[FitStep], None] | None = None,
) -> LaplaceNormal:
    """Fit a Gaussian with a Laplace covariance to rows.

    ``objective="likelihood"`` searches the order of the coordinates (which decides the result), maximises the
    likelihood with exact marginal variances, and shrinks the correlations by a factor validated on held-out rows, down
    to exactly the diagonal if the rows do not support more. Fewer than 8 rows cannot be validated and give the
    diagonal. Features that do not vary get weight 0 and a small variance from the prior.

    ``objective="frobenius"`` is the paper's recipe, kept for comparison: it is often below the diagonal.

    Args:
        x: (N, D) floating tensor on any device, (N, D) numpy array (may be memory-mapped), or an iterable of such
            batches. float16 and bfloat16 are computed in float32. Rows that do not fit in ``memory`` are read in
            passes: then an iterable must start anew every time it is iterated over, as lists and loaders do and
            generators do not.
        objective: "likelihood" or "frobenius".
        layout: (channels, height, width) of the feature map that was flattened into D, if it was one.
        transform: "dct" puts an orthonormal 2-D DCT over (height, width) in front (needs ``layout``); None does not;
            "auto" does where ``layout`` is given with height and width of 8 or more (better on every feature map
            measured) unless the fit without it is better, and never for the Frobenius objective.
        generator: source of all randomness (a CPU generator); without one the fit still is deterministic.
        thorough: more sweeps and steps.
        recipe: settings of the Frobenius objective.
        progress: called with the name of each phase as it starts.
        memory: bytes that copies of the rows may take, 4 GiB by default. Where all rows would take more, the order is
            found from a sample of them, and moments and likelihood are those of all rows, read again and again.
        trace: called for the start and every step of the fit, with what was reached there (`FitStep`). For the
            likelihood that is when the search is over: of several starts only the best is shown.

    Returns:
        A `LaplaceNormal` on the device of ``x``, float64 for float64 data, else float32, with ``.report``.

    Raises:
        ValueError: an argument has a wrong shape, type or value, ``x`` holds NaN or infinite values or fewer than
            two distinct rows, or it does not fit and can be read only once.
    """
    if objective not in ("likelihood", "frobenius"):
        raise ValueError(f"objective must be 'likelihood' or 'frobenius', got {objective!r}")
    if recipe is not None and objective != "frobenius":
        raise ValueError("recipe belongs to objective='frobenius'; leave it out or change the objective")
    source = open_rows(x, memory)
    seeds = generator or torch.Generator().manual_seed(0)

    def job(basis: Dct2 | None) -> FitJob:
        return FitJob(source, basis, layout, thorough, seeds, Clock(progress), trace)

    basis = _basis(objective, layout, transform, source.dim)
    if objective == "frobenius":
        return job(basis).frobenius(recipe or FrobeniusRecipe())
    normal = job(basis).likelihood()
    if basis is None or transform == "dct" or _gain(normal) > CLEAR_GAIN:
        return normal
    # The diagonal in frequencies is not the diagonal in pixels: without a clear gain over that one, see what is better.
    plain = job(None).likelihood()
    return normal if _gain(normal) > _gain(plain) else plain


def fit_covariance(
    matrix: Tensor,
    mean: Tensor | None = None,
    *,
    samples: int | None = None,
    known: Sequence[LaplaceCovariance] = (),
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
        known: covariances to start from as well, such as an earlier fit; up to 1,024 coordinates the result is at least
            as likely as the correlations of each of them.
        generator, thorough, progress: as in `fit`.

    Raises:
        ValueError: not square, symmetric, finite or floating, a variance that is not positive, or a mean of another
            shape.
    """
    _check_covariance(matrix, mean, samples)
    clock = Clock(progress)
    clock("prepare")
    data = from_covariance(matrix.detach().to("cpu", torch.float64), samples)
    seeds = generator or torch.Generator().manual_seed(0)
    job = FitJob(Rows(matrix, fewest=1), None, None, thorough, seeds, clock)
    found = search(data, None, False, thorough, job.seed, clock, known=[chain_of(one) for one in known])
    clock("report")
    normal = job.normal(found.chain, data.mean if mean is None else mean, data.variance)
    diagonal = -0.5 * (float(data.variance.log().mean()) + 1 + LOG_2PI)
    train = diagonal + (independent_nll(data) - found.nll) / len(data.mean)
    error = sample_error(data, normal.covariance)
    report = job.report("likelihood", found.start, 1.0, train, diagonal, error=error)
    normal.report = replace(report, samples=samples or 0)
    return normal


def _gain(normal: LaplaceNormal) -> float:
    """Nats per dimension over the diagonal in the original basis; on validation rows where there were any."""
    report = normal.report
    assert report is not None
    return report.train_gain if report.validation_gain is None else report.validation_gain


def _basis(objective: str, layout: Layout | None, transform: str | None, dim: int) -> Dct2 | None:
    if transform not in ("auto", "dct", None):
        raise ValueError(f"transform must be 'auto', 'dct' or None, got {transform!r}")
    if layout is None:
        if transform == "dct":
            raise ValueError("transform='dct' needs layout=(channels, height, width)")
        return None
    basis = Dct2(layout)
    if basis.dim != dim:
        raise ValueError(f"layout {tuple(layout)} multiplies to {basis.dim}, but x has {dim} features")
    if transform == "auto":
        transform = "dct" if objective == "likelihood" and min(basis.layout[1:]) >= _SMALLEST_MAP else None
    return basis if transform == "dct" else None


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
