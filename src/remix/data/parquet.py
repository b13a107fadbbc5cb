"""Hugging Face parquet shards: a column of encoded images and a column of labels."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from remix.data.errors import DataError, UnreadableImage
from remix.data.preprocessing import Preprocessing
from remix.support.text import printable

__all__ = ["read_shards", "shards"]

_IMAGES = ("img", "image")


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
        DataError: if pyarrow is not installed, a file is no parquet file, a column is missing, or an image is damaged.

    """
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise DataError("reading parquet files needs pyarrow: pip install pyarrow, or 'remix-dfcil[parquet]'") from None
    images: list[Tensor] = []
    labels: list[int] = []
    for file in files:
        try:
            shard = pq.ParquetFile(file)
        except Exception as error:  # pyarrow has its own exceptions for each kind of damage
            raise DataError(f"{printable(file)} is no readable parquet file ({error}); fetch it again") from error
        names = shard.schema_arrow.names
        image = next((name for name in _IMAGES if name in names), None)
        if image is None or label not in names:
            raise DataError(
                f"{printable(file)} has the columns {', '.join(names)}; wanted are {' or '.join(_IMAGES)}, and {label}"
            )
        for rows in shard.iter_batches(batch_size=1000, columns=[image, label]):
            start = len(labels)
            labels += rows.column(label).to_pylist()
            encoded = rows.column(image).to_pylist()
            images.append(torch.stack([_decode(v, preprocessing, file, start + k) for k, v in enumerate(encoded)]))
    if not images:
        raise DataError(f"no images in {', '.join(printable(file) for file in files) or 'no files'}")
    if any(not isinstance(value, int) for value in labels):
        raise DataError(f"column {label} of {printable(files[0])} is not made of whole numbers")
    return torch.cat(images), torch.tensor(labels, dtype=torch.int64)


def _decode(value: Any, preprocessing: Preprocessing, file: Path, row: int) -> Tensor:
    """An image is stored as {"bytes": ..., "path": ...}, or as the bytes alone."""
    encoded = value.get("bytes") if isinstance(value, dict) else value
    if not isinstance(encoded, bytes):
        raise DataError(f"{printable(file)} has no image bytes in row {row}; fetch it again")
    try:
        return preprocessing.encoded(io.BytesIO(encoded))
    except UnreadableImage as error:
        raise DataError(f"row {row} of {printable(file)}: {error.reason}") from error
