"""Dreams of every task, and real images beside them, as text within a page, no larger than there is room for."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from torch import Tensor

from remix.data.errors import DataError
from remix.data.registry import find_dataset
from remix.deploy.figures import grid_layout, open_picture
from remix.experiments.config import DataConfig
from remix.experiments.plan import load_tasks
from remix.experiments.run_directory import RunDirectory
from remix.report.runs import Group, RunFacts
from remix.support.settings import SettingError, overlay
from remix.support.text import printable

__all__ = ["ClassImages", "Dreams", "TaskDreams", "real_images", "show_dreams"]

_LARGEST = 64  # pixels; larger images are shown reduced
_GAP = 1  # transparent pixels between images


@dataclass(frozen=True)
class _Level:
    """How much is kept of pictures: images per class, quality (None for all of it), width of whole pictures."""

    images: int
    quality: int | None
    width: int


_LEVELS = (
    _Level(12, None, 1200),
    _Level(12, 90, 1000),
    _Level(12, 75, 900),
    _Level(8, 70, 800),
    _Level(6, 60, 600),
    _Level(4, 45, 450),
)
"""From everything to little."""


@dataclass(frozen=True)
class ClassImages:
    """Images of a class in one strip: its name, the picture as text, width and height in pixels, how many."""

    name: str
    picture: str
    width: int
    height: int
    count: int


@dataclass(frozen=True)
class TaskDreams:
    """What a run dreamed before a task: class by class, or (of older runs) as one picture.

    Attributes:
        method: number of the method, from 0.
        name: of the method.
        seed: of the run.
        task: from 1.
        classes: one by one.
        whole: the picture of all, where the classes are not known; else "".

    """

    method: int
    name: str
    seed: int
    task: int
    classes: tuple[ClassImages, ...]
    whole: str = ""

    @property
    def size(self) -> int:
        """Letters that the pictures take."""
        return len(self.whole) + sum(len(row.picture) for row in self.classes)


@dataclass(frozen=True)
class Dreams:
    """All of a group, and what is to be said about them."""

    tasks: tuple[TaskDreams, ...]
    remarks: tuple[str, ...]

    @property
    def classes(self) -> list[str]:
        """Names of all that are shown."""
        return list(dict.fromkeys(row.name for task in self.tasks for row in task.classes))


def show_dreams(group: Group, room: int) -> Dreams:
    """The dreams of the first seed of every method that has any, in at most ``room`` letters.

    Where that is not enough, images are shown at lower quality, then fewer of each class, then fewer tasks.
    """
    chosen: list[tuple[int, str, RunFacts]] = []
    for number, (name, runs) in enumerate(group.variants.items()):
        run = next((run for run in runs.values() if RunDirectory(run.folder).pictures()), None)
        if run is not None:
            chosen.append((number, name, run))
    damaged: dict[str, None] = {}
    shown: tuple[TaskDreams, ...] = ()
    for level in _LEVELS:
        shown = tuple(
            found
            for number, name, run in chosen
            for task, file in RunDirectory(run.folder).pictures().items()
            if (found := _read(number, name, run.seed, task, file, level, damaged)) is not None
        )
        if sum(task.size for task in shown) <= room:
            break
    kept = _within(shown, room)
    remarks = [*damaged]
    if any(len(runs) > 1 for runs in group.variants.values()) and kept:
        seeds = ", ".join(f"{name}: {run.seed}" for _, name, run in chosen)
        remarks.append(f"Of the first seed of every method that makes any ({seeds}).")
    if len(kept) < len(shown):
        remarks.append("To keep the page small, the images of some tasks are left out; they are in the runs' folders.")
    return Dreams(kept, tuple(remarks))


def _within(shown: Sequence[TaskDreams], room: int) -> tuple[TaskDreams, ...]:
    """Of what is too large even so: the last tasks, as many as there is room for."""
    kept: list[TaskDreams] = []
    for task in sorted(shown, key=lambda each: -each.task):
        if task.size <= room:
            room -= task.size
            kept.append(task)
    return tuple(task for task in shown if task in kept)


def _read(
    method: int, name: str, seed: int, task: int, file: Path, level: _Level, damaged: dict[str, None]
) -> TaskDreams | None:
    try:
        picture = open_picture(file)
    except OSError as error:
        damaged[f"{printable(file)} cannot be read ({error}) and is left out"] = None
        return None
    layout = grid_layout(picture)
    if layout is None:
        factor = min(1.0, level.width / picture.width)
        reduced = picture.convert("RGB").resize(
            (max(1, round(picture.width * factor)), max(1, round(picture.height * factor)))
        )
        # Enlarged pixels are not worth all of a picture's quality, which takes much room.
        return TaskDreams(method, name, seed, task, (), _data_uri(reduced, _Level(0, level.quality or 90, 0)))
    rows = [_strip(row.name, [picture.crop(box) for box in row.boxes], layout.size, level) for row in layout.rows]
    return TaskDreams(method, name, seed, task, tuple(rows))


def real_images(group: Group, data: str | None, room: int) -> list[ClassImages]:
    """Some training images of every class, in at most ``room`` letters; none if there is no data to take them from.

    Args:
        group: the runs.
        data: folder of the data sets. Without it only data sets that come with REMIX are shown: a page that is sent
            to others should not hold images of which nobody said that it may.
        room: letters that the pictures may take.

    Raises:
        DataError: if ``data`` is given and the data set is not there.
        SettingError: if the runs' configuration of it is not valid.

    """
    if data is None and not _embedded(group.runs[0].config["data"]["name"]):
        return []
    try:
        samples = _samples(group.runs[0], data)
    except (DataError, SettingError):
        if data is not None:
            raise
        return []  # nobody asked for them
    pictures = {name: [_picture(image) for image in images] for name, images in samples.items() if len(images)}
    for level in _LEVELS:
        shown = [_strip(name, some, some[0].size, level) for name, some in pictures.items()]
        if sum(len(row.picture) for row in shown) <= room:
            return shown
    return []


def _samples(run: RunFacts, data: str | None) -> dict[str, Tensor]:
    """By class the first training images, bytes (N, C, H, W)."""
    stream = load_tasks(overlay(DataConfig(), run.config["data"], "data"), data)
    found = {}
    for index in range(len(stream)):
        train = stream[index].train
        for label in stream.labels(index):
            places = (train.labels == label).nonzero().squeeze(1)[: _LEVELS[0].images]
            found[stream.classes[label]] = train.batch(places)[0]
    return found


def _picture(image: Tensor) -> Image.Image:
    """Of bytes (C, H, W); of other numbers of channels than three the first is shown."""
    numbers = image.cpu().numpy()
    return Image.fromarray(numbers.transpose(1, 2, 0).copy() if len(numbers) == 3 else numbers[0])


def _embedded(name: str) -> bool:
    try:
        return not find_dataset(name).place
    except DataError:
        return False


def _strip(name: str, images: Sequence[Image.Image], size: tuple[int, int], level: _Level) -> ClassImages:
    """Images of one class side by side, each brought to ``size`` (width, height) pixels or the most that is shown."""
    factor = min(1.0, _LARGEST / max(size))
    width, height = (max(1, round(side * factor)) for side in size)
    shown = images[: level.images]
    row = Image.new("RGBA", (len(shown) * (width + _GAP) - _GAP, height), (0, 0, 0, 0))
    for i, image in enumerate(shown):
        # A saved picture shows small images enlarged by a whole factor: the nearest pixel is the one that was.
        grown = image.width >= width and size[0] <= _LARGEST
        method = Image.Resampling.NEAREST if grown else Image.Resampling.LANCZOS
        row.paste(image.convert("RGB").resize((width, height), method), (i * (width + _GAP), 0))
    return ClassImages(name, _data_uri(row, level), row.width, row.height, len(images))


def _data_uri(picture: Image.Image, level: _Level) -> str:
    """As WebP in base64."""
    file = io.BytesIO()
    if level.quality is None:
        picture.save(file, "WEBP", lossless=True)
    else:
        picture.save(file, "WEBP", quality=level.quality)
    return "data:image/webp;base64," + base64.b64encode(file.getvalue()).decode()
