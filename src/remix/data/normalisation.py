"""From bytes to the numbers a network sees, and back; on whatever device the images are."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from remix.data.errors import DataError

__all__ = ["CLIP", "IMAGENET", "Normalisation"]

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
