"""What goes wrong with data, each as one sentence for the person."""

from __future__ import annotations

from pathlib import Path

from remix.support.text import printable

__all__ = ["DataError", "MissingData", "UnreadableImage"]


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
