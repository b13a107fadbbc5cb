"""Any picture a person may hand in -> a Pillow image of 8 bits per channel, or one sentence why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from remix.data.errors import UnreadableImage

__all__ = ["SUFFIXES", "as_picture", "open_picture", "tensor_of", "to_channels"]

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})
"""Endings, in lower case, of the files that are taken for images."""

# Pillow knows formats that start other programs (EPS) or are documents; only plain pictures are opened.
_FORMATS = ("JPEG", "PNG", "BMP", "DIB", "GIF", "WEBP", "TIFF", "PPM")
_MAX_PIXELS = 128_000_000
_MIN_SIDE = 2


def open_picture(file: Path | str | BinaryIO, channels: int = 3) -> Image.Image:
    """Decode an image file completely: the first frame, turned as its EXIF note says, RGB or grey.

    Args:
        file: path, or an open binary file.
        channels: 3 for RGB, 1 for grey. CMYK, palettes, 16 bits and transparency (over white) are converted.

    Raises:
        UnreadableImage: for whatever keeps the file from being used, with the reason.

    """
    name = file if isinstance(file, (str, Path)) else None
    try:
        with Image.open(file, formats=_FORMATS) as image:
            width, height = image.size
            if min(width, height) < _MIN_SIDE:
                raise UnreadableImage(name, f"{width} x {height} pixels are too few to show anything")
            if width * height > _MAX_PIXELS:
                raise UnreadableImage(name, f"{width} x {height} pixels are too many (limit {_MAX_PIXELS:,})")
            image.load()
            return to_channels(ImageOps.exif_transpose(image), channels)
    except UnreadableImage as error:
        raise UnreadableImage(name, error.reason) from None
    except Exception as error:  # decoders of damaged files raise almost anything
        raise UnreadableImage(name, _reason(name, error)) from error


def to_channels(image: Image.Image, channels: int) -> Image.Image:
    """Convert to RGB (3) or grey (1), 8 bits each.

    Raises:
        UnreadableImage: for pixels that are floating-point numbers or whole numbers beyond 16 bits.

    """
    if image.mode.startswith("I"):
        deep = np.asarray(image)
        if deep.min() < 0 or deep.max() > 65535:
            raise UnreadableImage(None, "pixels have more than 16 bits; save it with 8 bits per channel")
        image = Image.fromarray(((deep.astype(np.uint32) + 128) // 257).astype(np.uint8))
    elif image.mode == "F":
        raise UnreadableImage(None, "pixels are floating-point numbers; save it with 8 bits per channel")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB" if channels == 3 else "L")


def as_picture(image: Any, channels: int) -> Image.Image:
    """A Pillow image from a Pillow image, a path, an array (H, W[, C]) or a tensor ([C,] H, W).

    Floats must lie within 0..1; whole numbers must be uint8 or uint16.

    Raises:
        UnreadableImage: if it is none of these.

    """
    if isinstance(image, (str, Path)):
        return open_picture(image, channels)
    if isinstance(image, Image.Image):
        try:
            return to_channels(ImageOps.exif_transpose(image), channels)
        except OSError as error:  # it was opened but not yet decoded
            raise UnreadableImage(None, _reason(None, error)) from error
    if isinstance(image, Tensor):
        values = image.detach().cpu()
        array = (values.float() if values.is_floating_point() else values).numpy()
        return to_channels(Image.fromarray(_bytes_hwc(array, channels_first=True)), channels)
    return to_channels(Image.fromarray(_bytes_hwc(np.asarray(image), channels_first=False)), channels)


def _bytes_hwc(array: np.ndarray[Any, Any], channels_first: bool) -> np.ndarray[Any, Any]:
    """uint8 (H, W) or (H, W, C) from an array whose channels may come first or last."""
    shape = array.shape
    if array.ndim == 3:
        first, last = shape[0] in (1, 3, 4), shape[-1] in (1, 3, 4)
        if first and (channels_first or not last):
            array = array.transpose(1, 2, 0)
        elif not last:
            raise UnreadableImage(None, f"an array of shape {shape} is no image: 1, 3 or 4 channels first or last")
        array = array[..., 0] if array.shape[-1] == 1 else array
    if array.ndim not in (2, 3) or 0 in shape:
        raise UnreadableImage(None, f"an array of shape {shape} is no image: (H, W), (H, W, C) or (C, H, W)")
    if array.dtype == np.uint16:
        array = ((array.astype(np.uint32) + 128) // 257).astype(np.uint8)
    elif np.issubdtype(array.dtype, np.floating):
        if not (array.min() >= 0 and array.max() <= 1):  # also refuses NaN
            raise UnreadableImage(None, f"float images must lie within 0..1, got {array.min():g}..{array.max():g}")
        array = np.rint(array * 255).astype(np.uint8)
    elif array.dtype != np.uint8:
        raise UnreadableImage(None, f"an array of {array.dtype} is no image: uint8 (0..255) or floats (0..1)")
    return np.ascontiguousarray(array)


def tensor_of(image: Image.Image) -> Tensor:
    """uint8 (C, H, W) of a grey or RGB Pillow image."""
    array = np.array(image)
    return torch.from_numpy(array[None] if array.ndim == 2 else array.transpose(2, 0, 1).copy())


def _reason(file: Path | str | None, error: Exception) -> str:
    """Why an image file could not be decoded, in words."""
    if isinstance(error, PermissionError):
        return "no permission to read it"
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, IsADirectoryError):
        return "a folder, not an image"
    if isinstance(error, Image.DecompressionBombError):
        return f"too many pixels (limit {_MAX_PIXELS:,})"
    if isinstance(error, UnidentifiedImageError):
        empty = file is not None and Path(file).stat().st_size == 0
        return "the file is empty" if empty else "not an image, whatever its name says"
    return f"damaged ({str(error).splitlines()[0] if str(error) else type(error).__name__})"
