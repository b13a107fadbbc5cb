"""Estimating a Laplace covariance: from rows, or from a covariance matrix."""

from remix.laplace.fitting.api import fit
from remix.laplace.fitting.frobenius import FrobeniusRecipe, frobenius_terms
from remix.laplace.fitting.matrix import fit_covariance
from remix.laplace.fitting.report import FitReport, FitStep

__all__ = ["FitReport", "FitStep", "FrobeniusRecipe", "fit", "fit_covariance", "frobenius_terms"]
