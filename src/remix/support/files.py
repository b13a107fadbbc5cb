"""Files that people name: regular files only, no more of them than was agreed, and written whole or not at all.

Who writes a temporary file holds a lock on it, which ends with the process: a file that nobody holds was left by a
process that was killed, and the next writer of the same file removes it. Systems without such locks keep it.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO

from remix.support.text import printable

try:
    import fcntl
except ImportError:  # not on this system
    fcntl = None  # type: ignore[assignment]

__all__ = [
    "IrregularFileError", "check_regular", "is_temporary", "open_appending", "open_regular", "read_limited",
    "remove_temporary", "why_unreadable", "write_text", "written_whole",
]  # fmt: skip

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}\.tmp")
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


@contextmanager
def written_whole(path: str | Path) -> Iterator[IO[bytes]]:
    """A binary file to write to, which takes the place of ``path`` when the block has ended without an error.

    The bytes go to a temporary file in the same folder and are forced to disk, and so is the renaming: after a crash
    the old file or the new one is there, never a part.

    Raises:
        OSError: if it cannot be written, or is no regular file; ``path`` is unchanged then.

    """
    path = Path(path)
    with suppress(FileNotFoundError):
        check_regular(path)  # a device must not be exchanged for a file
    _remove_abandoned(path)
    temporary, file = _locked_temporary(path)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if fcntl is None:
                file.close()  # such systems do not rename open files
            os.replace(temporary, path)  # still locked: nobody takes it for abandoned
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(path.parent)


def write_text(path: str | Path, text: str) -> None:
    r"""Write text as UTF-8, lines ended by "\n" on every system, whole or not at all.

    Raises:
        OSError: if it cannot be written; ``path`` is unchanged then.

    """
    with written_whole(path) as file:
        file.write(text.encode())


def is_temporary(path: Path) -> bool:
    """Whether this is what `written_whole` writes to before it is whole."""
    return _TEMPORARY.fullmatch(path.name) is not None


def remove_temporary(folder: Path) -> None:
    """Remove what writers that were killed have left in a folder; nobody may be writing into it."""
    for path in folder.iterdir():
        if is_temporary(path):
            path.unlink(missing_ok=True)


def _locked_temporary(path: Path) -> tuple[Path, IO[bytes]]:
    while True:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        file = open(temporary, "xb")  # noqa: SIM115 (the caller closes it)
        try:
            ours = _lock(file)
        except OSError:  # no locks here, so nobody will take it for abandoned either
            ours = True
        if ours and temporary.exists():
            return temporary, file
        file.close()  # another writer saw it before it was locked, and removed it


def _remove_abandoned(path: Path) -> None:
    """Remove temporary files of the same file whose writers are dead."""
    with suppress(OSError):
        for found in path.parent.iterdir():
            if found.name.startswith(f".{path.name}.") and is_temporary(found):
                with suppress(OSError), open_regular(found) as file:
                    if _lock(file):
                        found.unlink()


def _lock(file: IO[bytes]) -> bool:
    """Take the lock of a file; False if another process has it. Raises OSError where there are no locks."""
    if fcntl is None:
        raise OSError("this system has no locks")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sync_folder(folder: Path) -> None:
    """Force the renaming itself to disk, where the system can do that for folders."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
