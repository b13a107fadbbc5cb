"""CIFAR-10 and CIFAR-100 from whichever layout is on disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from remix.data.cifar_names import CIFAR10_CLASSES, CIFAR100_CLASSES
from remix.data.cifar_records import read_records
from remix.data.errors import DataError, printable
from remix.data.images import ImageDataset
from remix.data.normalisation import Normalisation
from remix.data.registry import Download, dataset, missing
from remix.data.splits import Splits

__all__ = ["cifar10", "cifar100"]


@dataclass(frozen=True)
class _Edition:
    """Where the two data sets differ."""

    name: str
    classes: tuple[str, ...]
    normalisation: Normalisation
    label_bytes: int
    binary: tuple[tuple[str, ...], tuple[str, ...]]


_CIFAR10 = _Edition(
    "cifar10",
    CIFAR10_CLASSES,
    Normalisation((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    1,
    (tuple(f"data_batch_{k}.bin" for k in range(1, 6)), ("test_batch.bin",)),
)
_CIFAR100 = _Edition(
    "cifar100",
    CIFAR100_CLASSES,
    Normalisation((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    2,
    (("train.bin",), ("test.bin",)),
)


@dataset(
    "cifar10",
    place="cifar-10-batches-bin/, cifar-10-batches-py/ or cifar10/ with parquet shards",
    downloads=(
        Download(
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            "cifar-10-binary.tar.gz",
            "c32a1d4ab5d03f1284b67883e8d87530",
        ),
    ),
    counts=(50_000, 10_000),
)
def cifar10(root: Path) -> Splits:
    """60,000 photographs of 10 classes, 32 x 32."""
    return _read(_CIFAR10, root)


@dataset(
    "cifar100",
    place="cifar-100-binary/, cifar-100-python/ or cifar100/ with parquet shards",
    downloads=(
        Download(
            "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
            "cifar-100-binary.tar.gz",
            "03b5dce01913d631647c71ecec9e9cb8",
        ),
    ),
    counts=(50_000, 10_000),
)
def cifar100(root: Path) -> Splits:
    """60,000 photographs of 100 classes, 32 x 32."""
    return _read(_CIFAR100, root)


def _read(edition: _Edition, root: Path) -> Splits:
    for folder in (root, *sorted(path for path in root.iterdir() if path.is_dir())):
        train, test = ([folder / name for name in names] for names in edition.binary)
        if all(path.is_file() for path in train + test):
            parts = [_dataset(edition, folder, *read_records(files, edition.label_bytes)) for files in (train, test)]
            return Splits(parts[0], parts[1], edition.normalisation, edition.name)
    raise missing(edition.name, root)


def _dataset(edition: _Edition, source: Path, images: Tensor, labels: Tensor) -> ImageDataset:
    if int(labels.max()) >= len(edition.classes):
        raise DataError(f"{printable(source)} has label {int(labels.max())}: not the files of {edition.name}")
    return ImageDataset(images, labels, edition.classes)
