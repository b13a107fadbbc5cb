"""A multivariate normal with a Laplace covariance, as a `torch.distributions.Distribution`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from remix.laplace import kernels
from remix.laplace.covariance import DENSE_LIMIT, NAMES, Given, LaplaceCovariance
from remix.laplace.factor import UNWHITEN, sweeps_of
from remix.laplace.portable import Portable, basis_of, basis_state, copies, require_names
from remix.laplace.validate import broadcast, check_rows, checks_possible, compute_dtype, require_finite

if TYPE_CHECKING:
    from remix.laplace.basis import Basis
    from remix.laplace.fitting.report import FitReport

__all__ = ["LaplaceNormal", "standard_normal"]


class LaplaceNormal(Portable, Distribution):
    """N(loc, Sigma) with Sigma a `LaplaceCovariance`: exact density, draws and gradients, linear in D.

    Args:
        loc: mean, (..., D).
        covariance: Sigma; its batch shape broadcasts with that of ``loc``.
        basis: optional orthonormal transform T (`remix.laplace.Dct2`): then T (x - loc) ~ N(0, Sigma), and the
            covariance of x itself is T' Sigma T.
        validate_args: as in ``torch.distributions``.
    """

    arg_constraints = {  # noqa: RUF012 (the signature of torch.distributions)
        "loc": constraints.real_vector,
        "diag": constraints.independent(constraints.positive, 1),
        "weight": constraints.real_vector,
        "coord": constraints.real_vector,
    }
    support = constraints.real_vector
    has_rsample = True
    loc = Given()

    def __init__(
        self,
        loc: Tensor,
        covariance: LaplaceCovariance,
        basis: Basis | None = None,
        validate_args: bool | None = None,
    ):
        if not isinstance(covariance, LaplaceCovariance):
            raise TypeError(f"covariance must be a LaplaceCovariance, got {type(covariance).__name__}")
        check_rows("loc", loc, covariance.dim, covariance.diag)
        batch_shape = broadcast(loc=loc.shape[:-1], covariance=covariance.batch_shape)
        if basis is not None and basis.dim != covariance.dim:
            raise ValueError(f"basis is for {basis.dim} coordinates but the covariance has {covariance.dim}")
        event_shape = torch.Size((covariance.dim,))
        self.loc, self._shape = loc, batch_shape + event_shape
        self.covariance = covariance if covariance.batch_shape == batch_shape else covariance.expand(batch_shape)
        self.basis = basis
        self.report: FitReport | None = None
        super().__init__(batch_shape, event_shape, validate_args=False)
        self._validate_args = bool(Distribution._validate_args) if validate_args is None else validate_args
        if self._validate_args and checks_possible(loc):
            require_finite("loc", loc.detach())

    # The parameters under the names of `arg_constraints`.
    diag = property(lambda self: self.covariance.diag)
    weight = property(lambda self: self.covariance.weight)
    coord = property(lambda self: self.covariance.coord)

    def expand(self, batch_shape: Any, _instance: Any = None) -> LaplaceNormal:
        """The same distribution with a larger batch shape; parameters are not copied."""
        shape = torch.Size(batch_shape)
        new = LaplaceNormal(vars(self)["loc"], self.covariance.expand(shape), self.basis, validate_args=False)
        new._validate_args, new.report = self._validate_args, self.report
        return new

    def to(self, *args: Any, **kwargs: Any) -> LaplaceNormal:
        """All of it with `torch.Tensor.to`; basis and report stay. Itself where nothing changes; gradients flow."""
        given = vars(self)["loc"]
        loc, covariance = given.to(*args, **kwargs), self.covariance.to(*args, **kwargs)
        if loc is given and covariance is self.covariance:
            return self
        new = LaplaceNormal(loc, covariance, self.basis, self._validate_args)
        new.report = self.report
        return new

    def state_dict(self) -> dict[str, Tensor]:
        """Copies of the mean and the three vectors by name, and the layout of a `Dct2`: what to save."""
        return {**copies({"loc": self.loc}), **self.covariance.state_dict(), **basis_state(self.basis)}

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Tensor]) -> LaplaceNormal:
        """The normal of what `state_dict` gave, without a report.

        Raises:
            ValueError: if it is the state of something else, or not of a normal.
        """
        require_names("LaplaceNormal", state, ("loc", *NAMES), ("dct",))
        covariance = LaplaceCovariance(state["diag"], state["weight"], state["coord"])
        return cls(state["loc"], covariance, basis_of(state))

    # --- moments ---

    @property
    def mean(self) -> Tensor:
        """loc."""
        return self.loc

    mode = mean

    @property
    def variance(self) -> Tensor:
        """Marginal variances, (..., D)."""
        if self.basis is None:
            return self.covariance.diagonal()
        return self.basis.variance(self.covariance)

    @property
    def covariance_matrix(self) -> Tensor:
        """Dense covariance (..., D, D), for small D (at most 4,096; see `LaplaceCovariance.to_dense`)."""
        dense = self.covariance.to_dense(DENSE_LIMIT)
        if self.basis is None:
            return dense
        # T' Sigma T: the inverse transform of rows, then of columns.
        return self.basis.inverse(self.basis.inverse(dense).mT)

    @property
    def precision_matrix(self) -> Tensor:
        """Dense inverse covariance (..., D, D), for small D."""
        eye = torch.eye(self.covariance.dim, dtype=self.loc.dtype, device=self.loc.device)
        if self.covariance.dim > DENSE_LIMIT:
            self.covariance.to_dense(DENSE_LIMIT)
        rows = eye if self.basis is None else self.basis.forward(eye)
        lead = (self.covariance.dim,) + (1,) * len(self.batch_shape) + (self.covariance.dim,)
        solved = self.covariance.solve(rows.reshape(lead)).movedim(0, -2)
        return solved if self.basis is None else self.basis.inverse(solved)

    # --- density and draws ---

    def log_prob(self, value: Tensor) -> Tensor:
        """log N(value; loc, Sigma) of rows (..., D), shape (...)."""
        rows = check_rows("value", value, self.covariance.dim, self.loc, "the LaplaceNormal")
        if self.basis is None:
            nll = self.covariance._nll(rows, self.loc)
        else:
            rows = rows.to(compute_dtype(rows.dtype))
            nll = self.covariance._nll(self.basis.forward(rows - self.loc), torch.zeros_like(self.loc))
        # A row that is not finite cannot have a finite likelihood: looking at B numbers is enough to look at B x D.
        if self._validate_args and checks_possible(nll) and not bool(torch.isfinite(nll.detach()).all()):
            require_finite("value", rows.detach())
        return -nll

    def rsample(self, sample_shape: Any = (), generator: torch.Generator | None = None) -> Tensor:
        """Draws, differentiable in loc and in the covariance; ``generator`` makes them repeatable."""
        shape = torch.Size(sample_shape)
        if self.basis is None:
            return _draw(self.covariance, self.loc, shape, generator)
        return self.basis.inverse(_draw(self.covariance, None, shape, generator)) + self.loc

    def sample(self, sample_shape: Any = (), generator: torch.Generator | None = None) -> Tensor:
        """Draws without gradients."""
        with torch.no_grad():
            return self.rsample(sample_shape, generator)

    def entropy(self) -> Tensor:
        """Differential entropy in nats, shape (...)."""
        return 0.5 * (self.covariance.logdet() + self.covariance.dim * (1 + math.log(2 * math.pi)))

    def __repr__(self) -> str:
        basis = "" if self.basis is None else f", basis={self.basis}"
        batch = f", batch_shape={tuple(self.batch_shape)}" if self.batch_shape else ""
        return f"LaplaceNormal(dim={self.covariance.dim}{batch}, dtype={self.loc.dtype}{basis})"

    def __str__(self) -> str:
        return repr(self) if self.report is None else f"{self!r}\n{self.report}"


def _draw(
    covariance: LaplaceCovariance, loc: Tensor | None, sample_shape: torch.Size, generator: torch.Generator | None
) -> Tensor:
    """loc + L noise, shape sample_shape + batch_shape + (D,); differentiable in loc and the parameters.

    The native path takes one number from ``generator`` and makes its own noise from it: for a given generator the
    draws are the same with and without gradients and for any number of threads, but they are not those of the torch
    path.
    """
    dtype = compute_dtype(covariance.dtype)
    shape = torch.Size((*sample_shape, *covariance.batch_shape, covariance.dim))
    library = kernels.native() if covariance.device.type == "cpu" and not torch.compiler.is_compiling() else None
    tracked = torch.is_grad_enabled() and any(v.requires_grad for v in (*covariance.parameters, loc) if v is not None)
    if library is None:
        rows = covariance.unwhiten(standard_normal(shape, generator, dtype, covariance.device))
        return rows if loc is None else rows + loc
    factors = covariance.factors
    locs: list[Tensor | None] = [None] * len(factors)
    if loc is not None and not tracked:
        locs = list(loc.detach().to(dtype).expand(shape[len(sample_shape) :]).reshape(-1, covariance.dim).contiguous())
    parts = []
    for factor, centre in zip(factors, locs, strict=True):
        seed = int(torch.randint(2**63 - 1, (), generator=generator))
        sweep = None if tracked else sweeps_of(kernels.sweep_table(factor, dtype), UNWHITEN)[0]
        parts.append(library.sample_rows(seed, math.prod(sample_shape), factor.rank, dtype, sweep, centre))
    rows = (torch.stack(parts, 1) if len(parts) > 1 else parts[0]).reshape(shape)
    if not tracked:
        return rows
    rows = covariance.unwhiten(rows)
    return rows if loc is None else rows + loc


def standard_normal(
    shape: Sequence[int], generator: torch.Generator | None, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Standard normal numbers, drawn where the generator lives and then moved: a seed means the same on every device.

    Without a generator they are drawn on the device, from torch's own.
    """
    source = device if generator is None else generator.device
    return torch.randn(tuple(shape), generator=generator, dtype=dtype, device=source).to(device)
