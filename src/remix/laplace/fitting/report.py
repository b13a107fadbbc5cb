"""What a fit tells about itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remix.laplace.normal import LaplaceNormal

__all__ = ["Clock", "FitReport", "FitStep"]


@dataclass(frozen=True)
class FitStep:
    """A moment of a fit: ``step`` of ``steps``, 0 being the start; ``normal()`` makes the distribution reached."""

    step: int
    steps: int
    normal: Callable[[], LaplaceNormal]


@dataclass(frozen=True)
class FitReport:
    """Diagnostics of a fitted `LaplaceNormal`. Log-likelihoods are nats per dimension, means over rows.

    ``diagonal_*`` belong to the diagonal Gaussian of the same rows in the original basis, with its variances shrunk in
    the same way. Validation values come from a fit to 80 % of the rows, evaluated on the others; None where that fit
    was not needed. ``scale`` multiplies every loading: 1 is the likelihood optimum, 0 the diagonal exactly.
    ``frobenius_error`` is ||Sigma - S||_F / ||S||_F with S the sample covariance, both in the basis of the fit; None
    where the rows were read in passes, which do not give ||S||_F.
    ``samples`` is 0 for a fit to a matrix of unknown origin.
    """

    objective: str
    samples: int
    dim: int
    basis: str
    start: str
    scale: float
    train_log_likelihood: float
    diagonal_train_log_likelihood: float
    validation_log_likelihood: float | None
    diagonal_validation_log_likelihood: float | None
    frobenius_error: float | None
    parameters: int
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def train_gain(self) -> float:
        """Nats per dimension above the diagonal on the rows of the fit."""
        return self.train_log_likelihood - self.diagonal_train_log_likelihood

    @property
    def validation_gain(self) -> float | None:
        """Nats per dimension above the diagonal on rows the validation fit did not see."""
        if self.validation_log_likelihood is None or self.diagonal_validation_log_likelihood is None:
            return None
        return self.validation_log_likelihood - self.diagonal_validation_log_likelihood

    def __str__(self) -> str:
        train = f"{self.train_log_likelihood:.4f}  ({self.train_gain:+.4f} over the diagonal)"
        validation = "not needed"
        if self.validation_gain is not None:
            validation = f"{self.validation_log_likelihood:.4f}  ({self.validation_gain:+.4f} over the diagonal)"
        data = f"{self.samples} rows" if self.samples else "a matrix"
        phases = ", ".join(f"{name} {value:.2f}" for name, value in self.seconds.items())
        lines = [
            f"Laplace covariance of {self.dim} dimensions, fitted by {self.objective} to {data}",
            f"  log-likelihood / dim   train {train}",
            f"                         validation {validation}",
            f"  scale of correlations  {self.scale:g}" + ("  (the diagonal)" if self.scale == 0 else ""),
            f"  order                  {self.start}, basis: {self.basis}",
            f"  Frobenius error        {'unknown' if self.frobenius_error is None else f'{self.frobenius_error:.4f}'}",
            f"  parameters             {self.parameters}",
            f"  seconds                {sum(self.seconds.values()):.2f}  ({phases})",
        ]
        return "\n".join(lines)


class Clock:
    """Seconds per phase: calling it with a name ends the last phase and starts the next."""

    def __init__(self, progress: Callable[[str], None] | None) -> None:
        self._progress = progress
        self._seconds: dict[str, float] = {}
        self._phase, self._since = "", time.perf_counter()

    def __call__(self, phase: str) -> None:
        """Start ``phase``."""
        self.done()
        self._phase = phase
        if self._progress is not None:
            self._progress(phase)

    def done(self) -> dict[str, float]:
        """End the present phase; all phases so far, in seconds."""
        now = time.perf_counter()
        if self._phase:
            self._seconds[self._phase] = self._seconds.get(self._phase, 0.0) + now - self._since
        self._phase, self._since = "", now
        return self._seconds
