"""Train and test parts of a data set, and the seeded split where none is given."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from remix.data.errors import DataError, Skipped
from remix.data.images import ImageDataset
from remix.data.normalisation import Normalisation
from remix.data.preprocessing import Preprocessing

__all__ = ["Splits", "hold_out", "stratified"]


@dataclass(frozen=True)
class Splits:
    """A data set as it is used: what to train on, what to test on, and how bytes become network input.

    Attributes:
        train, test: with the same classes and image shape.
        normalisation: of each channel.
        name: as it was asked for.
        validation: a third part, where the data on disk have one.
        skipped: files, and folders, that were left out, with reasons; show them at the end.
        source: the folder that was read.

    """

    train: ImageDataset
    test: ImageDataset
    normalisation: Normalisation
    name: str
    validation: ImageDataset | None = None
    skipped: tuple[Skipped, ...] = field(default=(), repr=False)
    source: Path | None = None

    def __post_init__(self) -> None:
        for other in (self.test, self.validation):
            if other is not None and other.classes != self.train.classes:
                raise DataError("train and test parts must have the same classes in the same order")

    @property
    def classes(self) -> tuple[str, ...]:
        """Names, by label."""
        return self.train.classes

    @property
    def preprocessing(self) -> Preprocessing:
        """What a new picture goes through to look like these.

        Raises:
            DataError: if the images are not square.

        """
        channels, height, width = self.train.input_shape
        if height != width:
            raise DataError(f"images are {height} x {width}; only square ones can be learned")
        return Preprocessing(height, channels, self.normalisation.mean, self.normalisation.std)


def stratified(labels: Tensor, fraction: float, seed: int) -> tuple[Tensor, Tensor]:
    """Positions of a (kept, held out) split that takes the same fraction of every class; both in rising order.

    Every class with two images or more keeps one and gives one, unless ``fraction`` is 0.

    Raises:
        DataError: unless 0 <= fraction < 1.

    """
    if not 0 <= fraction < 1:
        raise DataError(f"the fraction to hold out must be within 0 (nothing) and 1, got {fraction}")
    generator = torch.Generator().manual_seed(seed)
    held = torch.zeros(len(labels), dtype=torch.bool)
    for label in labels.unique().tolist():
        members = (labels == label).nonzero().squeeze(1)
        count = min(max(round(fraction * len(members)), 1), len(members) - 1) if fraction > 0 else 0
        held[members[torch.randperm(len(members), generator=generator)[:count]]] = True
    return (~held).nonzero().squeeze(1), held.nonzero().squeeze(1)


def hold_out(dataset: ImageDataset, fraction: float, seed: int) -> tuple[ImageDataset, ImageDataset]:
    """(kept, held out) parts of a data set, the same fraction of every class. See :func:`stratified`."""
    kept, held = stratified(dataset.labels, fraction, seed)
    return dataset.select(kept), dataset.select(held)
