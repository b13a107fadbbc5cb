"""Files that people name: regular files only, and no more of them than was agreed."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from remix.support.text import printable

__all__ = [
    "IrregularFileError", "check_regular", "open_appending", "open_regular", "read_limited", "why_unreadable",
]  # fmt: skip

_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a link",
}


class IrregularFileError(OSError):
    """A path, after following links, that is a pipe, a socket or a device: reading it may never end.

    Attributes:
        reason: what it is, without its name.

    """

    def __init__(self, path: str | Path, reason: str) -> None:
        super().__init__(f"{printable(str(path))} is {reason}")
        self.reason = reason


def open_regular(path: str | Path) -> BinaryIO:
    """Open a regular file, or a link to one, for reading. Never waits for somebody at the other end.

    Raises:
        IrregularFileError: if it is something else.
        OSError: if it cannot be opened; a folder raises IsADirectoryError.

    """
    check_regular(path)  # before opening: that alone can wait, or move a tape
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    file = os.fdopen(handle, "rb")
    try:
        _check_mode(path, os.fstat(handle).st_mode)  # what was opened, should it have been exchanged meanwhile
    except BaseException:
        file.close()
        raise
    return file


def open_appending(path: str | Path) -> BinaryIO:
    """Open a file for adding to its end; it is made if it is not there. Links are not followed: it would be another's.

    Raises:
        IrregularFileError: if it is not a regular file.
        OSError: if it cannot be opened.

    """
    if os.path.lexists(path):
        _check_mode(path, os.lstat(path).st_mode)
    flags = ("O_NONBLOCK", "O_NOFOLLOW", "O_BINARY", "O_CLOEXEC")  # of those that this system has
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | sum(getattr(os, name, 0) for name in flags), 0o666)
    return os.fdopen(handle, "ab")


def why_unreadable(path: str | Path, error: Exception) -> str:
    """The sentence for an error of `open_regular`, `read_limited` or the readers of documents, with the file's name."""
    reason = getattr(error, "strerror", None)
    return f"cannot read {printable(str(path))}: {reason}" if reason else str(error)


def read_limited(path: str | Path, most: int) -> bytes:
    """All bytes of a regular file.

    Raises:
        ValueError: if it has more than ``most`` bytes.
        OSError: as `open_regular`.

    """
    with open_regular(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"{printable(str(path))} has more than {most:,} bytes")
    return content


def check_regular(path: str | Path) -> None:
    """Check that this is a regular file, or a link to one. Raises as `open_regular`."""
    _check_mode(path, os.stat(path).st_mode)


def _check_mode(path: str | Path, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(f"{printable(str(path))} is a folder, not a file")
    if not stat.S_ISREG(mode):
        raise IrregularFileError(path, f"{_KINDS.get(stat.S_IFMT(mode), 'something else')}, not a file")
