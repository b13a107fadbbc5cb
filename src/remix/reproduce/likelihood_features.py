"""Features of images for `likelihood`: which images, what networks make of them, and files that need not fit in memory.

Features are written batch by batch and read as memory maps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from remix.data import DataError, ImageDataset, Preprocessing, load
from remix.networks.probe import evaluating
from remix.reproduce.photographs import PAPER_CLASSES, find_photographs
from remix.statistics import Hooks
from remix.support.documents import read_json

__all__ = [
    "MOST",
    "Features",
    "Vit",
    "class_folders",
    "extract_features",
    "map_features",
    "open_vit",
    "photographs",
    "read_features",
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


class Vit:
    """A transformer and how images are prepared for it.

    Attributes:
        blocks: how many it has.
        preprocessing: size and normalisation of its images.

    """

    def __init__(self, model: Any, preprocessing: Preprocessing, patches: int) -> None:
        self._model, self._patches = model, patches
        self.preprocessing = preprocessing
        self.blocks = int(model.config.num_hidden_layers)

    @torch.no_grad()
    def pooled(self, batches: Iterator[Tensor]) -> Iterator[dict[str, Tensor]]:
        """For batches of images the mean over patch tokens after every block, (n, D) by ``"block 0"`` and so on."""
        for images in batches:
            states = self._model(pixel_values=images, output_hidden_states=True).hidden_states[1:]
            yield {f"block {i}": state[:, -self._patches :].mean(1) for i, state in enumerate(states)}


def open_vit(path: str | Path) -> Vit:
    """Read a `transformers` folder (config.json, model.safetensors, usually preprocessor_config.json).

    Raises:
        ValueError: if `transformers` is not installed, or the folder holds no vision transformer.
        FileNotFoundError: if there is no such folder.

    """
    folder = Path(path)
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"{folder} is no transformers folder: it has no config.json")
    try:
        from transformers import AutoModel
    except ImportError as error:
        raise ValueError("--vit needs the transformers library: pip install 'remix-dfcil[vit]'") from error
    try:
        model = AutoModel.from_pretrained(folder, local_files_only=True, use_safetensors=True).eval()
        size, patch = int(model.config.image_size), int(model.config.patch_size)
        prepared = folder / "preprocessor_config.json"
        values = read_json(prepared) if prepared.is_file() else {}
        mean, std = (tuple(values.get(name) or (0.5,) * 3) for name in ("image_mean", "image_std"))
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise ValueError(f"{folder} holds no vision transformer that can be read: {error}") from error
    return Vit(model, Preprocessing(size, 3, mean, std), (size // patch) ** 2)
