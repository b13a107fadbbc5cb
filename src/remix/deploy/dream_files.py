"""A dream from plan to files, all named from one: the grid, the tensors, the plot of the terms, the checkpoint."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from remix._version import __version__
from remix.data import ImageDataset
from remix.deploy.dream_plan import DreamPlan
from remix.deploy.evaluation import confusion_counts
from remix.deploy.figures import GridRow, save_grid, save_terms
from remix.inversion import Checkpoint, Dream, InversionStoppedError, Progress
from remix.learning import Model
from remix.networks.probe import evaluating
from remix.statistics import DamagedFileError, read_file, write_file
from remix.support.interrupts import PoliteInterrupt

__all__ = ["ClassResult", "DreamFiles", "DreamReport", "SavedDream", "load_dream", "run_dream"]

_KIND, _VERSION = "dream", 1
_CHECKPOINT_KIND, _CHECKPOINT_VERSION = "dream-checkpoint", 1
_SAVE_EVERY = 60.0  # seconds between checkpoints on the way
_BATCH = 64  # images that the network reads at a time


@dataclass(frozen=True, eq=False)
class SavedDream:
    """Dreamed images as they were saved.

    Attributes:
        images: (N, C, H, W), float32 within 0..1.
        labels: (N,), int64: places in ``classes``.
        classes: names of all classes of the model.
        about: settings and results, as plain JSON.

    """

    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    about: Mapping[str, Any]

    def data(self) -> ImageDataset:
        """The images as bytes."""
        return ImageDataset((self.images.clamp(0, 1) * 255).round().byte(), self.labels, self.classes)


def load_dream(path: str | Path) -> SavedDream:
    """Read the tensors of a dream.

    Raises:
        FileNotFoundError: if there is no such file.
        DamagedFileError: if it is damaged or no dream.

    """
    tensors, content = read_file(path, _KIND, _VERSION)
    try:
        return SavedDream(tensors["images"], tensors["labels"], tuple(content["classes"]), content["about"])
    except (KeyError, TypeError) as error:
        raise DamagedFileError(f"{path} is not a valid dream: {error}") from error


@dataclass(frozen=True)
class DreamFiles:
    """Where the parts of a dream go.

    Attributes:
        grid: the picture, ``NAME.png``; the others are ``NAME.safetensors``, ``NAME-terms.png`` and, while the run
            is not finished, ``NAME-checkpoint.safetensors``.

    """

    grid: Path

    @classmethod
    def at(cls, out: str | Path) -> DreamFiles:
        """The files for ``--out``. Raises ValueError unless it ends with .png."""
        path = Path(out)
        if path.suffix.lower() != ".png" or path.is_dir():
            raise ValueError(f"--out must name a picture that ends with .png, got {out}")
        return cls(path)

    @property
    def tensors(self) -> Path:
        """Images, labels, settings."""
        return self.grid.with_suffix(".safetensors")

    @property
    def terms(self) -> Path:
        """The plot."""
        return self.grid.with_name(f"{self.grid.stem}-terms.png")

    @property
    def checkpoint(self) -> Path:
        """Where an unfinished run goes on."""
        return self.grid.with_name(f"{self.grid.stem}-checkpoint.safetensors")

    def prepare(self, overwrite: bool, resume: bool) -> None:
        """Make sure that the files can be written, and that nothing is lost by it.

        Raises:
            ValueError: if files are there already, or there is nothing to resume.
            OSError: if the folder cannot be made or written to.

        """
        if resume:
            if not self.checkpoint.is_file():
                ended = " (that run is finished)" if self.tensors.is_file() else ""
                raise ValueError(f"there is nothing to resume: no {self.checkpoint}{ended}")
            return
        there = [path for path in (self.checkpoint, self.grid, self.tensors, self.terms) if path.exists()]
        if there and not overwrite:
            go_on = " --resume goes on with that run," if there[0] == self.checkpoint else ""
            names = ", ".join(map(str, there))
            raise ValueError(
                f"already there: {names}.{go_on} --overwrite replaces what is there, or choose another --out"
            )
        self.grid.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(self.grid.parent, os.W_OK):
            raise PermissionError(f"the folder {self.grid.parent} cannot be written to")

    def save_checkpoint(self, checkpoint: Checkpoint, request: Mapping[str, Any]) -> None:
        """Write where an unfinished run stands, and what was asked of it."""
        content = {"record": dict(checkpoint.record), "request": dict(request)}
        write_file(self.checkpoint, _CHECKPOINT_KIND, _CHECKPOINT_VERSION, checkpoint.tensors, content)

    def load_checkpoint(self, request: Mapping[str, Any]) -> Checkpoint:
        """Read it back.

        Raises:
            DamagedFileError: if the file is damaged or foreign.
            ValueError: if it is of a run that was asked for something else; the message says what differs.

        """
        tensors, content = read_file(self.checkpoint, _CHECKPOINT_KIND, _CHECKPOINT_VERSION)
        before, now = _flat(content["request"]), _flat(request)
        differ = [key for key in dict.fromkeys([*before, *now]) if before.get(key) != now.get(key)]
        if "model" in differ:
            raise ValueError(
                f"{self.checkpoint} is of another model: give the same one, or start again with --overwrite"
            )
        if differ:
            listed = ", ".join(f"{key} was {before.get(key)}, is {now.get(key)}" for key in differ[:4])
            raise ValueError(
                f"{self.checkpoint} is of another run: {listed}. Give the same options, or start again with --overwrite"
            )
        return Checkpoint(tensors, content["record"])


def _flat(record: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in record.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


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


def run_dream(
    plan: DreamPlan,
    files: DreamFiles,
    resume: bool = False,
    progress: Callable[[str, float, Mapping[str, float]], None] = lambda place, done, terms: None,
    remark: Callable[[str], None] = lambda sentence: None,
) -> DreamReport:
    """Run a plan and write what comes of it, also after Ctrl-C.

    Every minute a checkpoint is written beside the output, so that ``resume`` works after any kind of end.

    Args:
        plan: the run.
        files: to write.
        resume: go on from the checkpoint.
        progress: called after every step: where the run is, the share that is done, the terms of the objective.
        remark: told what happens on the way besides.

    Raises:
        InversionStoppedError: if numbers stop being finite; the checkpoint then has the last good state.
        ValueError: if the checkpoint is of another run.
        OSError: if something cannot be written.

    """
    checkpoint = files.load_checkpoint(plan.record) if resume else None
    if not resume:
        files.checkpoint.unlink(missing_ok=True)
    polite = PoliteInterrupt(lambda: remark("stopping after this step (Ctrl-C again: at once)"))
    saved, place = time.monotonic(), ""

    def after_step(at: Progress) -> None:
        nonlocal saved, place
        place = f"{at.phase}, step {at.step.step + 1} of {at.step.steps}"
        progress(place, plan.done(at), at.step.values)
        if time.monotonic() - saved > _SAVE_EVERY:
            saved = time.monotonic()
            try:
                files.save_checkpoint(at.glance(), plan.record)
            except OSError as error:  # the dream itself goes on
                remark(f"the checkpoint could not be written: {error}")
        polite.check()

    try:
        with polite:
            dream = plan.run(after_step, checkpoint)
    except InversionStoppedError as error:
        if error.checkpoint is not None:
            files.save_checkpoint(error.checkpoint, plan.record)
            remark(f"the last good state is in {files.checkpoint}; --resume goes on from there")
        raise
    return _write(plan, files, dream, place)


def _write(plan: DreamPlan, files: DreamFiles, dream: Dream, place: str) -> DreamReport:
    written: dict[str, str] = {}
    if dream.checkpoint is not None:
        files.save_checkpoint(dream.checkpoint, plan.record)
        written[str(files.checkpoint)] = "where to go on"
    mean, std = _constants(plan.model, dream.images)
    images, labels = (dream.images.detach() * std + mean).clamp(0, 1).cpu(), dream.labels.cpu()
    counts = confusion_counts(_answers(plan.model, images, labels))
    rows, results = [], []
    for name, label in zip(plan.record["classes"], plan.model.labels(plan.record["classes"]), strict=True):
        mine, right = images[labels == label], counts[label, label]
        results.append(ClassResult(name, len(mine), int((plan.labels == label).sum()), right))
        rows.append(GridRow(name, mine, f"{right} of {len(mine)} recognised"))
    title = plan.title() + ("" if dream.finished else f"   (stopped in {place})")
    if len(images):
        about = {
            "remix": __version__,
            "request": plan.record,
            "finished": dream.finished,
            "read_right": {result.name: result.right for result in results},
        }
        content = {"classes": list(plan.model.classes), "about": about}
        write_file(files.tensors, _KIND, _VERSION, {"images": images.float(), "labels": labels}, content)
        save_grid(files.grid, rows, title)
        written[str(files.grid)] = "the images, by class"
        written[str(files.tensors)] = "images within 0..1, labels and settings"
    if any(terms for phase in dream.history.values() for terms in phase.values()):
        save_terms(files.terms, dream.history, title)
        written[str(files.terms)] = "the terms of the objective over the steps"
    if dream.finished:
        files.checkpoint.unlink(missing_ok=True)
    return DreamReport(dream.finished, tuple(results), written, "" if dream.finished else place)


def _answers(model: Model, images: Tensor, labels: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Logits of images (N, C, H, W) within 0..1, with their labels, in batches."""
    parameter = next(model.classifier.parameters())
    answers = []
    with evaluating(model.classifier):
        for part, told in zip(images.split(_BATCH), labels.split(_BATCH), strict=True):
            x = part.to(parameter)
            mean, std = _constants(model, x)
            answers.append((model.classifier((x - mean) / std), told))
    return answers


def _constants(model: Model, like: Tensor) -> tuple[Tensor, Tensor]:
    def column(numbers: Sequence[float]) -> Tensor:
        return like.new_tensor(numbers)[:, None, None]

    return column(model.preprocessing.mean), column(model.preprocessing.std)
