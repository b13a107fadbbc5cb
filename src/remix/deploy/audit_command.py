"""`remix audit`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor

from remix.data import ImageDataset, load
from remix.deploy.audit import Audit, audit
from remix.deploy.audit_report import audit_table, write_report
from remix.deploy.dream_files import load_dream
from remix.deploy.dream_options import DreamOptions
from remix.deploy.dream_plan import make_plan
from remix.deploy.dreaming import describe, pixels
from remix.deploy.output import note, note_left_out, show
from remix.inversion import Progress
from remix.learning import Model, load_model
from remix.learning.devices import as_device, on_device
from remix.support.display import Display
from remix.support.text import printable

__all__ = ["AuditFiles", "audit_command"]

_MOST = 2000  # held-out images; more would not change a quantile


@dataclass(frozen=True)
class AuditFiles:
    """The images that an audit compares: folders of training and held-out images, and a file of dreams or None."""

    train: str
    held_out: str | None = None
    dreams: str | None = None


def audit_command(
    model: str,
    files: AuditFiles,
    options: DreamOptions,
    *,
    out: str | None = None,
    device: str = "auto",
    overwrite: bool = False,
) -> Audit:
    """Dream, compare with training images, print a table and what may be concluded; write a figure and the numbers.

    Raises:
        ValueError: for whatever cannot be done.
        OSError: if a file cannot be read or written.

    """
    figure = None if out is None else Path(out)
    if figure is not None:
        if figure.suffix != ".png":
            raise ValueError(f"--out must end in .png, got {out}")
        for file in (figure, figure.with_suffix(".json")):
            if file.exists() and not overwrite:
                raise ValueError(f"{printable(file)} is there already: --overwrite replaces it")
        figure.parent.mkdir(parents=True, exist_ok=True)
    opened = on_device(load_model(model), as_device(device))
    train, reference = _images(opened, files)
    dreamt, names = _saved(files.dreams, opened) if files.dreams else _dream(opened, options)
    images, labels = train.batch(range(len(train)))
    if reference is None:
        result = audit(opened, dreamt, images)
    else:
        held_out, others = reference.batch(_some(len(reference)))
        known = _labels(opened, train, labels), _labels(opened, reference, others)
        result = audit(opened, dreamt, images, held_out, known)
    show(audit_table(result))
    show("\n" + result.conclusion())
    if result.membership is not None:
        show(
            "Without any dream: the network is surer of the class of a training image than of that of a held-out one "
            f"in {100 * result.membership:.1f}% of pairs (50% is chance)."
        )
    if figure is not None:
        numbers = write_report(figure, result, dreamt, names, images)
        show(f"{printable(figure)}  the dreams that are nearest to training images, and those images")
        show(f"{printable(numbers)}  the numbers")
    return result


# --- images ---


def _images(model: Model, files: AuditFiles) -> tuple[ImageDataset, ImageDataset | None]:
    """Training images, and held-out ones if there are any."""
    train, test = _folder(model, files.train)
    if files.held_out is not None:
        first, second = _folder(model, files.held_out)
        test = second if len(second) else first
    if not len(test):
        note("no held-out images: training images are compared with each other instead (--held-out gives some)")
    return train, test if len(test) else None


def _folder(model: Model, folder: str) -> tuple[ImageDataset, ImageDataset]:
    if not Path(folder).is_dir():
        raise ValueError(f"there is no folder {folder}: give one that has a sub-folder of images for every class")
    prepared = model.preprocessing
    splits = load(
        "folder", folder, size=prepared.size, channels=prepared.channels, holdout=0.0,
        normalisation=prepared.normalisation,
    )  # fmt: skip
    note_left_out(splits.skipped)
    return splits.train, splits.test


def _labels(model: Model, data: ImageDataset, labels: Tensor) -> Tensor:
    """The model's labels of images, -1 for classes that it does not know."""
    places = {name: label for label, name in enumerate(model.classes)}
    return torch.tensor([places.get(name, -1) for name in data.classes])[labels]


def _some(count: int) -> Tensor:
    return torch.randperm(count, generator=torch.Generator().manual_seed(0))[:_MOST]


def _saved(path: str, model: Model) -> tuple[Tensor, list[str]]:
    saved = load_dream(path)
    if tuple(saved.images.shape[1:]) != model.preprocessing.shape:
        shape = tuple(saved.images.shape[1:])
        raise ValueError(f"the dreams in {path} are {shape}, the model takes {model.preprocessing.shape}")
    if not saved.about.get("finished", True):
        note(f"the dreams in {path} are of a run that was interrupted: half-made ones lie farther from any image")
    return _bytes(saved.images), [saved.classes[label] for label in saved.labels.tolist()]


def _dream(model: Model, options: DreamOptions) -> tuple[Tensor, list[str]]:
    plan = make_plan(model, options)
    note(f"{len(plan.labels)} dreams: {describe(plan)}")
    work = plan.work()
    with Display(Console(stderr=True)) as display:

        def progress(step: Progress) -> None:
            before = sum(work[: step.number])
            done = (before + work[step.number] * (step.step.step + 1) / step.step.steps) / sum(work)
            display.show(step.phase, done, {}, last=done >= 1)

        dream = plan.run(progress)
    if not dream.finished:
        raise KeyboardInterrupt
    return _bytes(pixels(model, dream.images)), [model.classes[label] for label in dream.labels.tolist()]


def _bytes(images: Tensor) -> Tensor:
    return (images.detach().cpu().clamp(0, 1) * 255).round().byte()
