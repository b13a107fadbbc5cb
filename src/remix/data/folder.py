"""Any folder of photographs, one sub-folder per class, as a data set."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path

import torch
from torch import Tensor

from remix.data.errors import DataError, UnreadableImage, printable
from remix.data.folder_scan import scan
from remix.data.images import ImageDataset, ImageFiles
from remix.data.normalisation import IMAGENET, Normalisation
from remix.data.preprocessing import Preprocessing
from remix.data.registry import dataset
from remix.data.splits import Skipped, Splits, hold_out

__all__ = ["folder", "read_files"]

MEMORY_LIMIT = 2**30
"""Bytes up to which decoded images are kept in memory when ``lazy`` is not given."""


@dataset("folder", place="one sub-folder of images per class (cat/, dog/, ...), or train/cat/ and test/cat/")
def folder(
    root: Path,
    size: int = 224,
    channels: int = 3,
    holdout: float = 0.2,
    seed: int = 0,
    lazy: bool | None = None,
    normalisation: Normalisation | None = None,
) -> Splits:
    """Any folder of images, one sub-folder per class; give its path instead of a name.

    With sub-folders train and test (or val) those are the parts, otherwise a fraction of every class is held out.
    Every file is decoded once; those that cannot be used are left out and listed in ``Splits.skipped``.

    Args:
        root: the folder.
        size: height and width in pixels: the shorter side is resized, the middle kept.
        channels: 3 for RGB, 1 for grey.
        holdout: fraction of every class for the test part, where the folder has none.
        seed: of that split.
        lazy: decode again each time (True), keep the pixels in memory (False), or by size: up to 1 GiB in memory.
        normalisation: of the channels; that of ImageNet if not given (its grey average for one channel).

    Raises:
        MissingData, DataError: see :func:`remix.data.folder_scan.scan`; also for a class of which no file is usable.

    """
    if normalisation is None:
        grey = Normalisation((sum(IMAGENET.mean) / 3,), (sum(IMAGENET.std) / 3,))
        normalisation = IMAGENET if channels == 3 else grey
    preprocessing = Preprocessing(size, channels, normalisation.mean, normalisation.std)
    found = scan(root)
    total = sum(len(files) for part in found.parts.values() for files in part)
    if lazy is None:
        lazy = total * channels * size * size > MEMORY_LIMIT
    parts: dict[str, ImageDataset] = {}
    skipped: list[Skipped] = []
    for part, by_class in found.parts.items():
        paths = [path for files in by_class for path in files]
        labels = torch.tensor([label for label, files in enumerate(by_class) for _ in files], dtype=torch.int64)
        parts[part], left_out = read_files(paths, labels, found.classes, preprocessing, lazy)
        skipped += left_out
    if empty := [name for name, count in parts["train"].counts().items() if not count]:
        shown = "; ".join(str(one) for one in skipped[:5]) + ("; ..." if len(skipped) > 5 else "")
        raise DataError(f"no usable training image of {', '.join(empty)} in {printable(root)}: {shown}")
    if "test" not in parts:
        parts["train"], parts["test"] = hold_out(parts["train"], holdout, seed)
    return Splits(
        parts["train"], parts["test"], normalisation, root.name or "folder", parts.get("validation"), tuple(skipped)
    )


def read_files(
    paths: list[Path], labels: Tensor, classes: tuple[str, ...], preprocessing: Preprocessing, lazy: bool
) -> tuple[ImageDataset, list[Skipped]]:
    """Decode every file once, with as many threads as processors: the usable ones, and the others with reasons.

    With ``lazy`` only the fact that a file is usable is kept, otherwise its pixels.
    """
    usable = torch.ones(len(paths), dtype=torch.bool)
    pixels = torch.empty(0 if lazy else len(paths), *preprocessing.shape, dtype=torch.uint8)
    skipped: list[Skipped] = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(_try_file, paths, repeat(preprocessing))
        for position, (path, result) in enumerate(zip(paths, results, strict=True)):
            if isinstance(result, str):
                usable[position] = False
                skipped.append(Skipped(path, result))
            elif not lazy:
                pixels[position] = result
    files = ImageFiles(tuple(path for path, good in zip(paths, usable.tolist(), strict=True) if good), preprocessing)
    images = files if lazy else pixels if bool(usable.all()) else pixels[usable]
    return ImageDataset(images, labels[usable], classes), skipped


def _try_file(path: Path, preprocessing: Preprocessing) -> Tensor | str:
    """The pixels, or why there are none. With one image per result, `map` keeps what waits to be stored small."""
    try:
        return preprocessing.file(path)
    except UnreadableImage as error:
        return error.reason
