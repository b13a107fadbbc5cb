"""Text files that are there whole or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

__all__ = ["write_text"]


def write_text(path: str | Path, text: str) -> None:
    r"""Write text as UTF-8, lines ended by "\n" on every system, in one step: a reader never sees a part of it.

    Raises:
        OSError: if it cannot be written; ``path`` is unchanged then.

    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
