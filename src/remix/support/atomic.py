"""Files that are there whole or not at all.

Who writes a temporary file holds a lock on it, which ends with the process: a file that nobody holds was left by a
process that was killed, and the next writer of the same file removes it. Systems without such locks keep it.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from remix.support.files import check_regular, open_regular

try:
    import fcntl
except ImportError:  # not on this system
    fcntl = None  # type: ignore[assignment]

__all__ = ["is_temporary", "remove_temporary", "write_text", "written_whole"]

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}\.tmp")


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
