"""Who is told what while a learner works."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from remix.inversion import Progress

__all__ = ["EpochReport", "Monitor"]


@dataclass(frozen=True)
class EpochReport:
    """One epoch of a stage: its number from 0, of how many, its rate, and the mean of each weighted term."""

    stage: str
    epoch: int
    epochs: int
    rate: float
    terms: Mapping[str, float]
    seconds: float


class Monitor:
    """Told of everything that happens; this one keeps silent. Methods may be overridden one by one."""

    def begin_task(self, index: int, classes: Sequence[str], phases: Sequence[str]) -> None:
        """A task begins (or goes on): its number from 0, its new classes, the names of what will be done."""

    def begin_phase(self, number: int, name: str) -> None:
        """A phase of the task begins."""

    def inversion(self, progress: Progress) -> None:
        """A step of inversion was made."""

    def batch(self, epoch: int, done: int, count: int) -> None:
        """``done`` of about ``count`` batches of an epoch, its number from 0, were trained on."""

    def epoch(self, report: EpochReport) -> None:
        """An epoch came to its end."""
