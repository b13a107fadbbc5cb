"""What goes wrong with data, each as one sentence for the person."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["DataError", "MissingData", "UnreadableImage", "printable"]


class DataError(ValueError):
    """Data that are there but cannot be used; the message says which, why, and what to do."""


class MissingData(DataError):
    """Data that are not where they were looked for; the message says what to put where."""


class UnreadableImage(DataError):
    """One image that cannot be used.

    Attributes:
        reason: why, without the file's name.

    """

    def __init__(self, path: Path | str | None, reason: str) -> None:
        super().__init__(reason if path is None else f"{printable(path)}: {reason}")
        self.reason = reason


def printable(path: Path | str) -> str:
    """A file name that every terminal can show: control characters and bytes that are not UTF-8 are escaped."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
