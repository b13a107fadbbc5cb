"""IDX files, the format of MNIST and Fashion-MNIST, plain or gzipped."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import torch
from torch import Tensor

from remix.data.errors import DataError
from remix.support.files import open_regular
from remix.support.text import printable

__all__ = ["read_idx"]

_LIMIT = 2**28  # bytes; the images of Fashion-MNIST are 47 million


def read_idx(file: Path) -> Tensor:
    """The array of bytes in an IDX file: uint8, of the shape that its header says.

    Raises:
        DataError: if the file is damaged, cut off, or not an IDX file of bytes.

    """
    try:
        with open_regular(file) as plain, gzip.open(plain) if file.suffix == ".gz" else plain as stream:
            zero, kind, dimensions = struct.unpack(">HBB", stream.read(4))
            if (zero, kind) != (0, 8) or not 1 <= dimensions <= 4:
                raise DataError(f"{printable(file)} is not an IDX file of bytes; fetch it again")
            shape = struct.unpack(f">{dimensions}I", stream.read(4 * dimensions))
            size = math.prod(shape)
            if not 0 < size <= _LIMIT:
                raise DataError(f"{printable(file)} claims to hold {size:,} bytes, which no file of this data set does")
            # One byte more than announced: a longer file is as wrong as a shorter one.
            content = bytearray(stream.read(size + 1))
    except (EOFError, struct.error, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{printable(file)} is damaged or cut off; fetch it again") from error
    except OSError as error:
        raise DataError(f"{printable(file)} cannot be read: {error.strerror or error}") from error
    if len(content) != size:
        raise DataError(f"{printable(file)} should hold {size:,} bytes as {shape} and does not; fetch it again")
    return torch.frombuffer(content, dtype=torch.uint8).view(shape)
