"""Data sets of single image files: the text files that list them, and decoding them all once.

`remix-index.json` in a folder says that this was done, so that it need not be done at every start.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from remix.data.errors import DataError, MissingData, Skipped, UnreadableImage
from remix.data.images import ImageDataset, ImageFiles
from remix.data.preprocessing import Preprocessing
from remix.support.documents import read_json
from remix.support.files import read_limited
from remix.support.text import printable

__all__ = ["INDEX", "fingerprint", "read_lines", "read_parts", "read_table"]

INDEX = "remix-index.json"
_LARGEST = 2**24  # bytes; the longest official list has 3 million
_LONGEST = 2000  # characters of a line
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f]")

MEMORY_LIMIT = 2**30
"""Bytes up to which decoded images are kept in memory unless the caller says otherwise."""


def fingerprint(source: Path, paths: Iterable[Path]) -> str:
    """Changes when a file is added, removed, renamed or written to, not with their order. Reads no contents.

    Folders, which change with whatever is written into them, do not count.
    """
    digest = hashlib.sha256()
    for path in sorted(paths, key=os.fsencode):
        try:
            status = path.stat()
            if stat.S_ISDIR(status.st_mode):
                continue
            size, time = status.st_size, status.st_mtime_ns
        except OSError:
            size, time = -1, -1
        digest.update(os.fsencode(os.path.relpath(path, source)) + b"\0%d %d\n" % (size, time))
    return digest.hexdigest()


def _known_unusable(source: Path, paths: Iterable[Path]) -> dict[Path, str] | None:
    """Files that the index says cannot be used, with reasons; None if there is no index of just these files."""
    try:
        index: Any = read_json(source / INDEX)
        if index["fingerprint"] != fingerprint(source, paths):
            return None
        return {source / name: printable(str(reason)) for name, reason in index["unusable"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def read_parts(
    source: Path,
    listed: Mapping[str, Sequence[tuple[Path, int]]],
    classes: tuple[str, ...],
    preprocessing: Preprocessing,
    lazy: bool | None,
) -> tuple[dict[str, ImageDataset], list[Skipped]]:
    """Decode every file once, with a thread per processor: data sets of the usable ones, and the others with reasons.

    With ``lazy`` only the names are kept, and if ``remix data prepare`` left an index in the folder nothing is decoded;
    None means so for what would take more than MEMORY_LIMIT. Raises DataError if no file of a part can be used.
    """
    if lazy is None:
        lazy = sum(len(files) for files in listed.values()) * math.prod(preprocessing.shape) > MEMORY_LIMIT
    known = _known_unusable(source, (path for files in listed.values() for path, _ in files)) if lazy else None
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


def _decode_all(paths: list[Path], preprocessing: Preprocessing, keep: bool) -> tuple[dict[Path, str], Tensor | None]:
    """Reasons by unusable file, and with ``keep`` the pixels, uint8 (N, C, H, W); rows of unusable files are void."""
    pixels = torch.empty(len(paths), *preprocessing.shape, dtype=torch.uint8) if keep else None

    def decode(row: int) -> str | None:
        try:
            image = preprocessing.encoded(paths[row])
        except UnreadableImage as error:
            return error.reason
        if pixels is not None:
            pixels[row] = image
        return None

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        reasons = list(pool.map(decode, range(len(paths))))
    return {path: reason for path, reason in zip(paths, reasons, strict=True) if reason is not None}, pixels


def read_lines(file: Path) -> list[str]:
    """Lines of a UTF-8 text file, stripped, without empty ones.

    Raises DataError if it is not there, no text, longer than such lists are, or has control characters.
    """
    try:
        text = read_limited(file, _LARGEST).decode("utf-8-sig")
    except FileNotFoundError:
        raise MissingData(f"{printable(file)} is missing; unpack the data set again") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{printable(file)} is not text in UTF-8; unpack the data set again") from error
    except (OSError, ValueError) as error:
        raise DataError(f"a list cannot be read: {error}; unpack the data set again") from error
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if any(len(line) > _LONGEST or _CONTROL.search(line) for line in lines):
        raise DataError(f"{printable(file)} has a line that no list of names has; unpack the data set again")
    return lines


def read_table(file: Path, columns: int, separator: str | None = None) -> list[list[str]]:
    """Lines split at white space (or ``separator``) into at least so many columns. Raises as `read_lines`."""
    rows = [line.split(separator) for line in read_lines(file)]
    for number, row in enumerate(rows, start=1):
        if len(row) < columns:
            raise DataError(f"line {number} of {printable(file)} has {len(row)} of {columns} columns; unpack it again")
    return rows
