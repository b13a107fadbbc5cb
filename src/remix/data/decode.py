"""Any picture a person may hand in -> a Pillow image of 8 bits per channel, or one sentence why not."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Condition
from typing import Any, BinaryIO

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from remix.data.errors import UnreadableImage
from remix.support.files import IrregularFileError, open_regular
from remix.support.text import printable

__all__ = ["GREY", "MAX_PIXELS", "SUFFIXES", "as_picture", "glance", "is_picture", "opened", "tensor_of", "to_channels"]

SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".jfif", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".avif", ".heic"}
)
"""Endings, in lower case, of names that say that a file is a picture. Others are too: they are asked themselves."""

# Pillow knows formats that start other programs (EPS), are documents, or take gigabytes for a small file (JPEG 2000);
# only plain pictures are opened. JPEG includes the MPO of phones.
_FORMATS = ("JPEG", "PNG", "BMP", "DIB", "GIF", "WEBP", "TIFF", "PPM", "AVIF")
_HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")

MAX_PIXELS = 128_000_000
"""Of one picture."""

GREY = frozenset({"1", "L", "LA", "I", "I;16", "I;16B", "F"})
"""Pillow's names of pictures without colour."""

_MAX_BYTES = 1 << 30  # as many as so many pixels have in 16 bits and four channels
_MAX_SCANS = 100  # of a JPEG: ten are usual, and one of a few bytes can take as long as the whole picture
_MIN_SIDE = 2
_STRIP = 1 << 22  # pixels that are converted at once

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}  # by the EXIF note of the camera

# Pillow's remarks on odd files: what matters is whether they decode. Filters are global, and threads decode, so these
# are set once, behind all that the program itself has set.
warnings.filterwarnings("ignore", module=r"PIL\.|pillow_heif", append=True)
logging.getLogger("PIL").addHandler(logging.NullHandler())


class _InFlight:
    """Pixels of pictures that are being decoded, by all threads together."""

    def __init__(self, most: int) -> None:
        self._most, self._taken, self._changed = most, 0, Condition()

    @contextmanager
    def taken(self, pixels: int) -> Iterator[None]:
        """Wait until there is room for so many, and keep it."""
        with self._changed:
            self._changed.wait_for(lambda: self._taken + pixels <= self._most)
            self._taken += pixels
        try:
            yield
        finally:
            with self._changed:
                self._taken -= pixels
                self._changed.notify_all()


_IN_FLIGHT = _InFlight(MAX_PIXELS)


@contextmanager
def opened(file: Path | str | BinaryIO, channels: int = 3) -> Iterator[Image.Image]:
    """Decode an image file completely: the first frame, turned as its EXIF note says, RGB or grey.

    Within the block the picture counts among those that are decoded at once, which together have at most as many
    pixels as the largest single one may have: make it small there.

    Args:
        file: path, or an open binary file.
        channels: 3 for RGB, 1 for grey. CMYK, palettes, 16 bits and transparency (over white) are converted.

    Raises:
        UnreadableImage: for whatever keeps the file from being used, with the reason.

    """
    name = file if isinstance(file, (str, Path)) else None
    try:
        with ExitStack() as stack:
            stream = file if not isinstance(file, (str, Path)) else stack.enter_context(open_regular(file))
            if name is not None and os.fstat(stream.fileno()).st_size > _MAX_BYTES:
                raise UnreadableImage(None, f"more than {_MAX_BYTES >> 20:,} MiB are too much for an image")
            image = stack.enter_context(_identified(stream))
            _check(image, stream)
            stack.enter_context(_IN_FLIGHT.taken(image.width * image.height))
            yield to_channels(_turned(image), channels)
    except UnreadableImage as error:
        raise UnreadableImage(name, error.reason) from None
    except Exception as error:  # decoders of damaged files raise almost anything
        raise UnreadableImage(name, _reason(error)) from error


def _identified(stream: BinaryIO) -> Image.Image:
    """The picture in an open file; its size is known, nothing is decoded. What is none raises almost anything."""
    stream.seek(0)
    if not stream.read(1):
        raise UnreadableImage(None, "the file is empty")
    try:
        return Image.open(stream, formats=_FORMATS)
    except UnidentifiedImageError:
        if not _is_heic(stream):
            raise
    try:
        from pillow_heif import HeifImageFile
    except ImportError:
        raise UnreadableImage(None, "to read HEIC, type: pip install 'remix-dfcil[heic]'") from None
    stream.seek(0)
    return HeifImageFile(stream)


def _is_heic(stream: BinaryIO) -> bool:
    stream.seek(0)
    head = stream.read(12)
    return head[4:8] == b"ftyp" and head[8:] in _HEIC_BRANDS


