"""The small text files in which data sets keep their lists."""

from __future__ import annotations

from pathlib import Path

from remix.data.errors import DataError, MissingData
from remix.support.text import printable

__all__ = ["read_lines", "read_table"]


def read_lines(file: Path) -> list[str]:
    """Lines of a UTF-8 text file, stripped, without empty ones.

    Raises:
        MissingData: if there is no such file.
        DataError: if it cannot be read as text.

    """
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise MissingData(f"{printable(file)} is missing; unpack the data set again") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{printable(file)} cannot be read as text ({error}); unpack the data set again") from error
    return [line.strip() for line in text.splitlines() if line.strip()]


def read_table(file: Path, columns: int, separator: str | None = None) -> list[list[str]]:
    """Lines split at white space (or ``separator``) into at least so many columns.

    Raises:
        MissingData: if there is no such file.
        DataError: if a line has fewer columns; the message names it.

    """
    rows = [line.split(separator) for line in read_lines(file)]
    for number, row in enumerate(rows, start=1):
        if len(row) < columns:
            raise DataError(f"line {number} of {printable(file)} has {len(row)} of {columns} columns; unpack it again")
    return rows
