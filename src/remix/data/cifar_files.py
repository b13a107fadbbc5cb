"""The three layouts in which CIFAR is to be had: binary records, pickles, and Hugging Face parquet shards.

Nothing is unpickled in this process: a child with limits on time and memory runs `remix.data.unpickling` and hands back
plain bytes, so that whatever a file does to it, all that happens here is one sentence.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from remix.data import unpickling
from remix.data.errors import DataError, UnreadableImage
from remix.data.preprocessing import Preprocessing
from remix.data.unpickling import PIXELS, RefusedPickle
from remix.support.documents import parse_json
from remix.support.files import open_regular
from remix.support.text import printable

__all__ = ["read_pickled", "read_pickles", "read_records", "read_shards", "shards"]

_LARGEST = 2**29  # bytes of a file of records or a pickle; the largest official one has 155 million
_SLOWEST = 2**20  # bytes a second that any disk delivers
_SECONDS = 60  # for a pickle, on top of that
_LONGEST = 4096  # bytes of the child's first line
_IMAGE_COLUMNS = ("img", "image")
_MOST_ROWS = 2**17  # of all shards of a part
_LARGEST_SHARD = 2**28  # bytes of a shard's columns, unpacked
_TOGETHER = 16  # rows of a shard


def read_records(files: list[Path], label_bytes: int) -> tuple[Tensor, Tensor]:
    """uint8 (N, 3, 32, 32) and int64 (N,): the last label byte of each record (CIFAR-100: coarse, then fine).

    The files are mapped, so that only the pixels are held in memory. Raises DataError for files of other sizes.
    """
    record = label_bytes + PIXELS
    for file in files:
        size = file.stat().st_size
        if size == 0 or size % record:
            raise DataError(
                f"{printable(file)} has {size:,} bytes, which is not a whole number of records of {record:,}: "
                "the file is cut off or not of this data set; fetch it again"
            )
        if size > _LARGEST:
            raise DataError(
                f"{printable(file)} has {size:,} bytes, more than any file of this data set; fetch it again"
            )
    rows = [np.memmap(file, np.uint8, "r").reshape(-1, record) for file in files]
    images = np.concatenate([row[:, label_bytes:] for row in rows])
    labels = np.concatenate([row[:, label_bytes - 1] for row in rows], dtype=np.int64)
    return torch.from_numpy(images).view(-1, 3, 32, 32), torch.from_numpy(labels)


def read_pickles(files: list[Path], label_key: str) -> tuple[Tensor, Tensor]:
    """uint8 (N, 3, 32, 32) and int64 (N,) of several pickle files; see :func:`read_pickled`."""
    found = [read_pickled(file, label_key) for file in files]
    images = [torch.from_numpy(pixels).view(-1, 3, 32, 32) for pixels, _ in found]
    labels = torch.from_numpy(np.concatenate([numbers for _, numbers in found]))
    return (images[0] if len(images) == 1 else torch.cat(images)), labels


def read_pickled(file: Path, label_key: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images (N, 3072) and labels (N,) of a pickle file, the latter from a list under ``label_key``.

    Raises DataError if the file is damaged, holds anything else, or cannot be read within reason.
    """
    try:
        with open_regular(file) as stream:
            return _ask_child(stream, label_key)
    except RefusedPickle as error:
        raise DataError(f"{printable(file)} {printable(str(error))}; fetch it again") from error
    except OSError as error:
        raise DataError(f"{printable(file)} cannot be read: {printable(error.strerror or str(error))}") from error


