"""CUB-200-2011: birds, with lists of images, classes and the official split."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

from remix.data.errors import DataError
from remix.data.file_lists import read_parts, read_table
from remix.data.images import Splits
from remix.data.preprocessing import CLIP, Preprocessing
from remix.data.registry import Download, dataset, missing
from remix.support.text import printable

__all__ = ["cub200"]


def _folder(root: Path) -> Path | None:
    return next((f for f in (root / "CUB_200_2011", root) if (f / "train_test_split.txt").is_file()), None)


def _classes_here(root: Path) -> int:
    folder = _folder(root)
    if folder is None or not (folder / "images").is_dir():
        return 0
    there = {found.name for found in (folder / "images").iterdir() if found.is_dir()}
    return len(there.intersection(name for _, name in _columns(folder, "classes.txt")))


def _columns(folder: Path, file: str) -> list[tuple[str, str]]:
    return [(row[0], row[1]) for row in read_table(folder / file, columns=2)]


@dataset(
    "cub200",
    place="CUB_200_2011/ with images/, images.txt, image_class_labels.txt, train_test_split.txt and classes.txt",
    downloads=(
        Download(
            "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz",
            "CUB_200_2011.tgz",
            "97eceeb196236b17998738112f37df78",
        ),
    ),
    counts=(5_994, 5_794),
    classes=200,
    classes_here=_classes_here,
)
def cub200(root: Path, size: int = 224, lazy: bool | None = None) -> Splits:
    """11,788 photographs of 200 kinds of birds.

    Some of the classes will do: those without a folder in images/ keep their numbers and have no images.

    Args:
        root: the data folder, or CUB_200_2011 itself.
        size: height and width in pixels.
        lazy: decode each time (True) or keep the pixels in memory, 1.8 GB at 224 (False); by size if not given.

    """
    folder = _folder(root)
    if folder is None:
        raise missing("cub200", root)
    classes = dict(_columns(folder, "classes.txt"))
    position = {key: label for label, key in enumerate(classes)}
    label_of = dict(_columns(folder, "image_class_labels.txt"))
    training = dict(_columns(folder, "train_test_split.txt"))
    listed: dict[str, list[tuple[Path, int]]] = {"train": [], "test": []}
    there: dict[Path, bool] = {}
    for key, name in _columns(folder, "images.txt"):
        relative = PurePosixPath(name)
        if label_of.get(key) not in position or training.get(key) not in ("0", "1"):
            raise DataError(f"image {key} of {printable(folder)} has no class or no part in the split; unpack it again")
        if relative.is_absolute() or ".." in relative.parts:
            raise DataError(f"images.txt in {printable(folder)} names a file outside of images/: {printable(name)}")
        path = folder / "images" / relative
        if path.parent not in there:
            there[path.parent] = path.parent.is_dir()
        if not there[path.parent]:
            continue
        listed["train" if training[key] == "1" else "test"].append((path, position[label_of[key]]))
    if not listed["train"] or not listed["test"]:
        raise missing("cub200", root)
    preprocessing = Preprocessing(size, 3, CLIP.mean, CLIP.std)
    names = tuple(re.sub(r"^\d+\.", "", name) for name in classes.values())
    parts, skipped = read_parts(folder, listed, names, preprocessing, lazy)
    return Splits(parts["train"], parts["test"], CLIP, "cub200", skipped=tuple(skipped), source=folder)
