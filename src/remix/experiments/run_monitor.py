"""What is shown and written down while a run goes on."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from remix.experiments.events import Event, MetricsFile
from remix.experiments.plan import RunPlan
from remix.inversion import Progress
from remix.learning.trainer import EpochReport, Monitor
from remix.support.clock import RunClock
from remix.support.display import Display, duration
from remix.support.files import open_appending

__all__ = ["RunMonitor"]

_POINTS = 12  # steps of every phase of an inversion that are written down


class RunMonitor(Monitor):
    """Shows a run in the terminal, writes metrics and log, keeps the time.

    Args:
        plan: what will be done.
        display: where to show it.
        log: a text file; None for nowhere.
        metrics: the file of events.
        clock: for time and memory.
        on_inversion: called after every step of an inversion with its progress and when it began.
        test: asked after every epoch for the accuracy on all classes so far, in percent; None if it is not tested.
        there: events of an earlier process; a phase or a step of an inversion among them is not written down again.

    """

    def __init__(
        self,
        plan: RunPlan,
        display: Display,
        log: Path | None,
        metrics: MetricsFile,
        clock: RunClock,
        on_inversion: Callable[[Progress, float], None],
        test: Callable[[EpochReport], float | None] = lambda report: None,
        there: Sequence[Event] = (),
    ) -> None:
        self.plan, self.metrics, self.clock = plan, metrics, clock
        self.display = display
        self._log = open(os.devnull, "ab") if log is None else open_appending(log)  # noqa: SIM115
        self._there = {_identity(**event) for event in there}
        self._on_inversion, self._test = on_inversion, test
        self.task = 0
        self.phase = ""
        self.accuracy = ""
        self._phase_began = time.monotonic()
        self._processor_began = time.process_time()
        self._before = 0  # work of everything before the present phase
        self._epochs = 1
        self._terms: Mapping[str, float] = {}

    # --- the run ---

    def say(self, text: str) -> None:
        """A line for the terminal and the log."""
        self.display.say(text)
        self._log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n".encode())
        self._log.flush()

    def start_task(self, index: int, goes_on: bool) -> None:
        """A task begins, or goes on after an interruption."""
        self.task = index
        plan = self.plan.tasks[index]
        pseudo = f", {plan.pseudo:,} pseudo-samples" if plan.pseudo else ""
        verb = "goes on" if goes_on else f"of {len(self.plan.tasks)}"
        self.say(f"task {index + 1} {verb}: {len(plan.classes)} new classes, {plan.train:,} images{pseudo}")

    def result(self, row: Sequence[float], mean: float, micro: float) -> None:
        """A task was learned: accuracies of all tasks so far."""
        self.accuracy = f"{mean:.1f} %"
        shown = "  ".join(f"{accuracy:.1f}" for accuracy in row)
        self.say(f"task {self.task + 1} learned: accuracy {mean:.1f} % (by task: {shown})")
        self.metrics.write(
            "task", task=self.task + 1, accuracies=list(row), accuracy_macro=mean, accuracy_micro=micro,
            seconds=self.clock.seconds, peak_bytes=self.clock.peak,
        )  # fmt: skip

    def oracle(self, micro: float) -> None:
        """The share of tested images that a head on real features of all classes gets right."""
        self.say(f"  a head on real features of old classes would have {micro:.1f} %")
        self.metrics.write("oracle", task=self.task + 1, accuracy_micro=micro)

    def likelihood(self, layers: Sequence[Mapping[str, Any]]) -> None:
        """How likely the activations of every layer are under what was remembered of them."""
        if layers:
            self.metrics.write("likelihood", task=self.task + 1, layers=list(layers))

    def close(self) -> None:
        """The files are done with."""
        self.metrics.close()
        self._log.close()

    # --- what the engine tells ---

    def begin_phase(self, number: int, name: str) -> None:
        """Note the time, and how much was done before."""
        self.end_phase()
        self.phase, self._phase_began, self._processor_began = name, time.monotonic(), time.process_time()
        self.clock.turn_to(name)
        task = self.plan.tasks[self.task]
        earlier = sum(before.work for before in self.plan.tasks[: self.task])
        self._before = earlier + (task.dream_work if number > 1 else 0)
        self._before += sum(stage.work for stage in task.stages[: max(number - 2, 0)])
        epochs = {stage.name: stage.epochs for stage in task.stages}
        self._epochs, self._terms = epochs.get(name, 1), {}
        if name == "remember":
            self._show(name, 0)

    def end_phase(self) -> None:
        """Write down how long the present phase took."""
        if not self.phase:
            return
        spent = time.monotonic() - self._phase_began
        processor = time.process_time() - self._processor_began
        self._write_once(
            "phase", task=self.task + 1, phase=self.phase, seconds=round(spent, 3), processor=round(processor, 3),
            peak_bytes=self.clock.phase_peak,
        )  # fmt: skip
        if spent >= 1 and self.phase not in ("prepare", "evaluate"):
            numbers = "  ".join(f"{name} {value:.3g}" for name, value in self._terms.items())
            self.say(f"  {self.phase}: {duration(spent)}  {numbers}".rstrip())
        self.phase = ""
        self.clock.turn_to(None)

    @property
    def phase_seconds(self) -> float:
        """Since the present phase began."""
        return time.monotonic() - self._phase_began

    def inversion(self, progress: Progress) -> None:
        """Show the step, write down some of them; maybe save."""
        step = progress.step
        share = (progress.number + (step.step + 1) / step.steps) / progress.phases
        self._terms = {**step.values, "loss": step.loss}
        what = f"dream, {progress.phase}, step {step.step + 1} of {step.steps}"
        self._show(what, share * self.plan.tasks[self.task].dream_work)
        if step.step % -(-step.steps // _POINTS) == 0 or step.step == step.steps - 1:
            self._write_once(
                "inversion", task=self.task + 1, phase=progress.phase, number=progress.number + 1,
                phases=progress.phases, step=step.step + 1, steps=step.steps, rate=step.rate, terms=dict(self._terms),
            )  # fmt: skip
        self._on_inversion(progress, self._phase_began)

    def batch(self, epoch: int, done: int, count: int) -> None:
        """Show how far the epoch is."""
        stages = {stage.name: stage.work for stage in self.plan.tasks[self.task].stages}
        work = stages.get(self.phase, 0) * (epoch + done / max(count, 1)) / self._epochs
        self._show(f"{self.phase}, epoch {epoch + 1} of {self._epochs}", work)

    def epoch(self, report: EpochReport) -> None:
        """Write it down, maybe with the accuracy that was reached."""
        self._terms = report.terms
        accuracy = self._test(report)
        tested = {}
        if accuracy is not None:
            self.accuracy, tested = f"{accuracy:.1f} %", {"accuracy_macro": accuracy}
        self.metrics.write(
            "epoch", task=self.task + 1, stage=report.stage, epoch=report.epoch + 1, epochs=report.epochs,
            rate=report.rate, terms=dict(report.terms), seconds=round(report.seconds, 4), **tested,
        )  # fmt: skip

    def _write_once(self, event: str, **values: Any) -> None:
        if _identity(event, **values) not in self._there:
            self.metrics.write(event, **values)

    def _show(self, what: str, work: float) -> None:
        known = f", accuracy {self.accuracy}" if self.accuracy else ""
        title = f"task {self.task + 1} of {len(self.plan.tasks)}{known}: {what}"
        self.display.show(title, (self._before + work) / max(self.plan.work, 1), self._terms)


def _identity(event: str, **values: Any) -> tuple[Any, ...]:
    return event, *(values.get(key) for key in ("task", "phase", "number", "step"))
