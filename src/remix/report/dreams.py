"""Dreams of every task, beside real images where there are any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from remix.deploy.grids import grid_layout, open_picture
from remix.experiments.run_directory import RunDirectory
from remix.report.groups import Group
from remix.report.pictures import LEVELS, Level, data_uri, strip
from remix.report.reading import RunFacts
from remix.support.text import printable

__all__ = ["ClassDreams", "Dreams", "TaskDreams", "show_dreams"]


@dataclass(frozen=True)
class ClassDreams:
    """The dreams of a class in one strip: its name, the picture as text, width and height in pixels, how many."""

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
    classes: tuple[ClassDreams, ...]
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
    for level in LEVELS:
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
        remarks.append(f"Dreams of the first seed of every method that has any ({seeds}).")
    if len(kept) < len(shown):
        remarks.append("To keep the page small, the dreams of some tasks are left out; they are in the runs' folders.")
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
    method: int, name: str, seed: int, task: int, file: Path, level: Level, damaged: dict[str, None]
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
        return TaskDreams(method, name, seed, task, (), data_uri(reduced, Level(0, level.quality or 90, 0)))
    rows = []
    for row in layout.rows:
        images = strip([picture.crop(box) for box in row.boxes], layout.size, level)
        rows.append(ClassDreams(row.name, data_uri(images, level), images.width, images.height, len(row.boxes)))
    return TaskDreams(method, name, seed, task, tuple(rows))
