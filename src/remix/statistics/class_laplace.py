"""Correlations within classes as Laplace covariances: two numbers per feature in place of a row of a matrix."""

from __future__ import annotations

import torch
from torch import Tensor

from remix.laplace import fit_covariance

__all__ = ["chain_correlations", "check_chains", "fit_chains"]

_JITTER = 1e-4  # added to a correlation of 1: matrices of few samples are singular


def fit_chains(correlation: Tensor, counts: tuple[int, ...]) -> Tensor:
    """Loadings r and coordinates a (K, 2, D) of correlations (K, D, D) that were measured on so many samples."""
    found = []
    for matrix, count in zip(correlation.double().cpu(), counts, strict=True):
        jitter = _JITTER * torch.eye(len(matrix), dtype=matrix.dtype)
        fitted = fit_covariance(matrix + jitter, samples=count).covariance.tensors()
        loading = fitted["weight"] / (fitted["diag"] + fitted["weight"].square()).sqrt()
        found.append(torch.stack([loading, fitted["coord"] - fitted["coord"].min()]))
    return torch.stack(found).detach().to(correlation)


def chain_correlations(chains: Tensor) -> Tensor:
    """(K, D, D): r_i r_j exp(-|a_i - a_j|), and 1 on the diagonal."""
    loading, coordinate = chains.double().unbind(1)
    away = (coordinate[:, :, None] - coordinate[:, None, :]).abs()
    found = loading[:, :, None] * loading[:, None, :] * (-away).exp()
    found.diagonal(dim1=1, dim2=2).fill_(1)
    return found.to(chains)


def check_chains(chains: Tensor, classes: int, dim: int) -> None:
    """Raise ValueError for what are no loadings and coordinates."""
    if not isinstance(chains, Tensor) or chains.shape != (classes, 2, dim) or not chains.is_floating_point():
        raise ValueError(f"chains must be a floating-point tensor ({classes}, 2, {dim})")
    if not bool(torch.isfinite(chains).all()) or bool((chains[:, 0].abs() > 1 + 1e-3).any()):
        raise ValueError("chains must be finite, with loadings from -1 to 1")
