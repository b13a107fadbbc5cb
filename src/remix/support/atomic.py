"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

__all__ = ["is_temporary", "remove_temporary", "write_text", "written_whole"]

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}\.tmp")


@contextmanager
def written_whole(path: str | Path) -> Iterator[IO[bytes]]:
    """A binary file to write to, which takes the place of ``path`` when the block has ended without an error.

    The bytes go to a temporary file in the same folder and are forced to disk, and so is the renaming: after a crash
    the old file or the new one is there, never a part.

    Raises:
        OSError: if it cannot be written; ``path`` is unchanged then.

    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
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


def _sync_folder(folder: Path) -> None:
    """Force the renaming itself to disk, where the system can do that for folders."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
