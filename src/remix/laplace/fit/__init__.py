"""Estimating a Laplace covariance: from rows, or from a covariance matrix."""

from remix.laplace.fit.api import fit, fit_covariance
from remix.laplace.fit.frobenius import FrobeniusRecipe, frobenius_terms
from remix.laplace.fit.report import FitReport

__all__ = ["FitReport", "FrobeniusRecipe", "fit", "fit_covariance", "frobenius_terms"]
