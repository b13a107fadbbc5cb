"""Care of measured variances and covariances: channels that never vary, covariances of few samples."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["is_covariance", "positive_covariance", "positive_variance", "shrunk_covariance"]

# A variance this small beside the layer's mean variance is what rounding leaves of a constant.
_CONSTANT = 1e-12
_ROUNDING = 1e-3  # of a correlation


def positive_variance(variance: Tensor, images: int) -> Tensor:
    """Variances (D,) in which a channel that never varied is given a small one.

    It counts as if in one more image it had varied like an average channel: mean variance / (images + 1). All others
    are left exactly as they are.

    Raises:
        ValueError: if no channel varies.

    """
    average = variance.mean()
    if not bool(average > 0):
        raise ValueError("nothing varies, so there is no variance to remember: measure at least two different images")
    return torch.where(variance <= _CONSTANT * average, average / (images + 1), variance)


def positive_covariance(covariance: Tensor, variance: Tensor) -> Tensor:
    """The covariance (D, D) with the diagonal ``variance`` of `positive_variance`; constants are uncorrelated."""
    changed = variance != covariance.diagonal()
    kept = covariance.masked_fill(changed[:, None] | changed, 0.0)
    return kept + torch.diag(torch.where(changed, variance, 0.0))


def is_covariance(matrix: Tensor) -> bool:
    """Whether a matrix (D, D) has positive variances and correlations from -1 to 1, the same both ways."""
    variance = matrix.diagonal().double()
    if not bool((variance > 0).all()):
        return False
    scale = variance.rsqrt()
    correlation = matrix * scale[:, None] * scale
    same = torch.allclose(correlation, correlation.mT, atol=_ROUNDING, rtol=0)
    return same and bool((correlation.abs() <= 1 + _ROUNDING).all())


def shrunk_covariance(covariance: Tensor, samples: int) -> Tensor:
    """The covariance (D, D) with its correlations multiplied by 1 - rho, its diagonal kept, positive definite.

    rho is the oracle approximating shrinkage of Chen, Wiesel, Eldar and Hero (2010) of the correlation matrix, computed
    in float64. Positions of one image are not independent, but counting each as a sample gave the best held-out
    likelihood on channels of a CIFAR ResNet from 5 images up; counting only images shrinks far too much.
    """
    matrix = covariance.double()
    scale = matrix.diagonal().sqrt()
    correlation = matrix / (scale[:, None] * scale)
    dim = len(matrix)
    square = float(correlation.square().sum())
    slack = (samples + 1 - 2 / dim) * (square - dim)
    needed = (1 - 2 / dim) * square + dim**2
    # Never 0: a covariance of rank below D stays invertible in float32.
    rho = 1.0 if slack <= needed else max(needed / slack, 1e-4)
    shrunk = (1 - rho) * matrix + rho * torch.diag(matrix.diagonal())
    return shrunk.to(covariance.dtype)
