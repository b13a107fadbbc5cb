"""Fashion-MNIST from its four IDX files, plain or gzipped."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import torch
from torch import Tensor

from remix.data.errors import DataError
from remix.data.images import ImageDataset, Splits
from remix.data.preprocessing import Normalisation
from remix.data.registry import Download, dataset, missing
from remix.support.files import open_regular
from remix.support.text import printable

__all__ = ["fashion_mnist", "read_idx"]

CLASSES = ("T-shirt or top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
NORMALISATION = Normalisation((0.2860,), (0.3530,))
_FOLDERS = ("fashion-mnist", "dataset-fashion-mnist", "FashionMNIST/raw", ".")
_BASE = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
_MD5 = {
    "train-images-idx3-ubyte": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte": "25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte": "bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte": "bb300cfdad3c16e7a12a480ee83cd310",
}


@dataset(
    "fashion-mnist",
    place="fashion-mnist/ with {train,t10k}-{images-idx3,labels-idx1}-ubyte, plain or .gz",
    downloads=tuple(Download(f"{_BASE}{name}.gz", f"fashion-mnist/{name}.gz", md5) for name, md5 in _MD5.items()),
    counts=(60_000, 10_000),
    classes=10,
    content="9fa648723ea5f97b8524ea3c8bfe1cb99578955b368d876ee32456e7e57af6b3",
)
def fashion_mnist(root: Path) -> Splits:
    """70,000 pictures of clothes, 28 x 28 grey, 10 classes."""
    for folder in (root / name for name in _FOLDERS):
        found = [_plain_or_zipped(folder / name) for name in _MD5]
        files = [file for file in found if file is not None]
        if len(files) == len(_MD5):
            train, test = _part(files[0], files[1]), _part(files[2], files[3])
            return Splits(train, test, NORMALISATION, "fashion-mnist", source=folder)
    raise missing("fashion-mnist", root)


def _plain_or_zipped(path: Path) -> Path | None:
    return next((file for file in (path, path.with_name(path.name + ".gz")) if file.is_file()), None)


def _part(image_file: Path, label_file: Path) -> ImageDataset:
    images, labels = read_idx(image_file), read_idx(label_file)
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise DataError(
            f"{printable(image_file)} has shape {tuple(images.shape)} and {printable(label_file)} "
            f"{tuple(labels.shape)}: not images with a label each; fetch both again"
        )
    return ImageDataset(images.unsqueeze(1), labels.to(torch.int64), CLASSES)


_LIMIT = 2**28  # bytes; the images of Fashion-MNIST are 47 million


def read_idx(file: Path) -> Tensor:
    """The array of bytes in an IDX file: uint8, of the shape that its header says. Raises DataError for any other."""
    try:
        with open_regular(file) as plain, gzip.open(plain) if file.suffix == ".gz" else plain as stream:
            zero, kind, dimensions = struct.unpack(">HBB", stream.read(4))
            if (zero, kind) != (0, 8) or not 1 <= dimensions <= 4:
                raise DataError(f"{printable(file)} is not an IDX file of bytes; fetch it again")
            shape = struct.unpack(f">{dimensions}I", stream.read(4 * dimensions))
            size = math.prod(shape)
            if not 0 < size <= _LIMIT:
                raise DataError(f"{printable(file)} claims to hold {size:,} bytes, which no file of this data set does")
            # One byte more than announced: a longer file is as wrong as a shorter one.
            content = bytearray(stream.read(size + 1))
    except (EOFError, struct.error, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{printable(file)} is damaged or cut off; fetch it again") from error
    except OSError as error:
        raise DataError(f"{printable(file)} cannot be read: {error.strerror or error}") from error
    if len(content) != size:
        raise DataError(f"{printable(file)} should hold {size:,} bytes as {shape} and does not; fetch it again")
    return torch.frombuffer(content, dtype=torch.uint8).view(shape)
