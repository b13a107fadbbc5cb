"""Log-likelihood of features over the steps of a fit: the diagonal, the Laplace covariance, the published recipe."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Independent, Normal

from remix.laplace import FitStep, FrobeniusRecipe, LaplaceNormal, fit
from remix.reproduce.likelihood_features import Features
from remix.support.machine import forget_peak, peak_bytes

__all__ = ["LayerData", "diagonals", "laplace_curve", "published_curve"]

SMALLEST_VARIANCE = 1e-5  # of the paper's diagonal
_BLOCK = 1 << 23  # numbers evaluated at a time


@dataclass(frozen=True)
class LayerData:
    """Rows to fit and held-out rows, (N, D) each, and the (channels, height, width) of a row if it is a map."""

    name: str
    train: Features
    held_out: Features
    layout: tuple[int, int, int] | None = None

    @property
    def dim(self) -> int:
        """D."""
        return int(self.train.shape[1])


Curve = dict[str, Any]
"""Plain JSON: ``model``, its ``steps``, mean log-likelihoods in nats per image after each (``train`` of the rows of the
fit, ``held_out``), and ``seconds`` and ``peak`` (bytes of the process) of the fit with its evaluations.
"""


def _mean_log_likelihood(rows: Features, log_prob: Callable[[Tensor], Tensor]) -> float:
    """The mean of ``log_prob`` over rows (N, D), a few of them in memory at a time."""
    step = max(1, _BLOCK // rows.shape[1])
    total = 0.0
    with torch.no_grad():
        for start in range(0, len(rows), step):
            block = torch.from_numpy(rows[start : start + step].astype("float32"))
            total += float(log_prob(block).double().sum())
    return total / len(rows)


class _Watch:
    """Evaluates on both sets of rows; a clock and the peak of memory from its beginning."""

    def __init__(self, data: LayerData) -> None:
        self._data, self._began = data, time.perf_counter()
        forget_peak()
        self.steps: list[int] = []
        self.train: list[float] = []
        self.held_out: list[float] = []

    def see(self, step: int, log_prob: Callable[[Tensor], Tensor]) -> None:
        self.steps.append(step)
        self.train.append(_mean_log_likelihood(self._data.train, log_prob))
        self.held_out.append(_mean_log_likelihood(self._data.held_out, log_prob))

    def curve(self, model: str) -> Curve:
        seconds = time.perf_counter() - self._began
        values = {"steps": self.steps, "train": self.train, "held_out": self.held_out}
        return {"model": model, **values, "seconds": seconds, "peak": peak_bytes()}


def diagonals(data: LayerData, shrunk: Tensor) -> list[Curve]:
    """The paper's diagonal Gaussian (maximum likelihood, variances of 1e-5 at least), and that of ``shrunk`` variances.

    Args:
        data: the rows.
        shrunk: variances (D,) of a Laplace fit without a change of basis.

    """
    mean, square = (torch.zeros(data.dim, dtype=torch.float64) for _ in range(2))
    step = max(1, _BLOCK // data.dim)
    for start in range(0, len(data.train), step):
        mean += torch.from_numpy(data.train[start : start + step].astype("float32")).double().sum(0)
    mean /= len(data.train)
    for start in range(0, len(data.train), step):
        block = torch.from_numpy(data.train[start : start + step].astype("float32"))
        square += (block - mean.float()).square().double().sum(0)
    variance = (square / len(data.train)).clamp_min(SMALLEST_VARIANCE)
    curves = []
    for name, values in (("diagonal", variance), ("diagonal, shrunk variances", shrunk.double())):
        watch = _Watch(data)
        gaussian = Independent(Normal(mean.float(), values.sqrt().float(), validate_args=False), 1, validate_args=False)
        watch.see(0, gaussian.log_prob)
        curves.append(watch.curve(name))
    return curves


def laplace_curve(
    data: LayerData, transform: str | None, memory: int, progress: Callable[[str], None]
) -> tuple[Curve, LaplaceNormal]:
    """Our fit, evaluated at its start and after every step."""
    watch = _Watch(data)
    name = "Laplace + DCT" if transform else "Laplace"
    normal = fit(
        data.train,
        layout=data.layout,
        transform=transform,
        memory=memory,
        progress=lambda phase: progress(f"{name}: {phase}"),
        trace=lambda step: watch.see(step.step, step.normal().log_prob) if _shown(step) else None,
    )
    return watch.curve(name), normal


def _shown(step: FitStep) -> bool:
    """All of few steps; of many (vectors of moderate length take hundreds) the first and every twentieth."""
    return step.steps <= 60 or step.step < 10 or step.step % 20 == 0 or step.step == step.steps


def published_curve(
    data: LayerData,
    recipe: FrobeniusRecipe,
    epoch: int,
    every: int,
    memory: int,
    progress: Callable[[str], None],
) -> Curve:
    """The paper's fit, evaluated at its start, after the first epoch of ``epoch`` steps and every ``every`` epochs."""
    watch = _Watch(data)

    def see(step: FitStep) -> None:
        if step.step in (0, epoch, step.steps) or step.step % (epoch * every) == 0:
            progress(f"published recipe: step {step.step} of {step.steps}")
            watch.see(step.step, step.normal().log_prob)

    fit(data.train, "frobenius", recipe=recipe, memory=memory, trace=see)
    return watch.curve("published recipe")
