"""The official binary layout of CIFAR: records of label bytes and 3 x 32 x 32 pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from remix.data.errors import DataError
from remix.support.text import printable

__all__ = ["read_records"]

PIXELS = 3 * 32 * 32
_LARGEST = 2**29  # bytes; the largest official file has 154 million


def read_records(files: list[Path], label_bytes: int) -> tuple[Tensor, Tensor]:
    """uint8 (N, 3, 32, 32) and int64 (N,): the last label byte of each record (CIFAR-100: coarse, then fine).

    The files are mapped, so that only the pixels are held in memory.

    Raises:
        DataError: if a file is not a whole number of records, or has more than this data set.

    """
    record = label_bytes + PIXELS
    sizes = [file.stat().st_size for file in files]
    for file, size in zip(files, sizes, strict=True):
        if size == 0 or size % record:
            raise DataError(
                f"{printable(file)} has {size:,} bytes, which is not a whole number of records of {record:,}: "
                "the file is cut off or not of this data set; fetch it again"
            )
        if size > _LARGEST:
            raise DataError(
                f"{printable(file)} has {size:,} bytes, more than any file of this data set; fetch it again"
            )
    count = sum(size // record for size in sizes)
    images = np.empty((count, PIXELS), np.uint8)
    labels = np.empty(count, np.int64)
    start = 0
    for file, size in zip(files, sizes, strict=True):
        rows = np.memmap(file, np.uint8, "r", shape=(size // record, record))
        stop = start + len(rows)
        images[start:stop], labels[start:stop] = rows[:, label_bytes:], rows[:, label_bytes - 1]
        start = stop
    return torch.from_numpy(images).view(-1, 3, 32, 32), torch.from_numpy(labels)
