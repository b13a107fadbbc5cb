"""Images as text within a page, no larger than there is room for."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image

__all__ = ["LEVELS", "Level", "data_uri", "strip"]

_LARGEST = 64  # pixels; larger images are shown reduced
_GAP = 1  # transparent pixels between images


@dataclass(frozen=True)
class Level:
    """How much is kept of pictures: images per class, quality (None for all of it), width of whole pictures."""

    images: int
    quality: int | None
    width: int


LEVELS = (
    Level(12, None, 1200),
    Level(12, 90, 1000),
    Level(12, 75, 900),
    Level(8, 70, 800),
    Level(6, 60, 600),
    Level(4, 45, 450),
)
"""From everything to little."""


def strip(images: Sequence[Image.Image], size: tuple[int, int], level: Level) -> Image.Image:
    """Images of one class side by side, each brought to ``size`` (width, height) pixels or the most that is shown."""
    factor = min(1.0, _LARGEST / max(size))
    width, height = (max(1, round(side * factor)) for side in size)
    shown = images[: level.images]
    row = Image.new("RGBA", (len(shown) * (width + _GAP) - _GAP, height), (0, 0, 0, 0))
    for i, image in enumerate(shown):
        # A saved picture shows small images enlarged by a whole factor: the nearest pixel is the one that was.
        grown = image.width >= width and size[0] <= _LARGEST
        method = Image.Resampling.NEAREST if grown else Image.Resampling.LANCZOS
        row.paste(image.convert("RGB").resize((width, height), method), (i * (width + _GAP), 0))
    return row


def data_uri(picture: Image.Image, level: Level) -> str:
    """As WebP in base64."""
    file = io.BytesIO()
    if level.quality is None:
        picture.save(file, "WEBP", lossless=True)
    else:
        picture.save(file, "WEBP", quality=level.quality)
    return "data:image/webp;base64," + base64.b64encode(file.getvalue()).decode()
