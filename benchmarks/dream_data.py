"""The real images of the dream benchmarks: ten classes of CIFAR-100, and Imagenette photographs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from benchmarks.features import CIFAR_MEAN, CIFAR_STD, IMAGENET_MEAN, IMAGENET_STD, normalise

# The first ten classes of the published class order, in the order of their labels 0..9.
CIFAR_CLASSES = (23, 8, 11, 7, 48, 13, 1, 91, 94, 54)
CIFAR_NAMES = (
    "cloud", "bicycle", "boy", "beetle", "motorcycle", "bus", "aquarium fish", "trout", "wardrobe", "orchid",
)  # fmt: skip
# In the order of the ResNet-34's head.
IMAGENETTE_NAMES = (
    "tench", "english_springer", "cassette_player", "chain_saw", "church",
    "french_horn", "garbage_truck", "gas_pump", "golf_ball", "parachute",
)  # fmt: skip


@dataclass
class Images:
    """Normalised images (N, 3, H, W) with labels (N,)."""

    pixels: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def batches(self, size: int = 250) -> list[tuple[Tensor, Tensor]]:
        return list(zip(self.pixels.split(size), self.labels.split(size), strict=True))

    def take(self, index: Tensor) -> Images:
        return Images(self.pixels[index], self.labels[index])


def read_cifar(data: Path, part: str) -> Images:
    """The ten classes of ``part`` ("train" or "test"), labelled by their place in the class order."""
    records = np.fromfile(data / "cifar-100-binary" / f"{part}.bin", np.uint8).reshape(-1, 3074)
    places = np.full(100, -1, np.int64)
    places[list(CIFAR_CLASSES)] = np.arange(len(CIFAR_CLASSES))
    labels = places[records[:, 1]]
    pixels = records[labels >= 0, 2:].reshape(-1, 3, 32, 32)
    return Images(normalise(pixels, CIFAR_MEAN, CIFAR_STD), torch.from_numpy(labels[labels >= 0]))


def read_imagenette(data: Path, part: str, size: int) -> Images:
    """All photographs of ``part`` ("train" or "val"), resized to ``size`` x ``size``."""
    pixels, labels = [], []
    for label, name in enumerate(IMAGENETTE_NAMES):
        for file in sorted((data / "imagenette" / part / name).glob("*.jpg")):
            image = Image.open(file).convert("RGB").resize((size, size), Image.Resampling.BICUBIC)
            pixels.append(np.asarray(image).transpose(2, 0, 1))
            labels.append(label)
    return Images(normalise(np.stack(pixels), IMAGENET_MEAN, IMAGENET_STD), torch.tensor(labels))