def _check(image: Image.Image, stream: BinaryIO) -> None:
    """Refuse what is too small or too large, or a preview of something else."""
    width, height = image.size
    if min(width, height) < _MIN_SIDE:
        raise UnreadableImage(None, f"{width} x {height} pixels are too few to show anything")
    if width * height > MAX_PIXELS:
        raise UnreadableImage(None, f"{width} x {height} pixels are too many (limit {MAX_PIXELS:,})")
    if _is_raw(image):
        raise UnreadableImage(None, "a raw photograph, of which only a preview can be read; save it as JPEG or PNG")
    if image.format in ("JPEG", "MPO"):
        place = stream.tell()
        stream.seek(0)
        scans = stream.read().count(b"\xff\xda")
        stream.seek(place)
        if scans > _MAX_SCANS:
            raise UnreadableImage(None, f"a JPEG of {scans:,} scans takes too long; save it anew")


def _is_raw(image: Image.Image) -> bool:
    """Whether a TIFF is the file of a camera's sensor: it names a DNG version, or a preview before other pictures."""
    tags = getattr(image, "tag_v2", {})
    return 50706 in tags or (330 in tags and tags.get(254) == 1)


def is_picture(path: Path) -> bool:
    """Whether a file is called as pictures are, or else begins as one. Decodes nothing."""
    if path.suffix.lower() in SUFFIXES:
        return True
    try:
        with open_regular(path) as stream:
            if _is_heic(stream):
                return True
            with _identified(stream):
                return True
    except Exception:  # not readable, not regular, or not an image
        return False


def glance(path: Path) -> tuple[int, int] | None:
    """The shorter side of a picture in pixels, and its channels (1 for grey, else 3); None for what is none.

    Decodes nothing.
    """
    try:
        with open_regular(path) as stream, _identified(stream) as image:
            return min(image.size), 1 if image.mode in GREY else 3
    except Exception:  # not readable, not regular, or not an image
        return None


def _turned(image: Image.Image) -> Image.Image:
    """Decoded, and turned as the camera noted; a note that cannot be read is no reason to lose the photograph."""
    image.load()
    try:
        turn = _TURNS.get(image.getexif().get(0x0112, 1))
    except Exception:  # parsers of damaged notes raise almost anything
        turn = None
    return image if turn is None else image.transpose(turn)


def to_channels(image: Image.Image, channels: int) -> Image.Image:
    """Convert to RGB (3) or grey (1), 8 bits each. What is so already is not copied, what has more than 16 refused."""
    mode = "RGB" if channels == 3 else "L"
    if image.mode == mode and not image.has_transparency_data:
        return image
    if image.mode == "F":
        raise UnreadableImage(None, "pixels are floating-point numbers; save it with 8 bits per channel")
    if image.mode == "I":
        lowest, highest = np.ravel(image.getextrema())
        if lowest < 0 or highest > 65535:
            raise UnreadableImage(None, "pixels have more than 16 bits; save it with 8 bits per channel")
    rows = max(_STRIP // image.width, 1)
    if rows >= image.height:
        return _converted(image, mode)
    whole = Image.new(mode, image.size)  # strip by strip, so that there are never three copies of a large picture
    for top in range(0, image.height, rows):
        strip = image.crop((0, top, image.width, min(top + rows, image.height)))
        whole.paste(_converted(strip, mode), (0, top))
    return whole


def _converted(image: Image.Image, mode: str) -> Image.Image:
    if image.mode.startswith("I"):
        deep = np.asarray(image).astype(np.uint32)
        image = Image.fromarray(((deep + 128) // 257).astype(np.uint8))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert(mode)


def as_picture(image: Any, channels: int) -> Image.Image:
    """A Pillow image from a Pillow image, an array (H, W[, C]) or a tensor ([C,] H, W).

    Floats must lie within 0..1; whole numbers must be uint8 or uint16. Anything else raises UnreadableImage.
    """
    if isinstance(image, Image.Image):
        try:
            return to_channels(_turned(image), channels)
        except UnreadableImage:
            raise
        except Exception as error:  # it was opened but not yet decoded
            raise UnreadableImage(None, _reason(error)) from error
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


_REASONS = {
    PermissionError: "no permission to read it",
    FileNotFoundError: "no such file",
    IsADirectoryError: "a folder, not an image",
    UnidentifiedImageError: "not an image that can be read",
    Image.DecompressionBombError: f"too many pixels (limit {MAX_PIXELS:,})",
}


def _reason(error: Exception) -> str:
    """Why an image file could not be decoded, in words."""
    if isinstance(error, IrregularFileError):
        return error.reason
    for kind, reason in _REASONS.items():
        if isinstance(error, kind):
            return reason
    if isinstance(error, OSError) and error.strerror:
        return f"cannot be read ({error.strerror})"
    text = printable(str(error)[:200])
    return "damaged (cut off)" if "truncated" in text.lower() else f"damaged ({text or type(error).__name__})"
