"""Real images of the classes of a run, to be shown beside dreams."""

from __future__ import annotations

from PIL import Image
from torch import Tensor

from remix.data.errors import DataError
from remix.data.registry import find_dataset
from remix.experiments.config import DataConfig
from remix.experiments.run_parts import load_tasks
from remix.report.dreams import ClassDreams
from remix.report.groups import Group
from remix.report.pictures import LEVELS, data_uri, strip
from remix.report.reading import RunFacts
from remix.support.settings import SettingError, overlay

__all__ = ["real_images"]


def real_images(group: Group, data: str | None, room: int) -> list[ClassDreams]:
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
    shown: list[ClassDreams] = []
    for level in LEVELS:
        shown = []
        for name, images in samples.items():
            pictures = [_picture(image) for image in images]
            if pictures:
                row = strip(pictures, pictures[0].size, level)
                shown.append(ClassDreams(name, data_uri(row, level), row.width, row.height, len(pictures)))
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
            places = (train.labels == label).nonzero().squeeze(1)[: LEVELS[0].images]
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
