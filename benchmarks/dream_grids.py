"""Side-by-side pictures of dreams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from PIL import Image, ImageDraw
from torch import Tensor

from benchmarks.dream_data import Images


def shown(pixels: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Normalised images (N, 3, H, W) -> uint8 (N, H, W, 3)."""
    scale, shift = torch.tensor(std).view(-1, 1, 1), torch.tensor(mean).view(-1, 1, 1)
    return ((pixels.float() * scale + shift).clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1)


def grid(
    file: Path,
    columns: Mapping[str, Images],
    names: Sequence[str],
    normalisation: tuple[Sequence[float], Sequence[float]],
    each: int = 3,
    zoom: int = 1,
) -> None:
    """A picture with one line per class and, for every column's images, the first ``each`` of that class."""
    size = next(iter(columns.values())).pixels.shape[-1] * zoom
    left, top, gap = 96, 16, 8
    width = left + len(columns) * (each * size + gap)
    canvas = Image.new("RGB", (width, top + len(names) * size), "white")
    pen = ImageDraw.Draw(canvas)
    for row, name in enumerate(names):
        pen.text((2, top + row * size + size // 2 - 6), name, fill="black")
    for place, (title, images) in enumerate(columns.items()):
        x = left + place * (each * size + gap)
        pen.text((x, 2), title, fill="black")
        for row in range(len(names)):
            tiles = shown(images.pixels[images.labels == row][:each], *normalisation)
            for k, tile in enumerate(tiles):
                picture = Image.fromarray(tile.numpy()).resize((size, size), Image.Resampling.NEAREST)
                canvas.paste(picture, (x + k * size, top + row * size))
    file.parent.mkdir(parents=True, exist_ok=True)
    canvas.quantize(256).save(file, optimize=True)  # a third of the size; dreams are noisy
