"""Text from elsewhere, made fit to be shown."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

__all__ = ["csv_cell", "did_you_mean", "printable", "shown"]

_LONGEST = 80  # letters of a value in a message


def printable(text: Path | str) -> str:
    """A file name, or any text, that every terminal can show: control characters and what is not UTF-8 are escaped."""
    return "".join(c if c.isprintable() else _escaped(c) for c in str(text))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """ " (did you mean 'x'?)" for the known word that is nearest to a mistyped one, or nothing."""
    close = get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""


def shown(value: object) -> str:
    """A value as a message names it: as Python writes it, and cut where nobody would read on."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def csv_cell(value: object) -> str:
    """The text of a cell of a table: no spreadsheet takes it for a formula, no terminal for a command."""
    if isinstance(value, int | float):
        return str(value)
    text = "" if value is None else printable(str(value))
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _escaped(c: str) -> str:
    if "\udc80" <= c <= "\udcff":  # how Python holds a byte of a file name that is not UTF-8
        return f"\\x{ord(c) - 0xDC00:02x}"
    return c.encode("unicode_escape").decode()
