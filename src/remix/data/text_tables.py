"""The small text files in which data sets keep their lists."""

from __future__ import annotations

import re
from pathlib import Path

from remix.data.errors import DataError, MissingData
from remix.support.files import read_limited
from remix.support.text import printable

__all__ = ["read_lines", "read_table"]

_LARGEST = 2**24  # bytes; the longest official list has 3 million
_LONGEST = 2000  # characters of a line
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f]")


def read_lines(file: Path) -> list[str]:
    """Lines of a UTF-8 text file, stripped, without empty ones.

    Raises:
        MissingData: if there is no such file.
        DataError: if it cannot be read as text, is longer than such lists are, or has control characters.

    """
    try:
        text = read_limited(file, _LARGEST).decode("utf-8-sig")
    except FileNotFoundError:
        raise MissingData(f"{printable(file)} is missing; unpack the data set again") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{printable(file)} is not text in UTF-8; unpack the data set again") from error
    except (OSError, ValueError) as error:
        raise DataError(f"a list cannot be read: {error}; unpack the data set again") from error
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if any(len(line) > _LONGEST or _CONTROL.search(line) for line in lines):
        raise DataError(f"{printable(file)} has a line that no list of names has; unpack the data set again")
    return lines


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
