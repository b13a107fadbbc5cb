"""A Gaussian with a full covariance in three vectors.

Sigma = diag(d) + diag(w) K(a) diag(w), K_ij = exp(-|a_i - a_j|): exact likelihood, solves, draws and gradients in
linear time after one sort, for up to a million dimensions.
"""

from remix.laplace import kl  # noqa: F401 (registers the divergences with torch.distributions)
from remix.laplace.basis import Dct2
from remix.laplace.covariance import LaplaceCovariance
from remix.laplace.fitting import FitReport, FitStep, FrobeniusRecipe, fit, fit_covariance
from remix.laplace.learnable import LearnableNormal
from remix.laplace.merging import merge
from remix.laplace.normal import LaplaceNormal

__all__ = [
    "Dct2",
    "FitReport",
    "FitStep",
    "FrobeniusRecipe",
    "LaplaceCovariance",
    "LaplaceNormal",
    "LearnableNormal",
    "fit",
    "fit_covariance",
    "merge",
]
