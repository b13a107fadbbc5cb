"""Text from elsewhere, made fit to be shown."""

from __future__ import annotations

from pathlib import Path

__all__ = ["printable"]


def printable(text: Path | str) -> str:
    """A file name, or any text, that every terminal can show: control characters and what is not UTF-8 are escaped."""
    return "".join(c if c.isprintable() else _escaped(c) for c in str(text))


def _escaped(c: str) -> str:
    if "\udc80" <= c <= "\udcff":  # how Python holds a byte of a file name that is not UTF-8
        return f"\\x{ord(c) - 0xDC00:02x}"
    return c.encode("unicode_escape").decode()
