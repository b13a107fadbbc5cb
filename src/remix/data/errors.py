"""What goes wrong with data, each as one sentence for the person."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from remix.support.text import printable

__all__ = ["DataError", "MissingData", "Skipped", "UnreadableImage", "left_out"]


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


@dataclass(frozen=True)
class Skipped:
    """A file that was left out, and why."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{printable(self.path)}: {self.reason}"


def left_out(skipped: Iterable[Skipped], names: int = 20, reasons: int = 20) -> list[str]:
    """Lines that say what was left out: for every reason how many files, and the names of the first of them."""
    by_reason: dict[str, list[Skipped]] = {}
    for one in skipped:
        by_reason.setdefault(one.reason, []).append(one)
    lines = []
    for reason, files in list(by_reason.items())[:reasons]:
        shown = ", ".join(printable(one.path) for one in files[:names]) + ", ..." * (len(files) > names)
        lines.append(f"{shown}: {reason}" if len(files) == 1 else f"{len(files):,} files: {reason} ({shown})")
    if rest := sum(map(len, list(by_reason.values())[reasons:])):
        lines.append(f"... and {rest:,} more")
    return lines
