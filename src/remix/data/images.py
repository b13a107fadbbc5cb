"""`ImageDataset`: labelled images, as bytes or as files decoded when needed. `Splits`: train and test parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from remix.data.errors import DataError, Skipped, UnreadableImage
from remix.data.preprocessing import Normalisation, Preprocessing
from remix.support.text import counted, did_you_mean, some

__all__ = ["ImageDataset", "ImageFiles", "ResizedImages", "Splits", "first_of_each", "hold_out"]


@dataclass(frozen=True)
class ImageFiles:
    """Image files that are decoded each time they are asked for."""

    paths: tuple[Path, ...]
    preprocessing: Preprocessing

    def __len__(self) -> int:
        return len(self.paths)

    def select(self, indices: Tensor) -> ImageFiles:
        """Those files, in that order."""
        return replace(self, paths=tuple(self.paths[i] for i in indices.tolist()))

    def batch(self, indices: Tensor) -> Tensor:
        """Decode: uint8 (B, C, H, W).

        Raises:
            UnreadableImage: for a file that was changed or removed since the folder was read.

        """
        chosen = [self.paths[i] for i in indices.tolist()]
        out = torch.empty(len(chosen), *self.preprocessing.shape, dtype=torch.uint8)
        for row, path in zip(out, chosen, strict=True):
            try:
                row.copy_(self.preprocessing.encoded(path))
            except UnreadableImage as error:
                raise UnreadableImage(path, f"{error.reason}; it was readable before. Restore or remove it") from error
        return out


@dataclass(frozen=True)
class ResizedImages(ImageFiles):
    """Small images in memory that are brought to another size each time they are asked for.

    Attributes:
        stored: uint8 (N, C, H, W).

    """

    stored: Tensor = field(default_factory=lambda: torch.empty(0, 1, 1, 1, dtype=torch.uint8))

    def __len__(self) -> int:
        return len(self.stored)

    def select(self, indices: Tensor) -> ResizedImages:
        """Those images, in that order."""
        return replace(self, stored=self.stored.index_select(0, indices))

    def batch(self, indices: Tensor) -> Tensor:
        """Resize: uint8 (B, C, size, size)."""
        side = self.preprocessing.size
        small = self.stored.index_select(0, indices).float()
        found = interpolate(small, (side, side), mode="bicubic", align_corners=False, antialias=True)
        return found.round().clamp(0, 255).to(torch.uint8)


@dataclass(frozen=True, repr=False)
class ImageDataset:
    """Images with labels and class names.

    Attributes:
        images: uint8 (N, C, H, W), or files that are decoded when needed.
        labels: int64 (N,), ``classes[label]`` is the name.
        classes: one name per label.

    Raises:
        DataError: if the parts do not fit together.

    """

    images: Tensor | ImageFiles
    labels: Tensor
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", tuple(self.classes))
        if isinstance(self.images, Tensor) and (self.images.dtype != torch.uint8 or self.images.ndim != 4):
            raise DataError(
                f"images must be uint8 (N, C, H, W), got {self.images.dtype} {tuple(self.images.shape)}; "
                "Preprocessing.batch makes that of any images"
            )
        if self.labels.dtype != torch.int64 or self.labels.shape != (len(self.images),):
            raise DataError(
                f"labels must be int64 ({len(self.images)},), one per image, "
                f"got {self.labels.dtype} {tuple(self.labels.shape)}"
            )
        if len(self.labels) and not (int(self.labels.min()) >= 0 and int(self.labels.max()) < len(self.classes)):
            raise DataError(
                f"labels run from {int(self.labels.min())} to {int(self.labels.max())}, "
                f"but there are {len(self.classes)} classes: 0 to {len(self.classes) - 1}"
            )
        if len(set(self.classes)) != len(self.classes):
            twice = sorted(name for name, times in Counter(self.classes).items() if times > 1)
            raise DataError(f"class names must differ, these come twice: {', '.join(twice[:10])}")

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.input_shape))
        return f"ImageDataset of {counted(len(self), 'image')}, {shape}, of {some(self.classes)}"

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """(C, H, W) of every image."""
        if isinstance(self.images, ImageFiles):
            return self.images.preprocessing.shape
        channels, height, width = self.images.shape[1:]
        return channels, height, width

    @property
    def in_memory(self) -> bool:
        """Whether the images are bytes in memory."""
        return isinstance(self.images, Tensor)

    def counts(self) -> dict[str, int]:
        """Number of images per class, in label order; classes without images count 0."""
        return dict(zip(self.classes, torch.bincount(self.labels, minlength=len(self.classes)).tolist(), strict=True))

    def batch(self, indices: Tensor | Sequence[int]) -> tuple[Tensor, Tensor]:
        """Images and labels at these positions: uint8 (B, C, H, W) and int64 (B,)."""
        at = torch.as_tensor(indices, dtype=torch.int64, device=self.labels.device)
        images = self.images.batch(at) if isinstance(self.images, ImageFiles) else self.images.index_select(0, at)
        return images, self.labels.index_select(0, at)

    def select(self, indices: Tensor | Sequence[int]) -> ImageDataset:
        """The images at these positions (whole numbers or a boolean mask), with the same classes."""
        at = torch.as_tensor(indices, device=self.labels.device)
        at = at.nonzero().squeeze(1) if at.dtype == torch.bool else at.to(torch.int64)
        images = self.images.select(at) if isinstance(self.images, ImageFiles) else self.images.index_select(0, at)
        return ImageDataset(images, self.labels.index_select(0, at), self.classes)

    def of_classes(self, classes: Iterable[int | str]) -> ImageDataset:
        """The images of these classes (labels or names); labels and names stay as they are.

        Raises:
            DataError: for a class that is not there.

        """
        wanted = torch.tensor([self.label_of(name) for name in classes], device=self.labels.device)
        return self.select(torch.isin(self.labels, wanted))

    def relabelled(self, order: Sequence[int]) -> ImageDataset:
        """The images of the classes in ``order``, where class ``order[k]`` gets label k; others are left out.

        Raises:
            DataError: if a label comes twice or is not there.

        """
        if len(set(order)) != len(order) or not set(order) <= set(range(len(self.classes))):
            raise DataError(f"an order names labels within 0..{len(self.classes) - 1}, each once, got {list(order)}")
        position = torch.full((len(self.classes),), -1, device=self.labels.device)
        position[list(order)] = torch.arange(len(order), device=self.labels.device)
        kept = self if len(order) == len(self.classes) else self.of_classes(order)
        return ImageDataset(kept.images, position[kept.labels], tuple(self.classes[k] for k in order))

    def label_of(self, name: int | str) -> int:
        """The label of a class given by name, or by the label itself.

        Raises:
            DataError: if there is no such class.

        """
        if isinstance(name, int) and 0 <= name < len(self.classes):
            return name
        if isinstance(name, str) and name in self.classes:
            return self.classes.index(name)
        hint = did_you_mean(str(name), self.classes)
        shown = ", ".join(self.classes[:20]) + (", ..." if len(self.classes) > 20 else "")
        raise DataError(f"no class {name!r}{hint}; there are {len(self.classes)}: {shown}")

    def to(self, device: torch.device | str) -> ImageDataset:
        """The same with labels, and images that are in memory, on a device."""
        images = self.images.to(device) if isinstance(self.images, Tensor) else self.images
        return replace(self, images=images, labels=self.labels.to(device))

    def decoded(self) -> ImageDataset:
        """The same with all images in memory: N x C x H x W bytes."""
        if isinstance(self.images, Tensor):
            return self
        return replace(self, images=self.images.batch(torch.arange(len(self))))


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
    def here(self) -> tuple[str, ...]:
        """Names of the classes that have training images; of a part of a data set not all."""
        return tuple(name for name, count in self.train.counts().items() if count)

    @property
    def parts(self) -> dict[str, ImageDataset]:
        """By name, as they are shown."""
        parts = {"train": self.train, "test": self.test}
        return parts if self.validation is None else parts | {"validation": self.validation}

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


def first_of_each(dataset: ImageDataset, count: int | None) -> ImageDataset:
    """The first ``count`` images of every class, in the order they had; all without a count."""
    if count is None:
        return dataset
    kept = torch.zeros(len(dataset), dtype=torch.bool)
    for label in dataset.labels.unique().tolist():
        kept[(dataset.labels == label).nonzero().squeeze(1)[:count]] = True
    return dataset.select(kept)


def hold_out(dataset: ImageDataset, fraction: float, seed: int) -> tuple[ImageDataset, ImageDataset]:
    """(kept, held out) parts of a data set that take the same fraction of every class, in the order they had.

    Every class with two images or more keeps one and gives one, unless ``fraction`` is 0.

    Raises:
        DataError: unless 0 <= fraction < 1.

    """
    if not 0 <= fraction < 1:
        raise DataError(f"the fraction to hold out must be within 0 (nothing) and 1, got {fraction}")
    generator = torch.Generator().manual_seed(seed)
    held = torch.zeros(len(dataset), dtype=torch.bool)
    for label in dataset.labels.unique().tolist():
        members = (dataset.labels == label).nonzero().squeeze(1)
        count = min(max(round(fraction * len(members)), 1), len(members) - 1) if fraction > 0 else 0
        held[members[torch.randperm(len(members), generator=generator)[:count]]] = True
    return dataset.select(~held), dataset.select(held)
