"""Tables as text: for a terminal, as CSV, Markdown and LaTeX. Whatever a cell holds stays text in the last three."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

from remix.support.text import csv_cell, printable

__all__ = ["as_csv", "as_latex", "as_markdown", "as_table"]

_IN_LATEX = {letter: f"\\{letter}" for letter in "&%$#_{}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$",
}  # fmt: skip


def as_table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Aligned columns, never cut or wrapped, as a pipe needs them.

    Args:
        head: names of the columns.
        rows: cells.
        right: columns of numbers.

    """
    from rich.cells import cell_len  # here: the help of commands, which import this file, answers without rich

    lines = [list(head), *map(list, rows)]
    widths = [max(cell_len(line[i]) for line in lines) for i in range(len(head))]

    def laid_out(line: Sequence[str]) -> str:
        cells = []
        for i, (cell, width) in enumerate(zip(line, widths, strict=True)):
            space = " " * (width - cell_len(cell))
            cells.append(space + cell if i in right else cell + space)
        return "  ".join(cells).rstrip()

    return "\n".join(map(laid_out, lines))


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
