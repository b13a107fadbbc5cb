"""Data of one's own as a run: what is chosen for a folder of images, or for images in memory, and why."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median_low
from typing import Any

from remix.data import DataError
from remix.data.decode import glance
from remix.data.folder import scan
from remix.deploy.recipe import epochs_from_scratch
from remix.support.settings import SettingError
from remix.support.text import counted, printable, shown

__all__ = ["BASE", "OwnData", "folder_data", "is_folder", "size_for"]

BASE = "cifar100-mini-improved"
"""The preset whose schedules are taken."""

_BASE_EPOCHS = 20  # of its tasks
_LOOKED_AT = 100  # images, spread over the classes
_SMALL, _LARGE = 32, 64  # pixels
_FEWEST = 5  # images of a class: a fifth of them is one to test on
_TASKS = 5  # where nobody says
_FEW = 5000  # images of a task, for which batches are small


@dataclass(frozen=True)
class OwnData:
    """What there is to know of images before they are read.

    Attributes:
        name: of the data set: the path of a folder.
        classes: images to learn from, by class; those that will be held out included.
        test: images to test on; None if a fifth of every class is held out.
        side: the shorter side of the middle one, in pixels.
        channels: 1 if all are grey, else 3.

    Raises:
        DataError: for one class, or a class with too few images.

    """

    name: str
    classes: Mapping[str, int]
    test: int | None
    side: int
    channels: int

    def __post_init__(self) -> None:
        where = printable(self.name)
        if len(self.classes) < 2:
            raise DataError(
                f"{where} has one class ({', '.join(self.classes)}), and tasks are made of classes: give it a "
                "sub-folder of images for each of at least two"
            )
        few = [name for name, count in self.classes.items() if count < _FEWEST]
        if few:
            raise DataError(
                f"the class {few[0]} of {where} has {counted(self.classes[few[0]], 'image')} to learn from, and a run "
                f"takes at least {_FEWEST} of every class: add some, or leave the class out"
            )

    @property
    def train(self) -> int:
        """Images to learn from, those that will be held out included."""
        return sum(self.classes.values())

    @property
    def size(self) -> int:
        """The side that images are brought to."""
        return size_for(self.side)

    def division(self, tasks: int | None) -> dict[str, int]:
        """So many tasks (by default up to five, of two classes or more), the first one larger where it has to be.

        Raises:
            SettingError: for more tasks than classes.

        """
        count = len(self.classes)
        wanted = max(2, min(_TASKS, count // 2)) if tasks is None else tasks
        if not isinstance(wanted, int) or not 1 <= wanted <= count:
            raise SettingError(f"{count} classes make 1 to {count} tasks, got {shown(wanted)}: type --tasks {_TASKS}")
        rest = count % wanted
        return {"tasks": wanted} | ({"first": count // wanted + rest} if rest else {})

    def values(self, base: Mapping[str, Any], tasks: int | None = None) -> dict[str, Any]:
        """A preset: a small ResNet that begins untrained, and the schedules of ``base``, longer where images are few.

        Args:
            base: the preset called `BASE`.
            tasks: how many, if somebody says.

        """
        divided = self.division(tasks)
        each = max(1, self.train // divided["tasks"])
        share = epochs_from_scratch(each) / _BASE_EPOCHS
        large = self.size == _LARGE
        return {
            "about": f"{Path(self.name).name}: {counted(len(self.classes), 'class')}, chosen by remix run",
            "data": {
                "name": self.name,
                **divided,
                "options": {"size": self.size, "channels": self.channels},
            },
            "network": {
                "backbone": "resnet32",
                "options": {
                    "width": 8,
                    "input_shape": [self.channels, self.size, self.size],
                    **({"stem_stride": 2} if large else {}),
                },
            },
            "batch_size": 32 if each <= _FEW else 128,
            "augment": {"crop_padding": self.size // 8, "flip": self.channels == 3},
            "methods": _stretched(base["methods"], share),
        }


def size_for(side: int) -> int:
    """The side, in pixels, that images of such a shorter side are brought to."""
    return _LARGE if side >= _LARGE else _SMALL


def is_folder(name: str) -> bool:
    """Whether a word means a folder of images, not a preset: it is one, or is written as a path is."""
    return not name.endswith((".yaml", ".yml")) and (os.sep in name or "/" in name or os.path.isdir(name))


def folder_data(name: str) -> OwnData:
    """Look at a folder of images, one sub-folder per class, with train/ and test/ (or val/) above them or without.

    Names of files and the headers of some are read, nothing is decoded.

    Raises:
        MissingData: if there is no such folder, or no class in it.
        DataError: for a folder that is not made so, one class, or too few images.

    """
    root = Path(os.path.abspath(name))
    if root.is_file():
        raise DataError(f"{printable(name)} is a file: give the folder that has a sub-folder of images per class")
    found = scan(root)
    train, test = found.parts["train"], found.parts.get("test")
    looked = [one for files in train for path in _some(files, len(train)) if (one := glance(path)) is not None]
    if not looked:
        raise DataError(f"no file in {printable(name)} is an image that can be read")
    return OwnData(
        str(root),
        {one: len(files) for one, files in zip(found.classes, train, strict=True)},
        None if test is None else sum(map(len, test)),
        median_low(side for side, _ in looked),
        max(channels for _, channels in looked),
    )


def _some(files: Sequence[Path], classes: int) -> Sequence[Path]:
    """Of every class as many, from all of it."""
    step = max(1, len(files) * classes // _LOOKED_AT)
    return files[::step]


def _stretched(settings: Any, share: float) -> Any:
    """Schedules with as many times the epochs; what counts in epochs goes with them."""
    if not isinstance(settings, Mapping):
        return settings
    found = {key: _stretched(value, share) for key, value in settings.items()}
    if "steps" not in found:  # milestones of an inversion count in steps
        for key in found.keys() & {"epochs", "milestones", "period"}:
            value = found[key]
            found[key] = [round(one * share) for one in value] if isinstance(value, list) else round(value * share)
    return found
