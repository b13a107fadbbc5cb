"""Draws from a Laplace covariance: noise and unwhitening in one native pass, or torch's generator and a sweep."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from remix.laplace import kernels
from remix.laplace.covariance import LaplaceCovariance
from remix.laplace.factor import sweeps_of
from remix.laplace.filters import UNWHITEN
from remix.laplace.noise import standard_normal
from remix.laplace.validate import compute_dtype

__all__ = ["draw"]


def draw(
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
        sweep = None if tracked else sweeps_of(factor.table(dtype), UNWHITEN)[0]
        parts.append(library.sample_rows(seed, math.prod(sample_shape), factor.rank, dtype, sweep, centre))
    rows = (torch.stack(parts, 1) if len(parts) > 1 else parts[0]).reshape(shape)
    if not tracked:
        return rows
    rows = covariance.unwhiten(rows)
    return rows if loc is None else rows + loc
