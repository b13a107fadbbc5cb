"""What picture a file holds, asked before anything is decoded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from PIL import Image, UnidentifiedImageError

from remix.data.errors import UnreadableImage
from remix.support.files import open_regular

__all__ = ["MAX_PIXELS", "SUFFIXES", "check", "identified", "is_picture", "open_image_file"]

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

_MAX_BYTES = 1 << 30  # as many as so many pixels have in 16 bits and four channels
_MAX_SCANS = 100  # of a JPEG: ten are usual, and one of a few bytes can take as long as the whole picture
_MIN_SIDE = 2


def open_image_file(path: Path | str) -> BinaryIO:
    """Open a regular file that is not too long for a picture.

    Raises:
        UnreadableImage: if it is longer.
        OSError: if it cannot be opened, or is a pipe or a device.

    """
    stream = open_regular(path)
    if os.fstat(stream.fileno()).st_size > _MAX_BYTES:
        stream.close()
        raise UnreadableImage(None, f"more than {_MAX_BYTES >> 20:,} MiB are too much for an image")
    return stream


def identified(stream: BinaryIO) -> Image.Image:
    """The picture in an open file; its size is known, nothing is decoded.

    Raises:
        UnreadableImage: if the file is empty, or HEIC without the package for it.
        Exception: of any kind, for what is no picture or a damaged one.

    """
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


def check(image: Image.Image, stream: BinaryIO) -> None:
    """Check that a picture is neither too small nor too large, and no preview of something else.

    Raises:
        UnreadableImage: if it is.

    """
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
            with identified(stream):
                return True
    except Exception:  # not readable, not regular, or not an image
        return False
