"""What a model says about images."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from remix.learning import Model
from remix.networks.probe import evaluating

__all__ = ["Predictions", "predict", "probabilities", "strongest"]


@dataclass(frozen=True, eq=False)
class Predictions:
    """The most probable classes of every image, the most probable first.

    Attributes:
        labels: int64 (N, top).
        names: of the classes, N tuples of ``top`` names.
        probabilities: float32 (N, top), of all classes that the model knows.

    """

    labels: Tensor
    names: tuple[tuple[str, ...], ...]
    probabilities: Tensor

    def __len__(self) -> int:
        return len(self.labels)


def predict(model: Model, images: Any, top: int = 5, batch: int = 32) -> Predictions:
    """Predict the classes of images; what is done to them first is stored with the model.

    Args:
        model: on the device where it is to run.
        images: one image or several: Pillow images, paths, arrays (H, W[, C]) or tensors ([C,] H, W), uint8, uint16 or
            floats within 0..1; also one tensor or array with a first axis for the images, of four axes in all.
        top: classes per image; all, if the model knows fewer.
        batch: images at a time.

    Raises:
        ValueError: if top or batch is below 1.
        UnreadableImage: for what is no image.

    """
    if top < 1 or batch < 1:
        raise ValueError(f"top and batch must be at least 1, got {top} and {batch}")
    found = [probabilities(model, part) for part in _batches(model, images, batch)]
    return strongest(model, torch.cat([torch.empty(0, len(model.classes)), *found]), top)


def probabilities(model: Model, images: Tensor) -> Tensor:
    """Of every class, (N, classes) on the CPU, for images as the preprocessing makes them: uint8 (N, C, H, W)."""
    if not len(images):
        return torch.empty(0, len(model.classes))
    parameter = next(model.classifier.parameters())
    x = model.preprocessing.normalisation.normalise(images.to(parameter.device), parameter.dtype)
    with evaluating(model.classifier):
        chances = model.classifier(x).float().softmax(1).cpu()
    if not bool(torch.isfinite(chances).all()):
        raise ValueError("the model gives NaN or infinite numbers for an image: it cannot be used")
    return chances


def strongest(model: Model, chances: Tensor, top: int) -> Predictions:
    """The ``top`` most probable classes of each row of probabilities (N, classes); equal ones in the model's order."""
    values, labels = chances.sort(dim=1, descending=True, stable=True)
    values, labels = values[:, :top], labels[:, :top]
    names = tuple(tuple(model.classes[label] for label in row) for row in labels.tolist())
    return Predictions(labels, names, values)


def _batches(model: Model, images: Any, size: int) -> Iterator[Tensor]:
    rows = iter(_listed(images))
    while chunk := list(islice(rows, size)):
        yield model.preprocessing.batch(chunk)


def _listed(images: Any) -> Iterable[Any]:
    """One image is a list of one. Three axes are those of a single image."""
    single = isinstance(images, str | Path | Image.Image) or (
        isinstance(images, Tensor | np.ndarray) and images.ndim < 4
    )
    return [images] if single else images
