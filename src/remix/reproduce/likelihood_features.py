"""Features of images for `likelihood`: which images, what networks make of them, and files that need not fit in memory.

Features are written batch by batch and read as memory maps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from remix.data import DataError, ImageDataset, Preprocessing, load
from remix.networks.probe import evaluating
from remix.networks.views import POOLED_PATCHES
from remix.reproduce.photographs import PAPER_CLASSES, find_photographs
from remix.statistics import Hooks

__all__ = [
    "MOST",
    "Features",
    "class_folders",
    "extract_features",
    "map_features",
    "photographs",
    "read_features",
    "token_features",
    "vit_images",
    "write_features",
]

Features = NDArray[Any]
_CLASSES = 4
MOST = {"mini": 100, "paper": 10**9}  # photographs of a class
_BATCH = 20  # images at a time


def class_folders(data: str, scale: str, asked: tuple[str, ...] | None) -> tuple[Path, tuple[str, ...]]:
    """The folder of the photographs, and the classes: those asked for, the paper's at its scale, else the first four.

    Raises:
        ValueError: if a class lacks photographs in train/ or val/; before any is opened.

    """
    root, parts = Path(data), ("train", "val")
    if asked is None and scale == "paper":
        asked = tuple(PAPER_CLASSES)
    if asked is None:
        folder = root if (root / "train").is_dir() else root / "imagenette"
        if not (folder / "train").is_dir():
            raise ValueError(f"--data {root} must have train/ and val/ with one sub-folder of photographs per class")
        asked = tuple(sorted(one.name for one in (folder / "train").iterdir() if one.is_dir())[:_CLASSES])
    return find_photographs(data, asked, parts), asked


def photographs(folder: Path, classes: tuple[str, ...], size: int, scale: str) -> tuple[ImageDataset, ImageDataset]:
    """Training and held-out images of these classes."""
    train, test = _both(str(folder), None, size=size)
    labels = [train.label_of(name) for name in classes]
    return _first(train.relabelled(labels), test.relabelled(labels), len(labels), MOST[scale])


def vit_images(name: str, data: str, size: int) -> tuple[ImageDataset, ImageDataset]:
    """The same of the first four classes of a data set by name or a folder."""
    options: dict[str, Any] = {"size": size} if Path(name).is_dir() else {}
    train, test = _both(name, data, **options)
    if train.input_shape[1:] != (size, size):
        raise ValueError(f"the transformer takes images of {size} x {size} pixels, {name} has {train.input_shape[1:]}")
    return _first(train, test, min(_CLASSES, len(train.classes)), 500)


def _both(name: str, root: str | None, **options: Any) -> tuple[ImageDataset, ImageDataset]:
    try:
        splits = load(name, root, **options)
    except DataError as error:
        raise ValueError(str(error)) from error
    if not len(splits.test):
        raise ValueError(f"{name} has no held-out images (val/ or test/)")
    return splits.train, splits.test


def _first(train: ImageDataset, test: ImageDataset, classes: int, most: int) -> tuple[ImageDataset, ImageDataset]:
    """Of the first classes at most ``most`` images each, classes mixed."""

    def some(data: ImageDataset) -> ImageDataset:
        rows = torch.cat([(data.labels == label).nonzero()[:most, 0] for label in range(classes)])
        return data.select(rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))])

    return some(train), some(test)


def extract_features(
    folder: Path,
    images: tuple[ImageDataset, ImageDataset],
    preprocessing: Preprocessing,
    features: Callable[[Iterator[Tensor]], Iterator[dict[str, Tensor]]],
    say: Callable[[str], None],
) -> None:
    """Write features of training and held-out images, unless they are there."""
    for part, data in zip(("train", "held-out"), images, strict=True):
        place = folder / part
        if place.exists() and list(place.glob("*.npy")) and not list(place.glob("*.unfinished")):
            continue

        def progress(seen: int, rows: int, part: str = part) -> None:
            say(f"features of {part} images: {seen} of {rows}")

        write_features(place, len(data), features(_batches(data, preprocessing)), progress)


def _batches(data: ImageDataset, preprocessing: Preprocessing) -> Iterator[Tensor]:
    """Images as a network takes them, (n, C, H, W) float32."""
    for rows in torch.arange(len(data)).split(_BATCH):
        images, _ = data.batch(rows)
        yield preprocessing.normalisation.normalise(images, torch.float32)


@torch.no_grad()
def map_features(
    network: nn.Module, batches: Iterator[Tensor], points: Mapping[str, str]
) -> Iterator[dict[str, Tensor]]:
    """Activations (n, C, H, W) at points such as ``"layer1.2:output"``, by the names given to them, batch by batch."""
    with evaluating(network):
        for images in batches:
            with Hooks(network, points.values()) as hooks:
                network(images)
            yield {name: hooks[point] for name, point in points.items()}


@torch.no_grad()
def token_features(
    network: nn.Module, batches: Iterator[Tensor], points: Mapping[str, str], tokens: int
) -> Iterator[dict[str, Tensor]]:
    """Of tokens at points, batch by batch: under the name given to a point the mean over patches (n, D), and under that
    name with `` tokens`` at most so many patches of each image, by chance (n, tokens, D).
    """
    generator = torch.Generator().manual_seed(0)
    with evaluating(network):
        for images in batches:
            with Hooks(network, points.values()) as hooks:
                network(images)
            found = {name: hooks[point] for name, point in points.items()}
            first = next(iter(found.values()))
            patches = math.isqrt(first.shape[1]) ** 2
            chosen = torch.rand(len(images), patches, generator=generator).argsort(1)[:, :tokens].sort(1).values
            chosen += first.shape[1] - patches
            rows = torch.arange(len(images))[:, None]
            yield {
                **{name: POOLED_PATCHES.rows(one) for name, one in found.items()},
                **{f"{name} tokens": one[rows, chosen] for name, one in found.items()},
            }


def write_features(
    folder: Path, rows: int, batches: Iterator[Mapping[str, Tensor]], progress: Callable[[int, int], None]
) -> None:
    """Write what comes in batches as one float16 file NAME.npy per name, and the shape of a row beside it.

    A file is complete when its name does not end in ``.unfinished``: what is complete stays, so a killed run can see
    what it has. float16 keeps three digits, which is more than the noise of any statistic of features.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, tuple[Path, np.memmap[Any, Any]]] = {}
    seen = 0
    for batch in batches:
        for name, activation in batch.items():
            if name not in files:
                path = folder / f"{name}.unfinished"
                shape = (rows, *activation.shape[1:])
                files[name] = (path, np.lib.format.open_memmap(path, "w+", np.float16, shape))
            values = activation.detach().half()
            if not bool(torch.isfinite(values).all()):
                raise ValueError(f"features {name!r} are not finite, or beyond 65504")
            files[name][1][seen : seen + len(values)] = values.numpy()
        seen += len(next(iter(batch.values())))
        progress(seen, rows)
    for name, (path, written) in files.items():
        written.flush()
        path.rename(folder / f"{name}.npy")


def read_features(folder: Path, name: str) -> tuple[Features, tuple[int, ...]]:
    """The features of a name as a memory-mapped (N, D) array, and the shape of a row before it was flattened.

    Raises:
        FileNotFoundError: if they were not written, or not completely.
    """
    path = folder / f"{name}.npy"
    if not path.exists():
        raise FileNotFoundError(f"there are no features {path}")
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    return array.reshape(len(array), -1), tuple(array.shape[1:])
