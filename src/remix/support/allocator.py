"""How the C library hands out memory to tensors."""

from __future__ import annotations

import ctypes
import sys

__all__ = ["keep_freed_memory"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt
_KEPT = 2**31 - 1  # bytes; what fits into its argument


def keep_freed_memory() -> bool:
    """Let this process keep the memory that tensors free for the next ones; False where the C library is not glibc.

    By default glibc gives every block above 32 MiB back to the system when it is freed, and every page of the next one
    has to be asked for and zeroed again. A training step frees and asks for the same blocks over and over.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return all([mallopt(_MMAP_THRESHOLD, _KEPT), mallopt(_TRIM_THRESHOLD, _KEPT)])
