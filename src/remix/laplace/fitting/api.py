"""The public functions: `fit` to rows, `fit_covariance` to a matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from remix.laplace.basis import Dct2
from remix.laplace.covariance import LaplaceCovariance
from remix.laplace.fitting.assemble import LOG_2PI, Clock, distribution, sample_error
from remix.laplace.fitting.frobenius import FrobeniusRecipe, descend, frobenius_error
from remix.laplace.fitting.likelihood import ChainData
from remix.laplace.fitting.prepare import (
    Data,
    Layout,
    Rows,
    Standardised,
    apply,
    centred,
    diagonal_log_likelihood,
    from_covariance,
    standardise,
)
from remix.laplace.fitting.report import FitReport
from remix.laplace.fitting.scale import choose_scale
from remix.laplace.fitting.search import Found, search
from remix.laplace.normal import LaplaceNormal

__all__ = ["fit", "fit_covariance"]

_SMALLEST_MAP = 8  # height and width from which "auto" takes the DCT
_FEWEST_ROWS = 8  # below, nothing can be validated
_MANY_ROWS, _CLEAR_GAIN = 500, 0.05  # no validation needed beyond both


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
) -> LaplaceNormal:
    """Fit a Gaussian with a Laplace covariance to rows.

    ``objective="likelihood"`` searches the order of the coordinates (which decides the result), maximises the
    likelihood with exact marginal variances, and shrinks the correlations by a factor validated on held-out rows, down
    to exactly the diagonal if the rows do not support more. Fewer than 8 rows cannot be validated and give the
    diagonal. Features that do not vary get weight 0 and a small variance from the prior.

    ``objective="frobenius"`` is the paper's recipe, kept for comparison: it is often below the diagonal.

    Args:
        x: (N, D) floating tensor on any device, (N, D) numpy array (may be memory-mapped), or an iterable of such
            batches. float16 and bfloat16 are computed in float32.
        objective: "likelihood" or "frobenius".
        layout: (channels, height, width) of the feature map that was flattened into D, if it was one.
        transform: "dct" puts an orthonormal 2-D DCT over (height, width) in front (needs ``layout``); None does not;
            "auto" does where ``layout`` is given with height and width of 8 or more (better on every feature map
            measured) unless the fit without it is better, and never for the Frobenius objective.
        generator: source of all randomness (a CPU generator); without one the fit still is deterministic.
        thorough: more sweeps and steps.
        recipe: settings of the Frobenius objective.
        progress: called with the name of each phase as it starts.

    Returns:
        A `LaplaceNormal` on the device of ``x``, float64 for float64 data, else float32, with ``.report``.

    Raises:
        ValueError: an argument has a wrong shape, type or value, or ``x`` holds NaN or infinite values or fewer than
            two distinct rows.
    """
    if objective not in ("likelihood", "frobenius"):
        raise ValueError(f"objective must be 'likelihood' or 'frobenius', got {objective!r}")
    if recipe is not None and objective != "frobenius":
        raise ValueError("recipe belongs to objective='frobenius'; leave it out or change the objective")
    source = Rows(x)
    basis = _basis(objective, layout, transform, source.dim)
    seeds = generator or torch.Generator().manual_seed(0)
    job = _Job(source, basis, layout, thorough, seeds, Clock(progress))
    if objective == "frobenius":
        return job.frobenius(recipe or FrobeniusRecipe())
    normal = job.likelihood()
    if basis is None or transform == "dct" or _gain(normal) > _CLEAR_GAIN:
        return normal
    # The diagonal in frequencies is not the diagonal in pixels: without a clear gain over that one, see what is better.
    plain = _Job(source, None, layout, thorough, seeds, Clock(progress)).likelihood()
    return normal if _gain(normal) > _gain(plain) else plain


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


@dataclass
class _Validation:
    scale: float
    log_likelihood: float
    diagonal: float


@dataclass
class _Job:
    """One call of `fit`."""

    source: Rows
    basis: Dct2 | None
    layout: Layout | None
    thorough: bool
    seeds: torch.Generator
    clock: Clock

    def __post_init__(self) -> None:
        self.seed = int(torch.randint(2**31, (), generator=self.seeds))

    def likelihood(self) -> LaplaceNormal:
        """The default fit."""
        validation = None
        if _FEWEST_ROWS <= self.source.rows <= _MANY_ROWS:
            validation = self._validate()  # first: only one standardised copy of the data is alive at a time
        data, found = self._once(None)
        if self.source.rows > _MANY_ROWS and (_independent(data) - found.nll) / self.source.dim <= _CLEAR_GAIN:
            del data
            validation = self._validate()
            data = standardise(self.source, None, self.layout, self.basis)
        scale = validation.scale if validation else float(self.source.rows > _MANY_ROWS)
        self.clock("report")
        chain = found.chain.scaled(scale)
        loc = data.mean if self.basis is None else self.basis.inverse(data.mean)
        normal = distribution(chain, data.variance, loc, self.basis, self.source)
        rows = ChainData(data, chain.order).row_nll(chain.loading, chain.phi)
        train = self._per_dim(rows, data.variance)
        error = sample_error(data, normal.covariance)
        normal.report = self._report("likelihood", found.start, scale, train, validation, error)
        return normal

    def frobenius(self, recipe: FrobeniusRecipe) -> LaplaceNormal:
        """The paper's fit."""
        self.clock("prepare")
        u, mean, *_ = centred(self.source, None, self.basis)
        v = u[:, : self.source.rows]
        self.clock("gradient descent")
        parts = descend(v, recipe, self.seeds)
        self.clock("report")
        error = frobenius_error(v, *parts)
        loc = (mean if self.basis is None else self.basis.inverse(mean)).to(self.source.device, self.source.dtype)
        diag, weight, coord = (part.to(self.source.device) for part in parts)
        normal = LaplaceNormal(loc, LaplaceCovariance(diag, weight, coord), self.basis)
        centre, here = torch.zeros_like(parts[0]), LaplaceCovariance(*parts)
        rows = torch.cat([here.nll(some.T.contiguous(), centre) for some in torch.split(v, 64, 1)])
        train = -float(rows.double().mean()) / self.source.dim
        normal.report = self._report("frobenius", "gradient descent from a line", 1.0, train, None, error)
        return normal

    def _once(self, index: Tensor | None) -> tuple[Standardised, Found]:
        self.clock("prepare")
        data = standardise(self.source, index, self.layout, self.basis)
        return data, search(data, self.layout, self.basis is not None, self.thorough, self.seed, self.clock)

    def _validate(self) -> _Validation:
        shuffled = torch.randperm(self.source.rows, generator=torch.Generator().manual_seed(self.seed))
        count = max(2, self.source.rows // 5)
        held, train = shuffled[:count].sort().values, shuffled[count:].sort().values
        data, found = self._once(train)
        mean, variance = data.mean, data.variance
        del data
        self.clock("scale")
        choice = choose_scale(apply(self.source, held, mean, variance, self.basis), found.chain)
        diagonal = diagonal_log_likelihood(self.source, train, held, self.layout)
        return _Validation(choice.scale, self._per_dim(choice.row_nll, variance), diagonal)

    def _per_dim(self, row_nll: Tensor, variance: Tensor) -> float:
        """Log-likelihood per dimension from standardised negative log-likelihoods without their 2 pi part."""
        return -(float(row_nll.mean()) + 0.5 * float(variance.log().sum())) / self.source.dim - 0.5 * LOG_2PI

    def _report(
        self, objective: str, start: str, scale: float, train: float, validation: _Validation | None, error: float
    ) -> FitReport:
        return FitReport(
            objective=objective,
            samples=self.source.rows,
            dim=self.source.dim,
            basis="original" if self.basis is None else "2-D DCT",
            start=start,
            scale=scale,
            train_log_likelihood=train,
            diagonal_train_log_likelihood=diagonal_log_likelihood(self.source, None, None, self.layout),
            validation_log_likelihood=validation.log_likelihood if validation else None,
            diagonal_validation_log_likelihood=validation.diagonal if validation else None,
            frobenius_error=error,
            parameters=4 * self.source.dim,
            seconds=self.clock.done(),
        )


def _independent(data: Standardised) -> float:
    """Mean negative log-likelihood of standardised data if all units were independent, without 2 pi."""
    return 0.5 * float(torch.linalg.vector_norm(data.u, dim=1).double().square().sum()) / data.rows


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
        train_log_likelihood=diagonal + (_independent(data) - found.nll) / source.dim,
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
