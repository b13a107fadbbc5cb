"""How features moved while the network learned: maps from those before to those after."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

__all__ = ["MLP_SHARE", "Drift", "MlpDrift", "fit_drift", "fit_mlp_drift", "fit_shift", "shifted_means"]

_HIDDEN, _BATCH, _RATE = 256, 256, 1e-3  # of the MLP and its training, by Adam
MLP_SHARE = 10  # images per feature that an MLP needs: of fewer it would learn the images


class Drift(NamedTuple):
    """Features x (N, D) before are about ``x @ matrix + shift`` after.

    Attributes:
        matrix: (D, D).
        shift: (D,).
        residual: (D, D), covariance of what features differ from that; None if it is not known.

    """

    matrix: Tensor
    shift: Tensor
    residual: Tensor | None = None

    def __call__(self, features: Tensor) -> Tensor:
        """Features (N, D) where they are expected now."""
        return features @ self.matrix.to(features) + self.shift.to(features)


def fit_drift(before: Tensor, after: Tensor, ridge: float = 1e-4) -> Drift:
    """The affine map that comes nearest to the drift of features of the same images, in least squares.

    Args:
        before: features (N, D) of the network as it was.
        after: features (N, D) as it is.
        ridge: how much a direction that varies little is held to staying as it was: a multiple of the mean variance.

    Raises:
        ValueError: for shapes that differ, no rows, or numbers that are not finite.

    """
    x, y = _checked(before, after)
    middle, target = x.mean(0), y.mean(0)
    centred = x - middle
    scatter = centred.T @ centred
    identity = torch.eye(len(scatter), dtype=x.dtype, device=x.device)
    hold = (ridge * scatter.trace() / len(scatter)).clamp_min(1e-12) * identity
    # Of (y - x), so that what is held is the identity.
    moved = torch.linalg.solve(scatter + hold, centred.T @ ((y - target) - centred))
    matrix = identity + moved
    left = (y - target) - centred @ matrix
    return Drift(matrix.to(before), (target - middle @ matrix).to(before), (left.T @ left / len(left)).to(before))


def fit_shift(before: Tensor, after: Tensor) -> Drift:
    """All features moved alike: by the mean difference. Arguments and errors as of `fit_drift`."""
    x, y = _checked(before, after)
    identity = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    return Drift(identity.to(before), (y - x).mean(0).to(before))


def shifted_means(means: Tensor, before: Tensor, after: Tensor, metric: Tensor, width: float = 0.2) -> Tensor:
    """Means (K, D), each moved as the features near to it moved (EFC).

    Distances in a metric of all features from all means are scaled to 0..1 together; a feature at the distance d weighs
    exp(-d / (2 width^2)).

    Args:
        means: of the classes.
        before: features (N, D) of the network as it was.
        after: features (N, D) as it is.
        metric: (D, D).
        width: of what is near.

    Raises:
        ValueError: as `fit_drift`.

    """
    x, y = _checked(before, after)
    nearness = torch.stack([-(((x - mean) @ metric.double()) * (x - mean)).sum(1) for mean in means.double()])
    least, most = nearness.aminmax()
    weights = ((nearness - least) / (most - least).clamp_min(1e-12) / (2 * width**2)).softmax(1)
    return (means.double() + weights @ (y - x)).to(means)


class MlpDrift(nn.Module):
    """An affine drift and what a small network adds to it, nothing at first.

    Args:
        drift: the affine part, which stays.
        centre: (D,) and
        scale: (D,), of features before, which the network sees standardised.
        unit: (D,), what the network adds is in these units.

    Attributes:
        residual: (D, D), covariance of what features differ from what is expected.

    """

    residual: Tensor

    def __init__(self, drift: Drift, centre: Tensor, scale: Tensor, unit: Tensor, generator: torch.Generator) -> None:
        super().__init__()
        self.drift, self._centre, self._scale, self._unit = drift, centre, scale, unit
        first, last = nn.Linear(len(centre), _HIDDEN), nn.Linear(_HIDDEN, len(centre))
        nn.init.normal_(first.weight, std=len(centre) ** -0.5, generator=generator)
        for tensor in (first.bias, last.weight, last.bias):
            nn.init.zeros_(tensor)
        self.net = nn.Sequential(first, nn.GELU(), last).to(centre)

    def forward(self, features: Tensor) -> Tensor:
        """Features (N, D) where they are expected now."""
        added: Tensor = self.net((features - self._centre) / self._scale)
        return self.drift(features) + self._unit * added


def fit_mlp_drift(before: Tensor, after: Tensor, generator: torch.Generator, epochs: int = 40) -> Drift | MlpDrift:
    """The affine drift and a network that learns what that leaves; the affine one alone of fewer than 10 D images.

    Args:
        before: features (N, D) of the network as it was.
        after: features (N, D) as it is.
        generator: of weights and batches, on the processor.
        epochs: over the images.

    Raises:
        ValueError: as `fit_drift`.

    """
    drift = fit_drift(before, after)
    if len(before) < MLP_SHARE * before.shape[1]:
        return drift
    left = after - drift(before)
    scale, unit = before.std(0).clamp_min(1e-6), left.std(0).clamp_min(1e-6)
    found = MlpDrift(drift, before.mean(0), scale, unit, generator)
    optimiser = torch.optim.Adam(found.net.parameters(), _RATE, weight_decay=1e-4)
    rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    with torch.enable_grad():
        for _ in range(epochs):
            for rows in torch.randperm(len(before), generator=generator).to(before.device).split(_BATCH):
                optimiser.zero_grad(set_to_none=True)
                mse_loss((found(before[rows]) - after[rows]) / unit, torch.zeros_like(left[rows])).backward()
                optimiser.step()
            rates.step()
    left = (after - found.requires_grad_(False)(before)).double()
    found.residual = (left.T @ left / len(left)).to(before)
    return found


def _checked(before: Tensor, after: Tensor) -> tuple[Tensor, Tensor]:
    if before.dim() != 2 or before.shape != after.shape or not len(before):
        raise ValueError(
            f"features before and after must be (N, D), got {tuple(before.shape)} and {tuple(after.shape)}"
        )
    x, y = before.double(), after.double()
    if not bool(torch.isfinite(x).all() and torch.isfinite(y).all()):
        raise ValueError("features before and after must be finite")
    return x, y
