"""Whatever a person calls their data -> labelled images of one size, a held-out part, and the names of the classes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from remix.data.errors import DataError, Skipped, UnreadableImage
from remix.data.folder import folder
from remix.data.images import ImageDataset, Splits, hold_out
from remix.data.preprocessing import Preprocessing

__all__ = ["Intake", "first_images", "take_in"]

_MOST_BYTES = 4 * 2**30  # of decoded images that do not come from a folder, which is read from disk again and again


@dataclass(frozen=True)
class Intake:
    """Images to learn from.

    Attributes:
        train: labels 0, 1, ... in the order of ``train.classes``; every class has an image.
        held: the part that is kept apart for testing, with the same classes; it may be empty.
        skipped: files, and folders, that were left out, with reasons.

    """

    train: ImageDataset
    held: ImageDataset
    skipped: tuple[Skipped, ...] = ()

    @property
    def classes(self) -> tuple[str, ...]:
        """Names, by label."""
        return self.train.classes


def take_in(
    data: Any,
    preprocessing: Preprocessing,
    *,
    classes: Sequence[str] | None = None,
    holdout: float = 0.2,
    seed: int = 0,
    called: Callable[[int], str] = "class {}".format,
) -> Intake:
    """Read labelled images of any kind.

    Args:
        data: a folder with one sub-folder per class; a pair (images, labels) of tensors, arrays or lists; a
            ``DataLoader`` or ``Dataset`` of (image, label); a Hugging Face dataset with an image and a label column;
            an :class:`ImageDataset` or :class:`Splits`. Images as `Preprocessing` takes them, not normalised.
        preprocessing: what is done to every image.
        classes: names by label, where labels are numbers. By default those that the data bring along (``.classes``,
            the names of a label column), or else what ``called`` says.
        holdout: fraction of every class to hold out, where the data do not come in two parts.
        seed: of that choice.
        called: name of a label that has none; ``class 0``, ``class 1``, ... by default.

    Raises:
        DataError: in one sentence, for data that cannot be used; says which image or label.

    """
    if isinstance(data, str | Path):
        if classes is not None:
            raise DataError("the names of a folder's classes are those of its sub-folders: leave classes out")
        found = folder(
            Path(data),
            preprocessing.size,
            preprocessing.channels,
            holdout,
            seed,
            normalisation=preprocessing.normalisation,
        )
        return Intake(found.train, found.test, found.skipped)
    if isinstance(data, Splits):
        return Intake(_of_shape(data.train, preprocessing), _of_shape(data.test, preprocessing), data.skipped)
    whole = (
        _of_shape(data, preprocessing)
        if isinstance(data, ImageDataset)
        else _collect(data, preprocessing, classes, called)
    )
    present = torch.unique(whole.labels).tolist()
    if not present:
        raise DataError("there is no image in the data")
    return Intake(*hold_out(whole.relabelled(present), holdout, seed))


def first_images(data: Any, count: int) -> list[Any]:
    """Some images of data that `take_in` takes, as they are, but a folder; an iterator has given them away then."""
    if isinstance(data, Splits):
        data = data.train
    if isinstance(data, ImageDataset):
        return list(data.batch(range(min(count, len(data))))[0])
    pairs, _ = _pairs(data)
    return list(pairs[0][:count]) if isinstance(pairs, tuple) else [image for image, _ in islice(pairs, count)]


def _of_shape(data: ImageDataset, preprocessing: Preprocessing) -> ImageDataset:
    if data.input_shape == preprocessing.shape:
        return data
    images = torch.cat([preprocessing.batch(data.batch([i])[0]) for i in range(len(data))])
    return ImageDataset(images, data.labels, data.classes)


def _collect(
    data: Any, preprocessing: Preprocessing, given: Sequence[str] | None, called: Callable[[int], str]
) -> ImageDataset:
    pairs, names = _pairs(data)
    if given is not None:
        names = list(given)
    if isinstance(pairs, tuple):
        images, found = pairs
        if images.shape[1:] != preprocessing.shape or images.dtype != torch.uint8:
            images = _stacked(images, preprocessing)
    else:
        rows: list[Tensor] = []
        found = []
        budget = _MOST_BYTES
        for image, label in pairs:
            rows.append(_image(image, len(rows), preprocessing))
            found.append(label)
            budget -= rows[-1].numel()
            if budget < 0:
                raise DataError(
                    f"the data have more than {len(rows):,} images of {preprocessing.size} pixels, {_MOST_BYTES >> 30} "
                    "GiB: save them as a folder of image files, which is read piece by piece, or choose a smaller size"
                )
        images = torch.stack(rows) if rows else torch.empty(0, *preprocessing.shape, dtype=torch.uint8)
    labels, known = _labels(found, names, called)
    if len(labels) != len(images):
        raise DataError(f"there are {len(images):,} images but {len(labels):,} labels")
    return ImageDataset(images, labels, known)


Pairs = Iterable[tuple[Any, Any]] | tuple[Tensor, Any]


def _pairs(data: Any) -> tuple[Pairs, Sequence[str] | None]:
    """Images with labels, one by one or as one tensor (N, C, H, W) with all labels; and names, if the data have any."""
    if isinstance(data, tuple | list) and len(data) == 2 and not _is_pair(data[0]):
        images, labels = data
        if isinstance(images, np.ndarray) and images.ndim == 4 and images.shape[-1] not in (1, 3, 4):
            images = torch.from_numpy(images)
        if isinstance(images, Tensor) and images.ndim == 4:
            return (images, labels), None
        if isinstance(images, Tensor | np.ndarray) and images.ndim == 3:  # grey images, not one colour image
            images = images[:, None] if isinstance(images, Tensor) else images[..., None]
        if not hasattr(images, "__len__") or not hasattr(labels, "__len__") or len(images) != len(labels):
            raise DataError(f"a pair must be (images, labels) of one length, got {_size(images)} and {_size(labels)}")
        return zip(images, labels, strict=True), None
    if isinstance(data, Mapping) or isinstance(getattr(data, "column_names", None), Mapping):
        keys = ", ".join(map(str, data)) if isinstance(data, Mapping) else ""
        raise DataError(f"these are several data sets ({keys}): give one of them, such as data['train']")
    if getattr(data, "column_names", None) is not None and getattr(data, "features", None) is not None:
        return _hugging_face(data)
    if isinstance(data, DataLoader):
        return _unbatched(data), _names(data.dataset)
    if hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        return (_pair(data[i], i) for i in range(len(data))), _names(data)
    if isinstance(data, Iterable):
        return (_pair(item, i) for i, item in enumerate(data)), _names(data)
    raise DataError(
        f"data must be a folder, (images, labels), a Dataset or DataLoader of (image, label), or a Hugging Face "
        f"dataset, got {type(data).__name__}"
    )


def _is_pair(item: Any) -> bool:
    """Whether this is (image, label), rather than a list of two images."""
    return (
        isinstance(item, tuple | list) and len(item) == 2 and (isinstance(item[1], int | str) or np.ndim(item[1]) == 0)
    )


def _pair(item: Any, number: int) -> tuple[Any, Any]:
    if not isinstance(item, tuple | list) or len(item) < 2:
        raise DataError(f"item {number} of the data must be (image, label), got {type(item).__name__}")
    return item[0], item[1]


def _unbatched(loader: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    for number, batch in enumerate(loader):
        images, labels = _pair(batch, number)
        if len(images) != len(labels):
            raise DataError(f"batch {number} of the loader has {len(images)} images and {len(labels)} labels")
        yield from zip(images, labels, strict=True)


def _hugging_face(data: Any) -> tuple[Pairs, Sequence[str] | None]:
    """By the kinds of the columns; nothing of the library is imported."""
    kinds = {name: type(feature).__name__ for name, feature in data.features.items()}
    image = next(
        (n for n, kind in kinds.items() if kind == "Image"), next((n for n in ("image", "img") if n in kinds), "")
    )
    labelled = next((n for n, kind in kinds.items() if kind == "ClassLabel"), "")
    label = labelled or next((name for name in ("label", "labels", "fine_label") if name in kinds), "")
    if not image or not label:
        columns = ", ".join(map(str, kinds))
        raise DataError(
            f"the dataset needs an image and a label column (it has {columns}): rename them image and label"
        )
    names = list(data.features[labelled].names) if labelled else None
    return ((row[image], row[label]) for row in data), names


def _names(data: Any) -> Sequence[str] | None:
    """What a data set calls its classes; a subset asks the one it is of."""
    while data is not None:
        names = getattr(data, "classes", None)
        if isinstance(names, Sequence) and not isinstance(names, str) and names:
            return [str(name) for name in names]
        data = getattr(data, "dataset", None)
    return None


def _image(image: Any, number: int, preprocessing: Preprocessing) -> Tensor:
    try:
        return preprocessing(image)
    except UnreadableImage as error:
        hint = "; leave normalisation out, the model does it" if "within 0..1" in error.reason else ""
        raise DataError(f"image {number} of the data cannot be used: {error.reason}{hint}") from error
    except (TypeError, ValueError) as error:
        raise DataError(f"image {number} of the data cannot be used: it is a {type(image).__name__}") from error


def _stacked(images: Tensor, preprocessing: Preprocessing) -> Tensor:
    rows = [_image(image, number, preprocessing) for number, image in enumerate(images)]
    return torch.stack(rows) if rows else torch.empty(0, *preprocessing.shape, dtype=torch.uint8)


def _labels(given: Any, names: Sequence[str] | None, called: Callable[[int], str]) -> tuple[Tensor, tuple[str, ...]]:
    """Labels (N,) and names by label, from numbers or from names."""
    if isinstance(given, Tensor | np.ndarray):
        if given.ndim != 1:
            raise DataError(f"labels must be one number per image, got shape {tuple(given.shape)}")
        given = given.tolist()
    listed = list(given)
    if listed and all(isinstance(label, str) for label in listed):
        known = tuple(names) if names is not None else tuple(sorted(set(listed)))
        place = {name: i for i, name in enumerate(known)}
        if foreign := [label for label in listed if label not in place]:
            raise DataError(f"the label {foreign[0]!r} is not among the names of the classes: {', '.join(known[:10])}")
        return torch.tensor([place[label] for label in listed], dtype=torch.int64), known
    numbers = [_number(label, i) for i, label in enumerate(listed)]
    if names is None:
        names = [called(i) for i in range(max(numbers, default=-1) + 1)]
    if numbers and max(numbers) >= len(names):
        where = numbers.index(max(numbers))
        raise DataError(
            f"image {where} has the label {numbers[where]}, but there are names of only {len(names)} classes "
            f"(0 to {len(names) - 1})"
        )
    return torch.tensor(numbers, dtype=torch.int64), tuple(map(str, names))


_LARGEST_LABEL = 1_000_000


def _number(label: Any, place: int) -> int:
    try:
        number = operator.index(label.item() if hasattr(label, "item") else label)
    except (TypeError, ValueError, RuntimeError) as error:
        kind = f"shape {tuple(label.shape)}" if hasattr(label, "shape") and label.shape else repr(label)[:40]
        raise DataError(f"the label of image {place} must be a whole number or a name, got {kind}") from error
    if not 0 <= number <= _LARGEST_LABEL:
        raise DataError(f"the label of image {place} is {number}; labels begin at 0 and end at {_LARGEST_LABEL:,}")
    return number


def _size(values: Any) -> str:
    return f"{len(values)}" if hasattr(values, "__len__") else type(values).__name__
