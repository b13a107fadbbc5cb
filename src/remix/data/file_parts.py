"""Lists of labelled image files -> data sets, leaving out the files that cannot be used."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path

import torch
from torch import Tensor

from remix.data.errors import DataError, Skipped, UnreadableImage
from remix.data.file_index import known_unusable
from remix.data.images import ImageDataset, ImageFiles
from remix.data.preprocessing import Preprocessing
from remix.support.text import printable

__all__ = ["MEMORY_LIMIT", "Labelled", "read_parts"]

MEMORY_LIMIT = 2**30
"""Bytes up to which decoded images are kept in memory unless the caller says otherwise."""

Labelled = Sequence[tuple[Path, int]]
"""Image files, each with its label."""


def read_parts(
    source: Path,
    listed: Mapping[str, Labelled],
    classes: tuple[str, ...],
    preprocessing: Preprocessing,
    lazy: bool | None,
) -> tuple[dict[str, ImageDataset], list[Skipped]]:
    """Decode every file once, with a thread per processor: data sets of the usable ones, and the others with reasons.

    Args:
        source: the folder; if ``remix data prepare`` left an index there, files that are only to be checked are not
            decoded again.
        listed: files of each part.
        classes: names by label.
        preprocessing: applied to every image.
        lazy: keep only which files are usable (True) or their pixels (False); None: pixels up to MEMORY_LIMIT.

    Raises:
        DataError: if no file of a part can be used.

    """
    if lazy is None:
        lazy = sum(len(files) for files in listed.values()) * _bytes_each(preprocessing) > MEMORY_LIMIT
    known = known_unusable(source, (path for files in listed.values() for path, _ in files)) if lazy else None
    parts: dict[str, ImageDataset] = {}
    skipped: list[Skipped] = []
    for part, files in listed.items():
        paths = [path for path, _ in files]
        labels = torch.tensor([label for _, label in files], dtype=torch.int64)
        reasons, pixels = _decode_all(paths, preprocessing, keep=not lazy) if known is None else (known, None)
        usable = torch.tensor([path not in reasons for path in paths], dtype=torch.bool)
        if paths and not bool(usable.any()):
            raise DataError(
                f"none of the {len(paths):,} images of the {part} part in {printable(source)} can be used; "
                f"{printable(paths[0])}: {reasons[paths[0]]}"
            )
        if pixels is None:
            images: Tensor | ImageFiles = ImageFiles(tuple(p for p in paths if p not in reasons), preprocessing)
        else:
            images = pixels if bool(usable.all()) else pixels[usable]
        parts[part] = ImageDataset(images, labels[usable], classes)
        skipped += [Skipped(path, reasons[path]) for path in paths if path in reasons]
    return parts, skipped


def _decode_all(
    paths: Sequence[Path], preprocessing: Preprocessing, keep: bool
) -> tuple[dict[Path, str], Tensor | None]:
    """Reasons by unusable file, and with ``keep`` the pixels, uint8 (N, C, H, W); rows of unusable files are void."""
    pixels = torch.empty(len(paths), *preprocessing.shape, dtype=torch.uint8) if keep else None
    rows: Sequence[Tensor | None] = list(pixels) if pixels is not None else [None] * len(paths)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(_decode_into, rows, paths, repeat(preprocessing)))
    return {path: reason for path, reason in zip(paths, results, strict=True) if reason is not None}, pixels


def _decode_into(row: Tensor | None, path: Path, preprocessing: Preprocessing) -> str | None:
    """Decode a file, into a row if there is one; why it cannot be used, or None."""
    try:
        image = preprocessing.encoded(path)
    except UnreadableImage as error:
        return error.reason
    if row is not None:
        row.copy_(image)
    return None


def _bytes_each(preprocessing: Preprocessing) -> int:
    channels, height, width = preprocessing.shape
    return channels * height * width
