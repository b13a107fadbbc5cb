"""CIFAR-10 and CIFAR-100 from whichever layout is on disk."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from remix.data.cifar_files import read_pickles, read_records, read_shards, shards
from remix.data.errors import DataError
from remix.data.images import ImageDataset, ResizedImages, Splits
from remix.data.preprocessing import Normalisation, Preprocessing
from remix.data.registry import Download, dataset, missing
from remix.support.text import printable

__all__ = ["CIFAR10_CLASSES", "CIFAR100_CLASSES", "cifar10", "cifar100"]

_TEN = "airplane automobile bird cat deer dog frog horse ship truck"
_HUNDRED = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale
willow_tree wolf woman worm
"""

CIFAR10_CLASSES = tuple(_TEN.split())
CIFAR100_CLASSES = tuple(_HUNDRED.split())


class _Edition(NamedTuple):
    """Where the two data sets differ."""

    classes: tuple[str, ...]
    normalisation: Normalisation
    label_bytes: int
    label: str  # the column in parquet shards; with an s, the key in pickles
    files: tuple[tuple[str, ...], tuple[str, ...]]


_CIFAR10 = _Edition(
    classes=CIFAR10_CLASSES,
    normalisation=Normalisation((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    label_bytes=1,
    label="label",
    files=(tuple(f"data_batch_{k}" for k in range(1, 6)), ("test_batch",)),
)
_CIFAR100 = _Edition(
    classes=CIFAR100_CLASSES,
    normalisation=Normalisation((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    label_bytes=2,
    label="fine_label",
    files=(("train",), ("test",)),
)


def _official(file: str, md5: str) -> Download:
    return Download(f"https://www.cs.toronto.edu/~kriz/{file}", file, md5)


@dataset(
    "cifar10",
    place="cifar-10-batches-bin/, cifar-10-batches-py/ or cifar10/ with parquet shards",
    downloads=(_official("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),),
    archives=(_official("cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a"),),
    counts=(50_000, 10_000),
    classes=10,
)
def cifar10(root: Path) -> Splits:
    """60,000 photographs of 10 classes, 32 x 32."""
    return _read("cifar10", _CIFAR10, root)


@dataset(
    "cifar100",
    place="cifar-100-binary/, cifar-100-python/ or cifar100/ with parquet shards",
    downloads=(_official("cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8"),),
    archives=(_official("cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85"),),
    counts=(50_000, 10_000),
    classes=100,
    content="1a8950f8599954f78fc12eff0e2c2b133b0392f24da994b3fe9b7732bcea2085",
)
def cifar100(root: Path, size: int = 32) -> Splits:
    """60,000 photographs of 100 classes, 32 x 32.

    Args:
        root: the data folder.
        size: height and width in pixels that they are brought to, each time they are asked for.

    """
    found = _read("cifar100", _CIFAR100, root)
    if size == 32:
        return found
    made = Preprocessing(size, 3, found.normalisation.mean, found.normalisation.std)
    train, test = (_resized(part, made) for part in (found.train, found.test))
    return replace(found, train=train, test=test)


def _resized(part: ImageDataset, made: Preprocessing) -> ImageDataset:
    stored = part.decoded().images
    assert isinstance(stored, Tensor)
    return replace(part, images=ResizedImages((), made, stored))


def _read(name: str, edition: _Edition, root: Path) -> Splits:
    """The first layout that is complete, in the folder itself or one below it: binary, python, parquet."""
    folders = [root, *sorted(path for path in root.iterdir() if path.is_dir())]
    records = partial(read_records, label_bytes=edition.label_bytes)
    pickles = partial(read_pickles, label_key=f"{edition.label}s")
    for read, suffix in ((records, ".bin"), (pickles, "")):
        for folder in folders:
            train, test = ([folder / (file + suffix) for file in files] for files in edition.files)
            if all(path.is_file() for path in train + test):
                return _splits(name, edition, folder, read(train), read(test))
    for folder in folders:
        named = re.search(rf"cifar[-_]?{len(edition.classes)}(?!0)", folder.resolve().name, re.IGNORECASE) is not None
        if named or folder is root:
            train, test = (shards(folder, part, below=named) for part in ("train", "test"))
            if train and test:
                preprocessing = Preprocessing(32, 3, edition.normalisation.mean, edition.normalisation.std)
                parts = [read_shards(files, edition.label, preprocessing) for files in (train, test)]
                return _splits(name, edition, folder, *parts)
    raise missing(name, root)


def _splits(name: str, edition: _Edition, source: Path, *parts: tuple[Tensor, Tensor]) -> Splits:
    for _, labels in parts:
        wrong = labels[(labels < 0) | (labels >= len(edition.classes))]
        if len(wrong):
            raise DataError(f"{printable(source)} has label {int(wrong[0])}: not the files of {name}")
    train, test = (ImageDataset(images, labels, edition.classes) for images, labels in parts)
    return Splits(train, test, edition.normalisation, name, source=source)
