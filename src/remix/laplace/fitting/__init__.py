"""Estimating a Laplace covariance: from rows, or from a covariance matrix."""

from remix.laplace.fitting.api import fit, fit_covariance
from remix.laplace.fitting.frobenius import FrobeniusRecipe
from remix.laplace.fitting.report import FitReport, FitStep

__all__ = ["FitReport", "FitStep", "FrobeniusRecipe", "fit", "fit_covariance"]
