"""A Laplace normal that is trained: an `nn.Module` for any optimiser of torch."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from remix.laplace.covariance import LaplaceCovariance
from remix.laplace.normal import LaplaceNormal
from remix.laplace.portable import basis_of, basis_state

__all__ = ["LearnableNormal"]


class LearnableNormal(nn.Module):
    """Every call gives the present `LaplaceNormal`, differentiable in the parameters of this module.

    The parameters are ``loc``, ``raw_diag``, ``weight`` and ``coord``. Any real numbers will do: diag is
    softplus(raw_diag), which is positive.

    Args:
        start: a `LaplaceNormal`, best a fitted one, because gradients do not find the order of the coordinates; or a
            number of dimensions: then mean 0, variances 0.7 and weak correlations, the published start of a fit.
    """

    def __init__(self, start: LaplaceNormal | int) -> None:
        super().__init__()
        if not isinstance(start, LaplaceNormal | int):
            raise TypeError(f"start must be a LaplaceNormal or a number of dimensions, got {type(start).__name__}")
        normal = start if isinstance(start, LaplaceNormal) else _published_start(start)
        self.basis = normal.basis
        vectors = (normal.loc, _inverse_softplus(normal.diag), normal.weight, normal.coord)
        self.loc, self.raw_diag, self.weight, self.coord = (nn.Parameter(v.detach().clone()) for v in vectors)

    def forward(self) -> LaplaceNormal:
        """The present normal: train on its ``log_prob``."""
        # The softplus of a very negative number is 0 in floating point.
        diag = softplus(self.raw_diag, threshold=50.0) + torch.finfo(self.raw_diag.dtype).tiny
        return LaplaceNormal(self.loc, LaplaceCovariance(diag, self.weight, self.coord), self.basis)

    def normal(self) -> LaplaceNormal:
        """The present normal without gradients, with vectors of its own: training goes on without it."""
        return LaplaceNormal.from_state_dict(self().state_dict())

    def get_extra_state(self) -> Tensor:
        """The layout of the DCT, or no numbers: part of `state_dict`."""
        return basis_state(self.basis).get("dct", torch.zeros(0, dtype=torch.int64))

    def set_extra_state(self, state: Tensor) -> None:
        """What `get_extra_state` gave."""
        self.basis = basis_of({"dct": state} if state.numel() else {})

    def extra_repr(self) -> str:
        """What ``print`` shows."""
        dim = f"dim={self.loc.shape[-1]}"
        return dim if self.basis is None else f"{dim}, basis={self.basis}"


def _published_start(dim: int) -> LaplaceNormal:
    covariance = LaplaceCovariance(softplus(torch.zeros(dim)), torch.full((dim,), 0.1), torch.linspace(-1, 1, dim))
    return LaplaceNormal(torch.zeros(dim), covariance)


def _inverse_softplus(value: Tensor) -> Tensor:
    return value + torch.log(-torch.expm1(-value))
