"""The structured matrix Sigma = diag(d) + diag(w) K(a) diag(w), K_ij = exp(-|a_i - a_j|)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from remix.laplace import kernels, ops, validate
from remix.laplace.factor import DOWN, SWEEPS, Factor
from remix.laplace.plane import inner
from remix.laplace.portable import Portable, copies, require_names
from remix.laplace.reference import dense

__all__ = ["DENSE_LIMIT", "Given", "LaplaceCovariance"]

DENSE_LIMIT = 4096
NAMES = ("diag", "weight", "coord")
Triple = tuple[Tensor, Tensor, Tensor]


class Given:
    """A tensor given to an object, in the object's shape at every look: a kept view would miss ``.data = ...``."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, whole: Any, owner: type) -> Tensor:
        given: Tensor = vars(whole)[self._name]
        if given.shape == whole._shape:
            return given
        try:
            return given.expand(whole._shape)
        except RuntimeError as error:
            shapes = f"{tuple(whole._shape)} to {tuple(given.shape)}"
            raise ValueError(f"{self._name} has changed its shape from {shapes}: make a new object of it") from error

    def __set__(self, whole: Any, given: Tensor) -> None:
        vars(whole)[self._name] = given


class LaplaceCovariance(Portable):
    """A full D x D covariance in three vectors; every operation is linear in D after one sort.

    Args:
        diag: d, (..., D), positive.
        weight: w, (..., D), any sign.
        coord: a, (..., D), any real numbers; ties allowed. Leading shapes broadcast: a batch of covariances.
        validate_args: check values (positive, finite) here and in every operation; default: as
            ``torch.distributions`` does (on, unless ``Distribution.set_default_validate_args(False)``).

    Rows are (..., D); their leading shape broadcasts with the batch shape of the parameters. float16 and bfloat16 rows
    are computed and returned in float32. Gradients flow to the rows and to all three vectors. The gradient in ``coord``
    has a kink where coordinates are equal: there the order of a stable sort decides which side is taken.

    The factorisation is float64, made at first use and kept for as long as the three vectors hold the same values.
    """

    diag, weight, coord = Given(), Given(), Given()

    def __init__(self, diag: Tensor, weight: Tensor, coord: Tensor, validate_args: bool | None = None):
        self._validate = bool(Distribution._validate_args) if validate_args is None else validate_args
        validate.check_parameters(diag, weight, coord, values=self._validate)
        self._shape = validate.broadcast(diag=diag.shape, weight=weight.shape, coord=coord.shape)
        self.diag, self.weight, self.coord = diag, weight, coord
        self._factors: tuple[list[Tensor], list[Factor]] | None = None

    # --- shape ---

    @property
    def dim(self) -> int:
        """D."""
        return self.diag.shape[-1]

    @property
    def batch_shape(self) -> torch.Size:
        """Leading shape of the parameters."""
        return self.diag.shape[:-1]

    @property
    def shape(self) -> torch.Size:
        """(..., D, D)."""
        return torch.Size((*self.diag.shape, self.dim))

    @property
    def dtype(self) -> torch.dtype:
        """dtype of the parameters."""
        return self.diag.dtype

    @property
    def device(self) -> torch.device:
        """Device of the parameters."""
        return self.diag.device

    def __repr__(self) -> str:
        batch = f", batch_shape={tuple(self.batch_shape)}" if self.batch_shape else ""
        return f"LaplaceCovariance(dim={self.dim}{batch}, dtype={self.dtype}, device={self.device})"

    def tensors(self) -> dict[str, Tensor]:
        """The three vectors by name, detached. ``LaplaceCovariance(**tensors)`` gives it back."""
        return {name: getattr(self, name).detach() for name in NAMES}

    def state_dict(self) -> dict[str, Tensor]:
        """Copies of the three vectors by name: what to save."""
        return copies(self.tensors())

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Tensor]) -> LaplaceCovariance:
        """The covariance of what `state_dict` gave.

        Raises:
            ValueError: if it is the state of something else, or not of a covariance.
        """
        require_names("LaplaceCovariance", state, NAMES)
        return cls(state["diag"], state["weight"], state["coord"])

    def to(self, *args: Any, **kwargs: Any) -> LaplaceCovariance:
        """All of it with `torch.Tensor.to`. Itself where nothing changes; gradients flow through."""
        given = [vars(self)[name] for name in NAMES]
        diag, weight, coord = moved = [v.to(*args, **kwargs) for v in given]
        if all(new is old for new, old in zip(moved, given, strict=True)):
            return self
        covariance = LaplaceCovariance(diag, weight, coord, self._validate)
        covariance._shape = self._shape
        return covariance

    def expand(self, batch_shape: torch.Size | tuple[int, ...]) -> LaplaceCovariance:
        """The same covariance with a larger batch shape (no copy)."""
        diag, weight, coord = (vars(self)[name] for name in NAMES)
        expanded = LaplaceCovariance(diag, weight, coord, validate_args=False)  # the values have been looked at
        expanded._validate, expanded._shape = self._validate, self.diag.expand((*batch_shape, self.dim)).shape
        return expanded

    # --- factorisation ---

    @property
    def parameters(self) -> tuple[Tensor, Tensor, Tensor]:
        """diag, weight, coord."""
        return self.diag, self.weight, self.coord

    @property
    def _flat(self) -> list[Triple]:
        """One (diag, weight, coord) per covariance of the batch."""
        if not self.batch_shape:
            return [self.parameters]
        rows = [v.reshape(-1, self.dim).unbind(0) for v in self.parameters]
        return list(zip(*rows, strict=True))

    def _each(self) -> list[tuple[Triple, Factor]]:
        """Parameters and current factor of every covariance of the batch."""
        flat, factors = self._flat, self._current()
        return list(zip(flat, factors * (len(flat) // len(factors)), strict=True))

    def _current(self) -> list[Factor]:
        """One factor per covariance of the batch, or a single one if they are all the same."""
        vectors: Sequence[Tensor] = self.parameters
        if self.batch_shape and self._one_for_all():
            vectors = [v.reshape(-1, self.dim)[0] for v in vectors]
        if not validate.checks_possible(*vectors) or any(type(v) not in (Tensor, torch.nn.Parameter) for v in vectors):
            return _factorise(vectors)  # values that cannot be compared: not those of another time
        known = self._factors
        # Fused optimisers, ``.data`` and arrays that share memory change values unseen by autograd's version counters.
        if known is None or not kernels.same(known[0], vectors):
            validate.check_parameters(*self.parameters, values=self._validate)
            with torch.inference_mode(False):  # what is kept must serve autograd later
                copies = [v.detach().clone() for v in vectors]
                known = self._factors = copies, _factorise(copies)
        return known[1]

    def _one_for_all(self) -> bool:
        """Whether the batch is one covariance, expanded."""
        return all(s == 0 or n == 1 for v in self.parameters for s, n in zip(v.stride()[:-1], v.shape, strict=False))

    def __getstate__(self) -> dict[str, object]:
        """Copies leave the factorisation behind: it is soon made, and larger than the vectors."""
        return self.__dict__ | {"_factors": None}

    @property
    def factors(self) -> list[Factor]:
        """The factorisations of all covariances of the batch."""
        return [factor for _, factor in self._each()]

    @property
    def factor(self) -> Factor:
        """The factorisation of a single covariance (no batch shape)."""
        if self.batch_shape:
            raise ValueError(f"a batch of shape {tuple(self.batch_shape)} has many factors: index the parameters first")
        return self._each()[0][1]

    # --- operations on rows ---

    def matvec(self, x: Tensor) -> Tensor:
        """Sigma x for rows x (..., D)."""
        return self._filter("x", x, "matvec")

    def solve(self, x: Tensor) -> Tensor:
        """Sigma^-1 x for rows x (..., D)."""
        return self._filter("x", x, "solve")

    def whiten(self, x: Tensor) -> Tensor:
        """L^-1 x with Sigma = L L', L lower triangular in the sorted order of the coordinates: rows N(0, I)."""
        return self._filter("x", x, "whiten")

    def unwhiten(self, z: Tensor) -> Tensor:
        """L z, the exact inverse of `whiten`: standard normal rows become draws from N(0, Sigma)."""
        return self._filter("z", z, "unwhiten")

    def _filter(self, name: str, x: Tensor, mode: str) -> Tensor:
        rows = validate.check_rows(name, x, self.dim, self.diag)
        rows = rows.to(validate.compute_dtype(rows.dtype))
        ends: list[Tensor] = []

        def one(part: Tensor, vectors: Triple, factor: Factor) -> Tensor:
            out = ops.filter_op(part, *vectors, *factor.tensors, kernels.sweep_table(factor, part.dtype), mode)
            if self._validate and validate.checks_possible(out):
                # A value that is not finite spoils the state of a sweep for good: where the last one ends tells all.
                end = factor.order[0 if DOWN[SWEEPS[mode][-1]] else -1]
                ends.append(out.detach()[:, end])
            return out

        out = self._over_batch(rows, one)
        if not all(bool(torch.isfinite(end).all()) for end in ends):
            validate.require_finite(name, rows.detach())
        return out

    def _over_batch(self, rows: Tensor, one: Callable[[Tensor, Triple, Factor], Tensor]) -> Tensor:
        """Folds leading shapes to (B, D), runs ``one`` per covariance, and unfolds; ``one`` maps (B, D) -> (B, ...)."""
        each = self._each()
        if not self.batch_shape:
            flat = one(rows.reshape(-1, self.dim), *each[0])
            return flat.reshape(rows.shape[:-1] + flat.shape[1:])
        lead = validate.broadcast(rows=rows.shape[:-1], parameters=self.batch_shape)
        # To (covariances, rows of each, D): axes along which the parameters have size 1 are rows.
        batch = (1,) * (len(lead) - len(self.batch_shape)) + tuple(self.batch_shape)
        shared = [i for i, size in enumerate(batch) if size == 1]
        own = [i for i, size in enumerate(batch) if size != 1]
        axes = (*own, *shared)
        folded = rows.expand((*lead, self.dim)).permute(*axes, -1)
        outer = folded.shape[:-1]
        parts = folded.reshape(len(each), -1, self.dim).unbind(0)
        results = torch.stack([one(part, *pair) for part, pair in zip(parts, each, strict=True)])
        unfolded = results.reshape(outer + results.shape[2:])
        back = [axes.index(i) for i in range(len(axes))]
        return unfolded.permute(*back, *range(len(axes), unfolded.dim()))

    def nll(self, x: Tensor, loc: Tensor) -> Tensor:
        """-log N(x; loc, Sigma) of rows x (..., D), shape (...). loc: (D,), or (..., D) with the batch shape.

        Fused: value and gradient in x take one pass where only x or loc needs a gradient.
        """
        value = self._nll(x, loc)
        if self._validate and validate.checks_possible(value) and not bool(torch.isfinite(value.detach()).all()):
            validate.require_finite("x", x.detach())
            validate.require_finite("loc", loc.detach())
        return value

    def _nll(self, x: Tensor, loc: Tensor) -> Tensor:
        """`nll` without a look at the values."""
        rows = validate.check_rows("x", x, self.dim, self.diag)
        rows = rows.to(validate.compute_dtype(rows.dtype))
        centre = validate.check_rows("loc", loc, self.dim, self.diag).to(rows.dtype)
        if validate.broadcast(loc=centre.shape, parameters=self.diag.shape) != self.diag.shape:
            raise ValueError(
                f"loc {tuple(loc.shape)} has a larger batch shape than the parameters {tuple(self.diag.shape)}: "
                "expand the covariance first"
            )
        locs = iter(centre.expand(self.diag.shape).reshape(-1, self.dim).unbind(0))

        def one(part: Tensor, vectors: Triple, factor: Factor) -> Tensor:
            centre, table = next(locs), kernels.sweep_table(factor, part.dtype)
            in_rows = torch.is_grad_enabled() and (part.requires_grad or centre.requires_grad)
            keep = in_rows and not any(v.requires_grad for v in vectors) and not torch.compiler.is_compiling()
            return ops.nll_op(part, centre, *vectors, *factor.tensors, table, keep)[0]

        return self._over_batch(rows, one)

    # --- functions of the parameters ---

    def logdet(self) -> Tensor:
        """log det Sigma, shape (...)."""
        values = [ops.logdet_op(*v, *f.tensors) for v, f in self._each()]
        return torch.stack(values).reshape(self.batch_shape)

    def diagonal(self) -> Tensor:
        """Marginal variances d + w^2, (..., D)."""
        return self.diag + self.weight.square()

    def inverse_diagonal(self) -> Tensor:
        """diag(Sigma^-1), (..., D): one over the variance of each coordinate given all others."""
        values = [ops.inverse_diagonal_op(*v, *f.tensors) for v, f in self._each()]
        return torch.stack(values).reshape(self.diag.shape)

    def rescale(self, variance: Tensor) -> LaplaceCovariance:
        """The covariance with the same correlations and the given marginal variances (..., D), positive."""
        target = validate.check_rows("variance", variance, self.dim, self.diag)
        if self._validate and validate.checks_possible(target):
            validate.require_finite("variance", target.detach())
            validate.require_positive("variance", target.detach())
        ratio = target / self.diagonal()
        return LaplaceCovariance(ratio * self.diag, ratio.sqrt() * self.weight, self.coord, self._validate)

    def inner(self, other: LaplaceCovariance) -> Tensor:
        """Frobenius inner product <Sigma, Sigma'>, exact, in O(D log D)."""
        return inner(self, other)

    def to_dense(self, limit: int = DENSE_LIMIT) -> Tensor:
        """The (..., D, D) matrix; refused above ``limit`` coordinates, where it is rarely what is wanted."""
        if self.dim > limit:
            count = math.prod(self.batch_shape) * self.dim**2 * self.diag.element_size()
            raise ValueError(
                f"a dense covariance of {self.dim} coordinates takes {count / 2**30:.3g} GiB, above the limit of "
                f"{limit} coordinates: use matvec, solve, diagonal, or pass limit={self.dim} if you mean it"
            )
        if not self.batch_shape:
            return dense(*self.parameters)
        return torch.stack([dense(*v) for v in self._flat]).reshape(self.shape)


def _factorise(vectors: Sequence[Tensor]) -> list[Factor]:
    """The factors of diag, weight, coord (..., D)."""
    rows = [v.detach().reshape(-1, v.shape[-1]).unbind(0) for v in vectors]
    return [Factor(*ops.factor_op(*triple)) for triple in zip(*rows, strict=True)]
