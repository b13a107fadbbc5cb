"""A run on data that are in memory: a data set of torch, of Hugging Face, or arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median_low
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from remix.data import DataError, Preprocessing, Splits, TaskStream
from remix.data.decode import GREY
from remix.data.folder import normalisation_for
from remix.data.intake import first_images, take_in
from remix.deploy.step import renamed
from remix.experiments.config import DEFAULT_METHOD, RunConfig, build_config, parse_assignments, read_preset, resolve
from remix.experiments.own_data import BASE, OwnData, size_for
from remix.experiments.plan import divided, load_tasks

__all__ = ["own_run"]

_LOOKED_AT = 100  # images
_HELD_OUT = 0.2


def own_run(
    data: Any,
    test: Any = None,
    *,
    tasks: int | None = None,
    method: str = DEFAULT_METHOD,
    seed: int = 0,
    name: str = "mine",
    classes: Sequence[str] | None = None,
    assignments: Sequence[str] = (),
) -> tuple[RunConfig, TaskStream]:
    """The run that `remix run FOLDER` would make of these images, and its tasks; `run.execute` does it.

    Args:
        data: whatever `remix.data.intake.take_in` takes: a ``Dataset`` or ``DataLoader`` of (image, label), a Hugging
            Face dataset with an image and a label column, a pair (images, labels), or the path of a folder.
        test: images to test on, of the same kind; None to hold a fifth of every class out.
        tasks: in how many tasks the classes arrive; up to five by default.
        method: of the run.
        seed: of everything random.
        name: of the data, in tables.
        classes: names by label, where labels are numbers and the data bring none along.
        assignments: words ``key=value``, as after ``--set``.

    Raises:
        DataError: for images that cannot be used, one class, or too few images.
        SettingError: for settings that do not fit.

    """
    if isinstance(data, str | Path):
        if test is not None or classes is not None:
            raise DataError("a folder has its test images in its sub-folder test, and the names of its sub-folders")
        config = resolve(str(data), method=method, tasks=tasks, seed=seed, assignments=assignments)
        return config, load_tasks(config.data, None)
    if isinstance(data, Iterator):
        data = list(data)
    looks = [_look(image) for image in first_images(data, _LOOKED_AT)]
    if not looks:
        raise DataError("there is no image in the data")
    side, channels = median_low(one for one, _ in looks), max(one for _, one in looks)
    splits = _splits(data, test, size_for(side), channels, seed, name, classes)
    parts = [splits.train.counts(), *([splits.test.counts()] if test is None else [])]
    images = {one: sum(part[one] for part in parts) for one in splits.classes}
    found = OwnData(name, images, None if test is None else len(splits.test), side, channels)
    given: dict[str, Any] = {"method": method, "seed": seed} | parse_assignments(assignments)
    values = found.values(read_preset(BASE), given.get("data.tasks", tasks))
    values["data"]["options"] = {}  # of a reader, and nothing is read
    config = build_config(values, assignments=given)
    return config, divided(splits, config.data)


def _splits(
    data: Any, test: Any, size: int, channels: int, seed: int, name: str, classes: Sequence[str] | None
) -> Splits:
    normalisation = normalisation_for(channels)
    preprocessing = Preprocessing(size, channels, normalisation.mean, normalisation.std)
    train = take_in(data, preprocessing, classes=classes, holdout=0.0 if test is not None else _HELD_OUT, seed=seed)
    held = train.held
    if test is not None:
        tested = take_in(test, preprocessing, classes=classes, holdout=0.0).train
        if foreign := [one for one in tested.classes if one not in train.classes]:
            raise DataError(f"the test images have a class {foreign[0]!r} that no training image has")
        held = renamed(tested, train.classes)
    return Splits(train.train, held, normalisation, name, skipped=train.skipped)


def _look(image: Any) -> tuple[int, int]:
    """The shorter side and the channels (1 for grey, else 3) of an image of any kind."""
    if isinstance(image, Image.Image):
        return min(image.size), 1 if image.mode in GREY else 3
    shape = tuple(np.shape(image))
    if len(shape) == 2:
        return min(shape), 1
    if len(shape) != 3:
        raise DataError(f"an image must be a picture or an array of 2 or 3 dimensions, got {type(image).__name__}")
    first = isinstance(image, Tensor) or shape[0] in (1, 3)
    sides, depth = (shape[1:], shape[0]) if first else (shape[:2], shape[2])
    return min(sides), 1 if depth == 1 else 3
