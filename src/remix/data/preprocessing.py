"""What is done to a picture before a network sees it; kept with a model so that prediction does the same."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from PIL import Image
from torch import Tensor

from remix.data.decode import as_picture, opened, tensor_of
from remix.data.errors import DataError
from remix.data.normalisation import Normalisation

__all__ = ["Preprocessing"]

_PROGRAM = """\
import numpy as np
from PIL import Image, ImageOps

def prepare(file):
    image = ImageOps.exif_transpose(Image.open(file))
    if image.mode.startswith("I"):
        image = Image.fromarray(((np.asarray(image).astype(np.uint32) + 128) // 257).astype(np.uint8))
    if image.has_transparency_data:
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
    image = image.convert("{mode}")
    side = min(image.size)
    left, top = (image.width - side) / 2, (image.height - side) / 2
    image = image.resize(({size}, {size}), Image.Resampling.BICUBIC, box=(left, top, left + side, top + side))
    pixels = np.asarray(image, dtype=np.float32).reshape({size}, {size}, {channels}) / 255
    return ((pixels - np.float32({mean})) / np.float32({std})).transpose(2, 0, 1)
"""


@dataclass(frozen=True)
class Preprocessing:
    """The shorter side is brought to ``size`` (bicubic, antialiased), the middle is kept, channels are converted.

    Attributes:
        size: height and width of the result in pixels.
        channels: 3 for RGB, 1 for grey.
        mean: of each channel, for :attr:`normalisation`.
        std: of each channel, for :attr:`normalisation`.

    Raises:
        DataError: for numbers out of range.

    """

    size: int
    channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if not 1 <= self.size <= 4096 or self.channels not in (1, 3):
            raise DataError(f"size must be within 1..4096 and channels 1 or 3, got {self.size} and {self.channels}")
        if self.normalisation.channels != self.channels:
            raise DataError(f"mean and std need {self.channels} numbers each, got {self.mean} and {self.std}")
        object.__setattr__(self, "mean", self.normalisation.mean)
        object.__setattr__(self, "std", self.normalisation.std)

    @property
    def normalisation(self) -> Normalisation:
        """From the bytes this makes to what the network sees."""
        return Normalisation(self.mean, self.std)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W) of the result."""
        return self.channels, self.size, self.size

    def __call__(self, image: Any) -> Tensor:
        """uint8 (C, size, size) of a picture.

        Args:
            image: Pillow image, path, array (H, W[, C]) or tensor ([C,] H, W); uint8, uint16, or floats within 0..1.

        Raises:
            UnreadableImage: if it is no image; the message says why.

        """
        if isinstance(image, str | Path):
            return self.encoded(image)
        return tensor_of(self._fit(as_picture(image, self.channels)))

    def encoded(self, file: Path | str | BinaryIO) -> Tensor:
        """uint8 (C, size, size) of a JPEG, PNG, ... file, or of its open stream. Raises UnreadableImage, with why."""
        with opened(file, self.channels) as image:
            return tensor_of(self._fit(image))

    def batch(self, images: Iterable[Any]) -> Tensor:
        """uint8 (N, C, size, size) of several pictures, each as in a call; also a tensor (N, C, H, W)."""
        done = [self(image) for image in images]
        return torch.stack(done) if done else torch.empty(0, *self.shape, dtype=torch.uint8)

    def _fit(self, image: Image.Image) -> Image.Image:
        """Resize the square in the middle: the same as resizing all and cropping, but never larger than needed."""
        width, height = image.size
        if (width, height) == (self.size, self.size):
            return image
        side = min(width, height)
        left, top = (width - side) / 2, (height - side) / 2
        box = (left, top, left + side, top + side)
        return image.resize((self.size, self.size), Image.Resampling.BICUBIC, box=box)

    def recipe(self) -> dict[str, Any]:
        """What another program has to do to a picture: in words, and as a function of Pillow and numpy."""
        mode, size = "RGB" if self.channels == 3 else "L", self.size
        return {
            "steps": [
                "turn the picture as its EXIF note says",
                "bring 16 bits v to 8 as (v + 128) // 257, put transparency over white, convert to "
                + ("RGB" if self.channels == 3 else "grey, 0.299 R + 0.587 G + 0.114 B"),
                "take the square in the middle: with side = min(width, height), from left = (width - side) / 2 and "
                "top = (height - side) / 2, which may lie half-way between two pixels",
                f"resize it once, straight from there to {size} x {size} pixels: bicubic (a = -0.5), antialiased where "
                "it shrinks, rounded to 8 bits; at the square's edges pixels beyond it count too, where there are any",
                "divide by 255, subtract mean, divide by std (per channel); channels first",
            ],
            "python": _PROGRAM.format(
                mode=mode, size=size, channels=self.channels, mean=list(self.mean), std=list(self.std)
            ),
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, for JSON."""
        return asdict(self) | {"mean": list(self.mean), "std": list(self.std)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Preprocessing:
        """The inverse of :meth:`to_dict`.

        Raises:
            DataError: if something is missing, unknown or out of range.

        """
        try:
            size, channels = int(values["size"]), int(values["channels"])
            mean, std = (tuple(float(v) for v in values[key]) for key in ("mean", "std"))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"preprocessing needs size, channels, mean and std, got {values!r}") from error
        return cls(size, channels, mean, std)
