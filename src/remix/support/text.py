"""Text fit to be shown, and tables of it."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from textwrap import wrap
from typing import Any

__all__ = [
    "as_csv", "as_latex", "as_markdown", "as_table", "counted", "csv_cell", "did_you_mean", "fitted_widths",
    "printable", "shown", "some",
]  # fmt: skip

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


def counted(number: int, one: str, several: str = "") -> str:
    """A number of things: "1 class", "1,200 classes"; ``several`` where that is not the usual plural."""
    plural = several or (f"{one}es" if one.endswith(("s", "ss", "x", "ch")) else f"{one}s")
    return f"{number:,} {one if number == 1 else plural}"


def some(names: Sequence[str], most: int = 10) -> str:
    """The first of many names, and how many there are."""
    return ", ".join(map(printable, names[:most])) + (f", ... ({len(names):,} in all)" if len(names) > most else "")


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


_IN_LATEX = {letter: f"\\{letter}" for letter in "&%$#_{}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$",
}  # fmt: skip


def as_table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = (), width: int = 0) -> str:
    """Aligned columns, never cut.

    Args:
        head: names of the columns.
        rows: cells.
        right: columns of numbers.
        width: of a terminal: lines break between words, within columns of texts; 0 for a pipe, where they do not.

    """
    from rich.cells import cell_len  # here: the help of commands, which import this file, answers without rich

    columns = [[head[i], *(row[i] for row in rows)] for i in range(len(head))]
    room = width - 2 * (len(head) - 1)
    widths = fitted_widths(columns, {*range(len(head))} - {*right}, room) if width else None
    if widths is None:
        widths = [max(map(cell_len, column)) for column in columns]

    def laid_out(line: Sequence[str]) -> str:
        broken = [_broken(cell, size) if width else [cell] for cell, size in zip(line, widths, strict=True)]
        lines = []
        for k in range(max(map(len, broken))):
            cells = []
            for i, (parts, size) in enumerate(zip(broken, widths, strict=True)):
                cell = parts[k] if k < len(parts) else ""
                space = " " * (size - cell_len(cell))
                cells.append(space + cell if i in right else cell + space)
            lines.append("  ".join(cells).rstrip())
        return "\n".join(lines)

    return "\n".join(map(laid_out, (head, *rows)))


def _broken(cell: str, size: int) -> list[str]:
    from rich.cells import cell_len

    if cell_len(cell) <= size:
        return [cell]
    return wrap(cell, size, break_long_words=False, break_on_hyphens=False) or [""]


def fitted_widths(columns: Sequence[Sequence[str]], texts: Collection[int], room: int) -> list[int] | None:
    """Widths of columns, given as head and cells, that take at most ``room`` together and cut no word; None if none do.

    Heads, and the cells of the columns in ``texts``, may break between words; cells of others are as wide as they are.
    """
    from rich.cells import cell_len

    def widest(words: Iterable[str]) -> int:
        return max(map(cell_len, words), default=0)

    whole = [widest(column) for column in columns]
    widths = [
        widest([*head.split(), *((word for cell in cells for word in cell.split()) if i in texts else cells)])
        for i, (head, *cells) in enumerate(columns)
    ]
    spare = room - sum(widths)
    if spare < 0:
        return None
    for _ in range(spare):
        narrow = [i for i, size in enumerate(widths) if size < whole[i]]
        if narrow:  # texts first
            widths[min(narrow, key=lambda i: (i not in texts, widths[i]))] += 1
    return widths


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows that have the same columns, as lines of CSV below their names."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(csv_cell(name) for name in rows[0])
    writer.writerows([csv_cell(row[name]) for name in rows[0]] for row in rows)
    return text.getvalue()


def as_markdown(heads: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A table whose first ``left`` columns begin at the left, the others end at the right."""
    rule = ["---"] * left + ["---:"] * (len(heads) - left)
    lines = [[_in_markdown(cell) for cell in line] for line in (heads, *rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in (lines[0], rule, *lines[1:]))


def as_latex(heads: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """The same as a ``tabular``."""
    top, *body = (" & ".join(_in_latex(cell) for cell in line) + r" \\" for line in (heads, *rows))
    columns = "l" * left + "r" * (len(heads) - left)
    return "\n".join([rf"\begin{{tabular}}{{{columns}}}", rf"{top} \hline", *body, r"\end{tabular}"])


def _in_markdown(text: str) -> str:
    """Nothing in it is code, HTML, a link, a picture, or the end of a cell."""
    return re.sub(r"([\\`|<>\[\]*])", r"\\\1", printable(text))


def _in_latex(text: str) -> str:
    return "".join(_IN_LATEX.get(letter, letter) for letter in printable(text))
