"""Reads the pickle files of CIFAR without unpickling anything in this process.

A child process with limits on time and memory runs `remix.data.unpickling` and hands back plain bytes: whatever a file
does to it, all that happens here is one sentence.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from remix.data import unpickling
from remix.data.errors import DataError
from remix.data.unpickling import PIXELS, RefusedPickle
from remix.support.documents import parse_json
from remix.support.files import open_regular
from remix.support.text import printable

__all__ = ["read_pickled"]

_LARGEST = 2**29  # bytes of a file; the largest official one has 155 million
_SLOWEST = 2**20  # bytes a second that any disk delivers
_SECONDS = 60  # on top of that
_LONGEST = 4096  # bytes of the child's first line


def read_pickled(file: Path, label_key: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images (N, 3072) and labels (N,) of a pickle file, the latter from a list under ``label_key``.

    Raises:
        DataError: if the file is damaged, holds anything else, or cannot be read within reason.

    """
    try:
        with open_regular(file) as stream:
            return _read(stream, label_key)
    except RefusedPickle as error:
        raise DataError(f"{printable(file)} {printable(str(error))}; fetch it again") from error
    except OSError as error:
        raise DataError(f"{printable(file)} cannot be read: {printable(error.strerror or str(error))}") from error


def _read(stream: BinaryIO, label_key: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
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
            return _received(child.stdout, size)
        finally:
            timer.cancel()
            child.kill()


def _received(answer: io.BufferedReader, size: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
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