def _ask_child(stream: BinaryIO, label_key: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    size = os.fstat(stream.fileno()).st_size
    if size > _LARGEST:
        raise RefusedPickle(f"has {size:,} bytes, more than any file of this data set")
    # -I and -S: nothing of the user's is imported, and nothing that takes time to start.
    command = [sys.executable, "-I", "-S", unpickling.__file__, label_key]
    with subprocess.Popen(command, stdin=stream, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        timer = threading.Timer(_SECONDS + size / _SLOWEST, child.kill)
        timer.start()
        try:
            assert isinstance(child.stdout, io.BufferedReader)
            return _answered(child.stdout, size)
        finally:
            timer.cancel()
            child.kill()


def _answered(answer: io.BufferedReader, size: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    header = answer.readline(_LONGEST)
    if not header.endswith(b"\n"):
        raise RefusedPickle("was given up: reading it takes more time or memory than such files do, or fails")
    found = parse_json(header)
    if "refused" in found:
        raise RefusedPickle(found["refused"])
    if not 0 < found["images"] * PIXELS <= size:
        raise RefusedPickle("unfolds to more than it has")
    labels = np.empty(found["images"], np.int64)
    pixels = np.empty(found["images"] * PIXELS, np.uint8)
    for array in (labels, pixels):
        if answer.readinto(array.view(np.uint8).data) != array.nbytes:
            raise RefusedPickle("was given up half-way")
    return pixels.reshape((-1, PIXELS), order="F" if found["fortran"] else "C"), labels


def shards(folder: Path, part: str, below: bool = True) -> list[Path]:
    """The shards of a part ("train" or "test") in a folder and, with ``below``, the folders under it; in order."""
    found = folder.rglob("*.parquet") if below else folder.glob("*.parquet")
    return sorted(path for path in found if path.name.startswith(part))


def read_shards(files: Sequence[Path], label: str, preprocessing: Preprocessing) -> tuple[Tensor, Tensor]:
    """Decode all images of a part, and read the column of labels: uint8 (N, C, H, W) and int64 (N,).

    Raises DataError if pyarrow is not installed, a file is no parquet file, a column is missing, a label is no whole
    number, an image is damaged, or a file unfolds to more than such data sets have.
    """
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise DataError("reading parquet files needs pyarrow: pip install pyarrow, or 'remix-dfcil[parquet]'") from None
    images: list[Tensor] = []
    labels: list[int] = []
    for file in files:
        try:
            with open_regular(file) as stream:
                for encoded, numbers in _columns(pq.ParquetFile(stream), file, label):
                    _check_rows(file, label, numbers, len(labels) + len(numbers))
                    start = len(labels)
                    labels += numbers
                    rows = [_decode_row(value, preprocessing, file, start + k) for k, value in enumerate(encoded)]
                    images.append(torch.stack(rows))
        except DataError:
            raise
        except Exception as error:  # pyarrow has its own exceptions for each kind of damage
            reason = printable(str(error))[:200]
            raise DataError(f"{printable(file)} is no readable parquet file ({reason}); fetch it again") from error
    if not images:
        raise DataError(f"no images in {', '.join(printable(file) for file in files) or 'no files'}")
    return torch.cat(images), torch.tensor(labels, dtype=torch.int64)


def _columns(shard: Any, file: Path, label: str) -> Iterator[tuple[list[Any], list[Any]]]:
    """Images and labels, a few rows at a time: one picture that stands for many rows is unfolded for each."""
    names = shard.schema_arrow.names
    image = next((name for name in _IMAGE_COLUMNS if name in names), None)
    if image is None or label not in names:
        raise DataError(
            f"{printable(file)} has the columns {printable(', '.join(names))[:200]}; wanted are "
            f"{' or '.join(_IMAGE_COLUMNS)}, and {label}"
        )
    # Not by column: asking for those of a damaged file ends the process (pyarrow 26).
    size = sum(shard.metadata.row_group(k).total_byte_size for k in range(shard.metadata.num_row_groups))
    if size > _LARGEST_SHARD:
        raise DataError(f"{printable(file)} unfolds to {size:,} bytes, more than any shard of this data set")
    for rows in shard.iter_batches(batch_size=_TOGETHER, columns=[image, label]):
        yield rows.column(image).to_pylist(), rows.column(label).to_pylist()


def _check_rows(file: Path, label: str, numbers: list[Any], count: int) -> None:
    if any(type(value) is not int or abs(value) >= 2**63 for value in numbers):
        raise DataError(f"column {label} of {printable(file)} is not made of whole numbers; fetch it again")
    if count > _MOST_ROWS:
        raise DataError(f"{printable(file)} makes more than {_MOST_ROWS:,} images, more than this data set has")


def _decode_row(value: Any, preprocessing: Preprocessing, file: Path, row: int) -> Tensor:
    """An image is stored as {"bytes": ..., "path": ...}, or as the bytes alone."""
    encoded = value.get("bytes") if isinstance(value, dict) else value
    if not isinstance(encoded, bytes):
        raise DataError(f"{printable(file)} has no image bytes in row {row}; fetch it again")
    try:
        return preprocessing.encoded(io.BytesIO(encoded))
    except UnreadableImage as error:
        raise DataError(f"row {row} of {printable(file)}: {error.reason}") from error
