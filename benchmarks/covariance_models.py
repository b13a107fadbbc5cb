"""Other Gaussians of the same rows, for comparison: what a user would otherwise take.

All of them share the mean and the marginal variances they are given and model the correlations of the standardised
rows u (N, D). Each returns the held-out log-likelihood in nats per dimension, and the number of parameters.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

LOG_2PI = math.log(2 * math.pi)


def standardise(rows: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    return (rows - mean) / variance.sqrt()


def per_dimension(quadratic: Tensor, logdet: Tensor | float, log_variance: Tensor) -> float:
    """Mean log-likelihood per dimension of rows with quadratic forms (N,) and log det of the correlation."""
    size = log_variance.numel()
    return float(-0.5 * (quadratic.mean() + logdet + log_variance.sum()) / size - 0.5 * LOG_2PI)


def diagonal(held_out: Tensor, log_variance: Tensor) -> float:
    return per_dimension(held_out.square().sum(1), 0.0, log_variance)


def low_rank(held_out: Tensor, log_variance: Tensor, noise: Tensor, loadings: Tensor) -> float:
    """diag(noise) + loadings loadings', loadings (D, k), through the k x k capacitance."""
    scaled = loadings / noise[:, None]
    capacitance = torch.eye(loadings.shape[1], dtype=loadings.dtype) + loadings.T @ scaled
    projected = held_out @ scaled
    solved = torch.linalg.solve(capacitance, projected.T).T
    quadratic = (held_out.square() / noise).sum(1) - (projected * solved).sum(1)
    return per_dimension(quadratic, noise.log().sum() + torch.logdet(capacitance), log_variance)


def factor_analysis(u: Tensor, factors: int, steps: int = 200) -> tuple[Tensor, Tensor]:
    """Maximum likelihood by EM from the leading singular vectors: (noise (D,), loadings (D, k)).

    On one thread where the matrices are too thin to share: waking a second one costs more than it does.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if u.numel() < 10_000_000 else threads)
    try:
        return _expectation_maximisation(u, factors, steps)
    finally:
        torch.set_num_threads(threads)


def _expectation_maximisation(u: Tensor, factors: int, steps: int) -> tuple[Tensor, Tensor]:
    count = u.shape[0]
    _, values, vectors = torch.svd_lowrank(u, q=min(factors + 6, *u.shape), niter=4)
    loadings = vectors[:, :factors] * (values[:factors] / math.sqrt(count)) * 0.9
    second = u.square().mean(0)
    noise = (second - loadings.square().sum(1)).clamp_min(1e-3)
    for _ in range(steps):
        scaled = loadings / noise[:, None]
        posterior = torch.linalg.inv(torch.eye(factors, dtype=u.dtype) + loadings.T @ scaled)
        scores = u @ scaled @ posterior
        cross = u.T @ scores / count
        loadings = cross @ torch.linalg.inv(posterior + scores.T @ scores / count)
        noise = (second - (loadings * cross).sum(1)).clamp_min(1e-3)
    return noise, loadings


def ledoit_wolf(u: Tensor, held_out: Tensor, log_variance: Tensor) -> float:
    """Dense correlation shrunk to the identity by Ledoit and Wolf's rule, through N x N Gram matrices."""
    count, size = u.shape
    gram = u @ u.T
    mean = float(gram.diagonal().sum()) / count / size
    spread = float(gram.square().sum()) / count**2 / size - mean**2
    noise = (float(gram.diagonal().square().sum()) / count - float(gram.square().sum()) / count**2) / count / size
    shrink = min(1.0, max(noise, 1e-12) / max(spread, 1e-12))
    weight, ridge = (1 - shrink) / count, max(shrink * mean, 1e-6)
    capacitance = torch.eye(count, dtype=u.dtype) + gram * (weight / ridge)
    projected = held_out @ u.T
    solved = torch.linalg.solve(capacitance, projected.T).T
    quadratic = held_out.square().sum(1) / ridge - (projected * solved).sum(1) * weight / ridge**2
    return per_dimension(quadratic, size * math.log(ridge) + torch.logdet(capacitance), log_variance)
