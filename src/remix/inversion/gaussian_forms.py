"""Distances of a batch's moments from a Gaussian, all per coordinate."""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor

__all__ = ["FORMS", "Direction", "Form", "diagonal_kl", "form_of_quadratic", "gaussian_kl"]

Form = Literal["nll", "typical", "kl"]
Direction = Literal["batch-to-model", "model-to-batch"]
FORMS: tuple[Form, ...] = get_args(Form)


def diagonal_kl(
    shift: Tensor, batch: Tensor, model: Tensor, direction: Direction = "batch-to-model", eps: float = 1e-8
) -> Tensor:
    """By coordinate, the KL divergence between two Gaussians with independent coordinates, (D,).

    Args:
        shift: mean of the batch minus mean of the model, (D,).
        batch: variances of the batch, (D,); ``eps`` is added to them.
        model: variances of the model, (D,), positive.
        direction: KL(batch || model), as PMI and REMIX use it, or KL(model || batch), as ABD and R-DFCIL do.
        eps: keeps the logarithm of a batch without spread finite.

    """
    batch = batch + eps
    ratio = batch / model
    if direction == "batch-to-model":
        return 0.5 * (ratio - 1 - ratio.log() + shift.square() / model)
    return 0.5 * (1 / ratio - 1 + ratio.log() + shift.square() / batch)


def form_of_quadratic(quadratic: Tensor, logdet: Tensor, dim: int | Tensor, form: Form) -> Tensor:
    """A penalty from the mean Mahalanobis form q of rows with ``dim`` coordinates, of one layer or of many.

    ``nll``: (dim log 2 pi + log det Sigma + q) / (2 dim), the average negative log-likelihood per coordinate; it is
    lowered by collapsing to the mean. ``typical``: (q / dim - 1)^2, least where q has the value it has for real data;
    beyond q = 2 dim it goes on as a straight line, with value and slope of the square there. Noise may begin at a
    hundred times the natural value, and Adam would remember the slope of the square there for the rest of a run: its
    steps become tiny. (On digits this raised a second network's accuracy on the images from 59 to 87 %.)
    """
    if form == "nll":
        return 0.5 * (math.log(2 * math.pi) + (logdet + quadratic) / dim)
    if form == "typical":
        excess = quadratic / dim - 1
        return torch.where(excess > 1, 2 * excess - 1, excess.square())
    raise ValueError(f"form {form!r} is not one of the quadratic form")


def gaussian_kl(quadratic: Tensor, logdet: Tensor, covariance: Tensor) -> Tensor:
    """KL(N(m, S) || N(mu, Sigma)) per coordinate, from q = tr(Sigma^-1 (S + (m - mu)(m - mu)')), log det Sigma and S.

    S (D, D) is made definite by adding 1e-6 of its mean variance to its diagonal.
    """
    dim = len(covariance)
    ridge = 1e-6 * covariance.diagonal().mean().detach() + torch.finfo(covariance.dtype).tiny
    # Without its own check of errors: what is not finite is looked for, and named, by the loop.
    factor, _ = torch.linalg.cholesky_ex(covariance + torch.diag(ridge.expand(dim)))
    kl: Tensor = 0.5 * (quadratic - dim + logdet - 2 * factor.diagonal().log().sum()) / dim
    return kl
