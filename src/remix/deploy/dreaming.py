"""A dream from plan to files: progress, interruption, checkpoint, pictures."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from remix._version import __version__
from remix.deploy.dream_files import DreamFiles
from remix.deploy.dream_plan import DreamPlan
from remix.deploy.figures import GridRow, save_grid, save_terms
from remix.inversion import Dream, GeneratorSettings, InversionStoppedError, Progress
from remix.learning import Model
from remix.support.display import Display
from remix.support.interrupts import PoliteInterrupt

__all__ = ["ClassResult", "DreamReport", "announce", "describe", "run_dream"]

_SAVE_EVERY = 60.0  # seconds between checkpoints on the way


@dataclass(frozen=True)
class ClassResult:
    """How many images of a class there are and were asked for, and how many the network reads as that class."""

    name: str
    images: int
    asked: int
    right: int


@dataclass(frozen=True)
class DreamReport:
    """What came of a run.

    Attributes:
        finished: whether it came to its end.
        classes: by class.
        written: the files, with what they hold.
        stopped_at: where it was interrupted.

    """

    finished: bool
    classes: tuple[ClassResult, ...]
    written: dict[str, str]
    stopped_at: str = ""

    def sentences(self) -> list[str]:
        """What to tell a person."""
        lines = []
        width = max(len(result.name) for result in self.classes)
        usable = any(result.images for result in self.classes)
        if usable:
            lines.append("what the network itself reads in them:")
            for result in self.classes:
                lines.append(f"  {result.name:<{width}}  {result.right} of {result.images} as {result.name}")
        missing = [result.name for result in self.classes if result.images < result.asked]
        if self.finished and missing:
            lines.append(f"note: the generator made too few images of {', '.join(missing)}: give it more --steps")
        longest = max((len(path) for path in self.written), default=0)
        lines += [f"{path:<{longest}}  {what}" for path, what in self.written.items()]
        if not self.finished:
            saved = "what was found so far is saved" if usable else "no image is ready yet"
            lines.append(f"stopped in {self.stopped_at or 'the beginning'}; {saved}")
        return lines


def run_dream(plan: DreamPlan, files: DreamFiles, console: Console, resume: bool = False) -> DreamReport:
    """Run a plan and write what comes of it, also after Ctrl-C.

    Every minute a checkpoint is written beside the output, so that ``resume`` works after any kind of end.

    Raises:
        InversionStoppedError: if numbers stop being finite; the checkpoint then has the last good state.
        ValueError: if the checkpoint is of another run.
        OSError: if something cannot be written.

    """
    checkpoint = files.load_checkpoint(plan.record) if resume else None
    if not resume:
        files.checkpoint.unlink(missing_ok=True)
    with Display(console) as display:
        polite = PoliteInterrupt(lambda: display.say("stopping after this step (Ctrl-C again: at once)"))
        watch = _Watch(plan, files, display, polite)
        try:
            with polite:
                dream = plan.run(watch, checkpoint)
        except InversionStoppedError as error:
            if error.checkpoint is not None:
                files.save_checkpoint(error.checkpoint, plan.record)
                display.say(f"the last good state is in {files.checkpoint}; --resume goes on from there")
            raise
    return _write(plan, files, dream, watch.place)


class _Watch:
    """Called after every step."""

    def __init__(self, plan: DreamPlan, files: DreamFiles, display: Display, polite: PoliteInterrupt) -> None:
        self.plan, self.files, self.display, self.polite = plan, files, display, polite
        self.work = plan.work()
        self.saved = time.monotonic()
        self.place = ""

    def __call__(self, progress: Progress) -> None:
        step, steps = progress.step.step + 1, progress.step.steps
        self.place = f"{progress.phase}, step {step} of {steps}"
        before = sum(self.work[: progress.number])
        done = (before + self.work[progress.number] * step / steps) / sum(self.work)
        self.display.show(self.place, done, progress.step.values, last=done >= 1)
        if time.monotonic() - self.saved > _SAVE_EVERY:
            self._save(progress)
        self.polite.check()

    def _save(self, progress: Progress) -> None:
        self.saved = time.monotonic()
        try:
            self.files.save_checkpoint(progress.glance(), self.plan.record)
        except OSError as error:  # the dream itself goes on
            self.display.say(f"the checkpoint could not be written: {error}")


def _write(plan: DreamPlan, files: DreamFiles, dream: Dream, place: str) -> DreamReport:
    written: dict[str, str] = {}
    if dream.checkpoint is not None:
        files.save_checkpoint(dream.checkpoint, plan.record)
        written[str(files.checkpoint)] = "where to go on"
    images = pixels(plan.model, dream.images).cpu()
    labels = dream.labels.cpu()
    read = decisions(plan.model, images)
    results = tuple(
        ClassResult(name, *(int(which.sum()) for which in (mine, plan.labels == label, mine & (read == label))))
        for name, label in _classes(plan)
        for mine in [labels == label]
    )
    title = describe(plan) + ("" if dream.finished else f"   (stopped in {place})")
    if len(images):
        about = {
            "remix": __version__,
            "request": plan.record,
            "finished": dream.finished,
            "read_right": {result.name: result.right for result in results},
        }
        files.save_tensors(images, labels, plan.model.classes, about)
        rows = [
            GridRow(name, images[labels == label], f"{result.right} of {result.images} recognised")
            for (name, label), result in zip(_classes(plan), results, strict=True)
        ]
        save_grid(files.grid, rows, title)
        written[str(files.grid)] = "the images, by class"
        written[str(files.tensors)] = "images within 0..1, labels and settings"
    if any(terms for phase in dream.history.values() for terms in phase.values()):
        save_terms(files.terms, dream.history, title)
        written[str(files.terms)] = "the terms of the objective over the steps"
    if dream.finished:
        files.checkpoint.unlink(missing_ok=True)
    return DreamReport(dream.finished, results, written, "" if dream.finished else place)


def _classes(plan: DreamPlan) -> list[tuple[str, int]]:
    return list(zip(plan.record["classes"], plan.model.labels(plan.record["classes"]), strict=True))


def announce(plan: DreamPlan) -> list[str]:
    """What to tell a person before a run."""
    images = f"{len(plan.labels)} images of {', '.join(plan.record['classes'])}"
    return [*(f"note: {note}" for note in plan.notes), images, describe(plan)]


def describe(plan: DreamPlan) -> str:
    """A run in one line."""
    settings: Any = plan.settings
    prior = settings.prior
    parts = [plan.model.backbone, plan.strategy]
    if prior.kind == "none" or not prior.weight:
        parts.append("no prior")
    else:
        parts.append(f"prior {prior.kind}, {prior.form}, weight {prior.weight:g}")
    steps = settings.schedule.steps if isinstance(settings, GeneratorSettings) else plan.steps
    return "  ·  ".join([*parts, f"{steps} steps", f"seed {plan.seed}"])


def pixels(model: Model, inputs: Tensor) -> Tensor:
    """What the network receives, (N, C, H, W) -> images within 0..1; what lies beyond is cut off."""
    mean, std = _constants(model, inputs)
    return (inputs.detach() * std + mean).clamp(0, 1)


@torch.no_grad()
def decisions(model: Model, images: Tensor, batch: int = 64) -> Tensor:
    """The labels (N,) that a model gives to images (N, C, H, W) within 0..1."""
    parameter = next(model.classifier.parameters())
    modes = model.classifier.training
    model.classifier.eval()
    try:
        found = [torch.zeros(0, dtype=torch.int64)]
        for part in images.split(batch):
            part = part.to(parameter)
            mean, std = _constants(model, part)
            found.append(model.classifier((part - mean) / std).argmax(1).cpu())
        return torch.cat(found)
    finally:
        model.classifier.train(modes)


def _constants(model: Model, like: Tensor) -> tuple[Tensor, Tensor]:
    def column(numbers: Sequence[float]) -> Tensor:
        return like.new_tensor(numbers)[:, None, None]

    return column(model.preprocessing.mean), column(model.preprocessing.std)
