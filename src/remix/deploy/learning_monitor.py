"""How far a step of learning is, for a person."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.console import Console

from remix.deploy.dream_plan import DreamPlan
from remix.inversion import Progress
from remix.learning import EpochReport, Monitor
from remix.support.display import Display

__all__ = ["LearningMonitor", "dream_bar", "learning_bar"]

_DREAMING = 0.4  # of a later step, roughly
_MEASURING = 0.05
_PASSES = 0.85  # of a step that trains nothing: solving a head takes 5 to 25 percent of the time


@contextmanager
def learning_bar(dreams: bool) -> Iterator[Monitor]:
    """A monitor that shows how far a step is; see `LearningMonitor`."""
    with Display(Console()) as display:
        yield LearningMonitor(display, dreams)


@contextmanager
def dream_bar(plan: DreamPlan) -> Iterator[Callable[[Progress], None]]:
    """Shows how far dreams are."""
    with Display(Console()) as display:

        def show(progress: Progress) -> None:
            step = progress.step
            what = f"dreaming, {progress.phase}, step {step.step + 1} of {step.steps}"
            display.show(what, plan.done(progress), {"loss": step.loss})

        yield show


class LearningMonitor(Monitor):
    """Shows phases, epochs and steps of dreams.

    Args:
        display: where.
        dreams: whether old classes are dreamed first.

    """

    def __init__(self, display: Display, dreams: bool) -> None:
        self.display = display
        self._first = _DREAMING if dreams else 0.0
        self._stages: Sequence[str] = ()
        self._phase, self._number = "", 0
        self._epoch, self._epochs = 0, 1
        self._terms: Mapping[str, float] = {}

    def begin_task(self, index: int, classes: Sequence[str], phases: Sequence[str]) -> None:
        """Note the stages."""
        self._stages = phases

    def begin_phase(self, number: int, name: str) -> None:
        """Say so."""
        self._phase, self._number, self._epoch, self._terms = name, number, 0, {}
        if name == "remember":
            what = "measuring statistics" if self._stages else "sending the images through the network"
            self.display.show(what, self._before_measuring(), {})
        elif name == "dream" and self._first:
            self.display.show("dreaming of the old classes", 0.0, {})
        elif number > 1:  # before its first batch, images go through the frozen blocks
            self._show(0.0)

    def inversion(self, progress: Progress) -> None:
        """A step of a dream."""
        share = (progress.number + (progress.step.step + 1) / progress.step.steps) / progress.phases
        what = f"dreaming of the old classes, {progress.phase}, step {progress.step.step + 1} of {progress.step.steps}"
        self.display.show(what, self._first * share, {"loss": progress.step.loss})

    def batch(self, epoch: int, done: int, count: int) -> None:
        """A part of an epoch."""
        self._epoch = epoch
        if self._phase == "remember":
            before = self._before_measuring()
            share = before + (1 - before) * (1.0 if self._stages else _PASSES) * done / max(count, 1)
            solving = done >= count and not self._stages
            what = "solving the head" if solving else f"sending the images through the network, {done} of {count}"
            self.display.show(what, share, {})
            return
        self._show(done / max(count, 1))

    def epoch(self, report: EpochReport) -> None:
        """The next epoch."""
        self._epoch, self._epochs, self._terms = report.epoch + 1, report.epochs, report.terms
        self._show(0.0)

    def _before_measuring(self) -> float:
        """Without a stage, measuring is all there is to do."""
        return 1 - _MEASURING if self._stages else 0.0

    def _show(self, part: float) -> None:
        stages = max(len(self._stages), 1)
        inside = min((self._epoch + part) / max(self._epochs, 1), 1.0) if self._epochs > 1 else 0.0
        done = self._first + (1 - self._first - _MEASURING) * (self._number - 2 + inside) / stages
        self.display.show(f"learning, {self._phase}, epoch {self._epoch + 1}", max(0.0, min(done, 1.0)), self._terms)
