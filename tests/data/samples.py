"""Small synthetic data in the layouts that people have on disk."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from PIL import Image

from remix.data import ImageDataset, Normalisation, Splits
from remix.data.decode import opened


def save_picture(path: Path, colour=(200, 100, 50), size=(12, 10), **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path, **options)
    return path


def open_picture(file, channels=3) -> Image.Image:
    with opened(file, channels) as picture:
        return picture


def make_folder(root: Path, classes=("cat", "dog"), each=5, size=(12, 10)) -> Path:
    """root/CLASS/N.png, each image of another grey."""
    for label, name in enumerate(classes):
        for k in range(each):
            save_picture(root / name / f"{k}.png", (20 * label + k,) * 3, size)
    return root


def make_splits(classes=10, each=6, shape=(3, 4, 4)) -> Splits:
    """Every image holds its own number in its first pixels, so that a test can tell images apart."""
    labels = torch.arange(classes).repeat_interleave(each)
    images = torch.randint(0, 256, (len(labels), *shape), dtype=torch.uint8)
    images[:, 0, 0, 0], images[:, 0, 0, 1] = torch.arange(len(labels)) // 256, torch.arange(len(labels)) % 256
    names = tuple(f"class{k}" for k in range(classes))
    test = ImageDataset(images[::2].clone(), labels[::2], names)
    return Splits(
        ImageDataset(images, labels, names), test, Normalisation((0.5,) * shape[0], (0.25,) * shape[0]), "toy"
    )


def numbers(images: torch.Tensor) -> list[int]:
    """Which images of `make_splits` these are."""
    return (images[:, 0, 0, 0].long() * 256 + images[:, 0, 0, 1].long()).tolist()


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Whoever writes a file of more bytes than this gets an error, as on a full disk."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
