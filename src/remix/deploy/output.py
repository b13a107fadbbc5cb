"""What commands print: tables, CSV and JSON that a person can read and a program can take."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from collections.abc import Sequence
from typing import Any, Literal, get_args

from rich.cells import cell_len

from remix.data.errors import Skipped, left_out
from remix.support.text import csv_cell

__all__ = ["Format", "as_csv", "as_json", "as_table", "check_format", "note", "note_left_out", "show"]

Format = Literal["table", "json", "csv"]


def check_format(name: str) -> None:
    """Check the name of a format. Raises ValueError that lists the known ones."""
    if name not in get_args(Format):
        raise ValueError(f"--format knows {', '.join(get_args(Format))}, got {name!r}")


def as_table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Aligned columns, never cut or wrapped, as a pipe needs them.

    Args:
        head: names of the columns.
        rows: cells.
        right: columns of numbers.

    """
    lines = [list(head), *map(list, rows)]
    widths = [max(cell_len(line[i]) for line in lines) for i in range(len(head))]

    def laid_out(line: Sequence[str]) -> str:
        cells = []
        for i, (cell, width) in enumerate(zip(line, widths, strict=True)):
            space = " " * (width - cell_len(cell))
            cells.append(space + cell if i in right else cell + space)
        return "  ".join(cells).rstrip()

    return "\n".join(map(laid_out, lines))


def as_csv(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Comma-separated values with a line of names."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([csv_cell(cell) for cell in row] for row in (head, *rows))
    return text.getvalue().rstrip("\n")


def as_json(content: Any) -> str:
    """Indented JSON; letters of every script stay letters."""
    return json.dumps(content, indent=2, ensure_ascii=False)


def show(text: str) -> None:
    """Print a result. A reader that has had enough (``| head``) ends the command quietly."""
    try:
        print(_encodable(text, sys.stdout), flush=True)
    except BrokenPipeError:
        # Python would complain once more when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + 13)


def note(text: str) -> None:
    """Print what is not a result, where it does not get into a pipe."""
    print(_encodable(text, sys.stderr), file=sys.stderr, flush=True)


def note_left_out(skipped: Sequence[Skipped]) -> None:
    """Say what was left out and why, if anything was."""
    if skipped:
        note(f"left out {len(skipped):,}:")
    for line in left_out(skipped):
        note(f"  {line}")


def _encodable(text: str, stream: Any) -> str:
    """The text, with escapes for letters that the stream cannot show."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
