"""Image files and folders -> predictions, leaving out what cannot be read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from remix.data import Preprocessing, Skipped, UnreadableImage
from remix.data.folder import files_below
from remix.deploy.prediction import Predictions, probabilities, strongest
from remix.learning import Model

__all__ = ["FilePredictions", "decoded", "find_images", "predict_files"]


@dataclass(frozen=True, eq=False)
class FilePredictions:
    """Predictions of a batch of files, and the files of the batch that were left out."""

    paths: tuple[Path, ...]
    predictions: Predictions
    skipped: tuple[Skipped, ...]


def find_images(places: Iterable[str | Path], skipped: list[Skipped]) -> Iterator[Path]:
    """The files that are named, and those in folders and the folders in them, whatever they are called.

    Args:
        places: files and folders.
        skipped: gets what is not there or cannot be listed, and empty folders.

    """

    def refuse(error: OSError) -> None:
        skipped.append(Skipped(Path(error.filename or path), f"cannot be listed: {error.strerror}"))

    for place in places:
        path = Path(place)
        if not os.path.isdir(path):
            yield path
            continue
        empty, refused = True, len(skipped)
        for file in files_below(path, refuse):
            empty = False
            yield file
        if empty and len(skipped) == refused:
            skipped.append(Skipped(path, "no image in this folder"))


def predict_files(model: Model, paths: Iterable[Path], top: int = 5, batch: int = 32) -> Iterator[FilePredictions]:
    """Predict files batch by batch; a file that cannot be read is left out with the reason.

    Raises:
        ValueError: if top or batch is below 1.

    """
    if top < 1 or batch < 1:
        raise ValueError(f"--top and --batch must be at least 1, got {top} and {batch}")
    return (
        FilePredictions(usable, strongest(model, probabilities(model, images), top), skipped)
        for usable, images, skipped in decoded(paths, model.preprocessing, batch)
    )


def decoded(
    paths: Iterable[Path], preprocessing: Preprocessing, batch: int
) -> Iterator[tuple[tuple[Path, ...], Tensor, tuple[Skipped, ...]]]:
    """Files in batches: those that are usable, their images uint8 (N, C, size, size), and the others with reasons."""
    rest = iter(paths)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        while chunk := list(islice(rest, batch)):
            read: Sequence[Tensor | Skipped] = list(pool.map(partial(_read, preprocessing), chunk))
            good = [(path, image) for path, image in zip(chunk, read, strict=True) if isinstance(image, Tensor)]
            images = [torch.empty(0, *preprocessing.shape, dtype=torch.uint8), *(image[None] for _, image in good)]
            yield (
                tuple(path for path, _ in good),
                torch.cat(images),
                tuple(one for one in read if isinstance(one, Skipped)),
            )


def _read(preprocessing: Preprocessing, path: Path) -> Tensor | Skipped:
    try:
        return preprocessing.encoded(path)
    except UnreadableImage as error:
        return Skipped(path, error.reason)
