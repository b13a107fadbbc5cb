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

__all__ = ["CLIP", "IMAGENET", "Normalisation", "Preprocessing"]

_LARGEST = 1e6  # of a mean, a deviation and one over it


@dataclass(frozen=True)
class Normalisation:
    """Mean and standard deviation of each channel of images whose values run from 0 to 1.

    Raises:
        DataError: if the two differ in length, or numbers are so small or large that images would overflow.

    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", tuple(float(m) for m in self.mean))
        object.__setattr__(self, "std", tuple(float(s) for s in self.std))
        sane = all(abs(m) <= _LARGEST for m in self.mean) and all(1 / _LARGEST <= s <= _LARGEST for s in self.std)
        if not self.mean or len(self.mean) != len(self.std) or not sane:  # NaN is not sane either
            raise DataError(
                f"mean and std need one number per channel, std positive and none beyond {_LARGEST:g}; "
                f"got {self.mean} and {self.std}"
            )

    @property
    def channels(self) -> int:
        """Number of channels."""
        return len(self.mean)

    def normalise(self, images: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """``(x / 255 - mean) / std``: uint8 (B, C, H, W) to floats (default dtype) on the same device.

        Raises:
            DataError: if the images are not bytes of this many channels.

        """
        if images.dtype != torch.uint8 or images.ndim < 3 or images.shape[-3] != self.channels:
            raise DataError(
                f"normalise takes uint8 images (B, {self.channels}, H, W), got {images.dtype} {tuple(images.shape)}"
            )
        dtype = dtype or torch.get_default_dtype()
        scale = self._per_channel([1 / (255 * s) for s in self.std], images.device, dtype)
        shift = self._per_channel([-m / s for m, s in zip(self.mean, self.std, strict=True)], images.device, dtype)
        return images.to(dtype).mul_(scale).add_(shift)

    def denormalise(self, images: Tensor) -> Tensor:
        """The nearest bytes of normalised images: floats (B, C, H, W) to uint8, values outside 0..255 cut off."""
        mean = self._per_channel(self.mean, images.device, images.dtype)
        std = self._per_channel(self.std, images.device, images.dtype)
        return images.detach().mul(std).add_(mean).mul_(255).round_().clamp_(0, 255).to(torch.uint8)

    @staticmethod
    def _per_channel(values: tuple[float, ...] | list[float], device: torch.device, dtype: torch.dtype) -> Tensor:
        return torch.tensor(values, device=device, dtype=dtype).view(-1, 1, 1)


IMAGENET = Normalisation((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""What networks pretrained on ImageNet expect."""

CLIP = Normalisation((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
"""What CLIP's image encoders expect."""


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
    image = image.resize(({size}, {size}), Image.Resampling.{RESAMPLE}, box=(left, top, left + side, top + side))
    pixels = np.asarray(image, dtype=np.float32).reshape({size}, {size}, {channels}) / 255
    return ((pixels - np.float32({mean})) / np.float32({std})).transpose(2, 0, 1)
"""

_KERNELS = {"bicubic": "bicubic (a = -0.5)", "bilinear": "bilinear", "lanczos": "lanczos"}  # in words


@dataclass(frozen=True)
class Preprocessing:
    """The shorter side is brought to ``size`` (antialiased), the middle is kept, channels are converted.

    Attributes:
        size: height and width of the result in pixels.
        channels: 3 for RGB, 1 for grey.
        mean: of each channel, for :attr:`normalisation`.
        std: of each channel, for :attr:`normalisation`.
        resample: how sizes are changed: bicubic, bilinear or lanczos.

    Raises:
        DataError: for numbers out of range, or another way to resample.

    """

    size: int
    channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    resample: str = "bicubic"

    def __post_init__(self) -> None:
        if str(self.resample) not in _KERNELS:
            raise DataError(f"resample must be {', '.join(_KERNELS)}, got {str(self.resample)[:60]!r}")
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
        return image.resize((self.size, self.size), Image.Resampling[self.resample.upper()], box=box)

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
                f"resize it once, straight from there to {size} x {size} pixels: {_KERNELS[self.resample]}, "
                "antialiased where it shrinks, rounded to 8 bits; at the square's edges pixels beyond it count too, "
                "where there are any",
                "divide by 255, subtract mean, divide by std (per channel); channels first",
            ],
            "python": _PROGRAM.format(
                mode=mode,
                size=size,
                channels=self.channels,
                mean=list(self.mean),
                std=list(self.std),
                RESAMPLE=self.resample.upper(),
            ),
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, for JSON."""
        values = asdict(self) | {"mean": list(self.mean), "std": list(self.std)}
        if self.resample == "bicubic":
            del values["resample"]  # as files of earlier versions have it
        return values

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
        return cls(size, channels, mean, std, values.get("resample", "bicubic"))
