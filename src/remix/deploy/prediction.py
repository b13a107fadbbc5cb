"""What a model says about images, and about files of them, leaving out what cannot be read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from remix.data import Preprocessing, Skipped, UnreadableImage
from remix.data.folder import files_below
from remix.deploy.recognition import UNKNOWN, Recognition
from remix.learning import Model
from remix.networks.probe import evaluating, where_not_finite
from remix.support.text import counted, printable

__all__ = ["FilePredictions", "Predictions", "decoded", "find_images", "predict", "predict_files", "probabilities"]

_SHOWN = 10  # images


@dataclass(frozen=True, eq=False, repr=False)
class Predictions:
    """The most probable classes of every image, the most probable first.

    Attributes:
        labels: int64 (N, top).
        names: of the classes, N tuples of ``top`` names.
        probabilities: float32 (N, top), of all classes that the model knows.
        familiar: float64 (N,), the share of images of known classes that look no more familiar than this one; None
            unless it was asked whether images are of known classes.
        known: bool (N,), whether they are taken to be; None likewise.

    """

    labels: Tensor
    names: tuple[tuple[str, ...], ...]
    probabilities: Tensor
    familiar: Tensor | None = None
    known: Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        """The classes of the first images, with their probabilities."""
        lines = [f"Predictions of {counted(len(self), 'image')}"]
        for number, (names, chances) in enumerate(zip(self.names[:_SHOWN], self.probabilities.tolist(), strict=False)):
            told = ", ".join(f"{printable(name)} {100 * p:.1f} %" for name, p in zip(names, chances, strict=True))
            known = self.known is None or bool(self.known[number])
            lines.append(f"  {number}: {told if known else f'{UNKNOWN} ({told})'}")
        return "\n".join(lines + ["  ..."] * (len(self) > _SHOWN))

    @property
    def answers(self) -> tuple[str, ...]:
        """The most probable class of every image, or "unknown"."""
        known = [True] * len(self) if self.known is None else self.known.tolist()
        return tuple(names[0] if one else UNKNOWN for names, one in zip(self.names, known, strict=True))


def predict(model: Model, images: Any, top: int = 5, batch: int = 32, unknown: float | None = None) -> Predictions:
    """Predict the classes of images; what is done to them first is stored with the model.

    Args:
        model: on the device where it is to run.
        images: one image or several: Pillow images, paths, arrays (H, W[, C]) or tensors ([C,] H, W), uint8, uint16 or
            floats within 0..1; also one tensor or array with a first axis for the images, of four axes in all.
        top: classes per image; all, if the model knows fewer.
        batch: images at a time.
        unknown: share of the images of known classes to keep, such as 0.95; other images are called unknown.

    Raises:
        ValueError: if top or batch is below 1; for a model that cannot tell unknown images.
        UnreadableImage: for what is no image.

    """
    if top < 1 or batch < 1:
        raise ValueError(f"top and batch must be at least 1, got {top} and {batch}")
    recognition = None if unknown is None else Recognition(model, unknown)
    rows = iter(_listed(images))
    found = [_asked(model, torch.empty(0, *model.preprocessing.shape, dtype=torch.uint8), recognition)]
    while chunk := list(islice(rows, batch)):
        found.append(_asked(model, model.preprocessing.batch(chunk), recognition))
    chances, familiar = (torch.cat(parts) for parts in zip(*found, strict=True))
    return _strongest(model, chances, familiar, recognition, top)


def probabilities(model: Model, images: Tensor) -> Tensor:
    """Of every class, (N, classes) on the CPU, for images as the preprocessing makes them: uint8 (N, C, H, W)."""
    return _asked(model, images, None)[0]


def _asked(model: Model, images: Tensor, recognition: Recognition | None) -> tuple[Tensor, Tensor]:
    """Probabilities (N, classes), and how familiar images look (N,): 1 if nobody asks."""
    if not len(images):
        return torch.empty(0, len(model.classes)), torch.ones(0)
    classifier = model.classifier
    parameter = next(classifier.parameters())
    x = model.preprocessing.normalisation.normalise(images.to(parameter.device), parameter.dtype)
    with evaluating(classifier):
        pooled = classifier.pooled(x)
        chances = (model.scale * classifier.head(pooled).float()).softmax(1).cpu()
        familiar = torch.ones(len(images)) if recognition is None else recognition.familiar(pooled)
    if not bool(torch.isfinite(chances).all()):
        where = where_not_finite(classifier.backbone, x)
        raise ValueError(f"the model gives NaN or infinite numbers for an image{where}: it cannot be used")
    return chances, familiar


def _strongest(
    model: Model, chances: Tensor, familiar: Tensor, recognition: Recognition | None, top: int
) -> Predictions:
    """The ``top`` most probable classes of each row of probabilities (N, classes); equal ones in the model's order."""
    values, labels = chances.sort(dim=1, descending=True, stable=True)
    values, labels = values[:, :top], labels[:, :top]
    names = tuple(tuple(model.classes[label] for label in row) for row in labels.tolist())
    if recognition is None:
        return Predictions(labels, names, values)
    return Predictions(labels, names, values, familiar, recognition.known(familiar))


def _listed(images: Any) -> Iterable[Any]:
    """One image is a list of one. Three axes are those of a single image."""
    single = isinstance(images, str | Path | Image.Image) or (
        isinstance(images, Tensor | np.ndarray) and images.ndim < 4
    )
    return [images] if single else images


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


def predict_files(
    model: Model, paths: Iterable[Path], top: int = 5, batch: int = 32, unknown: float | None = None
) -> Iterator[FilePredictions]:
    """Predict files batch by batch, as `predict`; a file that cannot be read is left out with the reason.

    Raises:
        ValueError: if top or batch is below 1; for a model that cannot tell unknown images.

    """
    if top < 1 or batch < 1:
        raise ValueError(f"--top and --batch must be at least 1, got {top} and {batch}")
    recognition = None if unknown is None else Recognition(model, unknown)
    return (
        FilePredictions(usable, _strongest(model, *_asked(model, images, recognition), recognition, top), skipped)
        for usable, images, skipped in decoded(paths, model.preprocessing, batch)
    )


def decoded(
    paths: Iterable[Path], preprocessing: Preprocessing, batch: int
) -> Iterator[tuple[tuple[Path, ...], Tensor, tuple[Skipped, ...]]]:
    """Files in batches: those that are usable, their images uint8 (N, C, size, size), and the others with reasons."""

    def read_one(path: Path) -> Tensor | Skipped:
        try:
            return preprocessing.encoded(path)
        except UnreadableImage as error:
            return Skipped(path, error.reason)

    rest = iter(paths)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        while chunk := list(islice(rest, batch)):
            read = list(pool.map(read_one, chunk))
            good = [(path, image) for path, image in zip(chunk, read, strict=True) if isinstance(image, Tensor)]
            images = [torch.empty(0, *preprocessing.shape, dtype=torch.uint8), *(image[None] for _, image in good)]
            yield (
                tuple(path for path, _ in good),
                torch.cat(images),
                tuple(one for one in read if isinstance(one, Skipped)),
            )
