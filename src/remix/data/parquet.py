"""Hugging Face parquet shards: a column of encoded images and a column of labels."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from remix.data.errors import DataError, UnreadableImage
from remix.data.preprocessing import Preprocessing
from remix.support.files import open_regular
from remix.support.text import printable

__all__ = ["read_shards", "shards"]

_IMAGES = ("img", "image")
_MOST_ROWS = 2**17  # of all shards of a part
_LARGEST = 2**28  # bytes of a shard's columns, unpacked
_TOGETHER = 16


def shards(folder: Path, part: str, below: bool = True) -> list[Path]:
    """The shards of a part ("train" or "test") in a folder and, with ``below``, the folders under it; in order."""
    found = folder.rglob("*.parquet") if below else folder.glob("*.parquet")
    return sorted(path for path in found if path.name.startswith(part))


def read_shards(files: Sequence[Path], label: str, preprocessing: Preprocessing) -> tuple[Tensor, Tensor]:
    """Decode all images: uint8 (N, C, H, W) and int64 (N,).

    Args:
        files: shards of one part.
        label: name of the column of labels.
        preprocessing: applied to every image.

    Raises:
        DataError: if pyarrow is not installed, a file is no parquet file, a column is missing, a label is no whole
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
                for encoded, numbers in _rows(pq.ParquetFile(stream), file, label):
                    _check(file, label, numbers, len(labels) + len(numbers))
                    start = len(labels)
                    labels += numbers
                    rows = [_decode(value, preprocessing, file, start + k) for k, value in enumerate(encoded)]
                    images.append(torch.stack(rows))
        except DataError:
            raise
        except Exception as error:  # pyarrow has its own exceptions for each kind of damage
            reason = printable(str(error))[:200]
            raise DataError(f"{printable(file)} is no readable parquet file ({reason}); fetch it again") from error
    if not images:
        raise DataError(f"no images in {', '.join(printable(file) for file in files) or 'no files'}")
    return torch.cat(images), torch.tensor(labels, dtype=torch.int64)


def _rows(shard: Any, file: Path, label: str) -> Iterator[tuple[list[Any], list[Any]]]:
    """Images and labels, a few rows at a time: one picture that stands for many rows is unfolded for each."""
    names = shard.schema_arrow.names
    image = next((name for name in _IMAGES if name in names), None)
    if image is None or label not in names:
        raise DataError(
            f"{printable(file)} has the columns {printable(', '.join(names))[:200]}; wanted are "
            f"{' or '.join(_IMAGES)}, and {label}"
        )
    # Not by column: asking for those of a damaged file ends the process (pyarrow 26).
    size = sum(shard.metadata.row_group(k).total_byte_size for k in range(shard.metadata.num_row_groups))
    if size > _LARGEST:
        raise DataError(f"{printable(file)} unfolds to {size:,} bytes, more than any shard of this data set")
    for rows in shard.iter_batches(batch_size=_TOGETHER, columns=[image, label]):
        yield rows.column(image).to_pylist(), rows.column(label).to_pylist()


def _check(file: Path, label: str, numbers: list[Any], count: int) -> None:
    if any(type(value) is not int or abs(value) >= 2**63 for value in numbers):
        raise DataError(f"column {label} of {printable(file)} is not made of whole numbers; fetch it again")
    if count > _MOST_ROWS:
        raise DataError(f"{printable(file)} makes more than {_MOST_ROWS:,} images, more than this data set has")


def _decode(value: Any, preprocessing: Preprocessing, file: Path, row: int) -> Tensor:
    """An image is stored as {"bytes": ..., "path": ...}, or as the bytes alone."""
    encoded = value.get("bytes") if isinstance(value, dict) else value
    if not isinstance(encoded, bytes):
        raise DataError(f"{printable(file)} has no image bytes in row {row}; fetch it again")
    try:
        return preprocessing.encoded(io.BytesIO(encoded))
    except UnreadableImage as error:
        raise DataError(f"row {row} of {printable(file)}: {error.reason}") from error
