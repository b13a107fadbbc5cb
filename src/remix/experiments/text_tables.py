"""Tables as text: CSV and Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["as_csv", "as_markdown"]


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows that have the same columns, as lines of CSV below their names."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_markdown(heads: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A table whose first ``left`` columns begin at the left, the others end at the right."""
    rule = ["---"] * left + ["---:"] * (len(heads) - left)
    return "\n".join("| " + " | ".join(line) + " |" for line in (heads, rule, *rows))
