"""Reading result files; what is missing is said, not guessed."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from remix.reproduce.published import paper_numbers

PUBLISHED = "claims/published.json"


class Missing(Exception):
    """There is no result yet, or too little of it; the text is the reason that the page gives."""


def number(text: str | None) -> float | None:
    """A finite number from a cell of a CSV file, or None for one that holds none."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


@dataclass(frozen=True)
class Results:
    """The result files below one folder."""

    folder: Path
    _parsed: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def published(self) -> dict[str, Any]:
        """The numbers of the paper: those that tables of ours show beside them, and the others."""
        return paper_numbers() | json.loads((self.folder / PUBLISHED).read_text())

    def json(self, name: str) -> Any:
        """A JSON file, read once; do not change what comes back.

        Raises:
            Missing: if it is not there.
        """
        if name not in self._parsed:
            self._parsed[name] = json.loads(self._text(name))
        return self._parsed[name]

    def rows(self, name: str, *needed: str) -> list[dict[str, str]]:
        """The lines of a CSV file in which every needed column holds a number.

        Raises:
            Missing: if the file is not there, has no such line, or lacks a column.
        """
        reader = csv.DictReader(self._text(name).splitlines())
        absent = sorted({*needed} - {*(reader.fieldnames or ())})
        if absent:
            raise Missing(f"`{name}` has no column {', '.join(absent)}.")
        rows = [row for row in reader if all(number(row[column]) is not None for column in needed)]
        if not rows:
            raise Missing(f"No runs yet: `{name}` has no finished line.")
        return rows

    def _text(self, name: str) -> str:
        path = self.folder / name
        if not path.exists():
            raise Missing(f"No runs yet: `{name}` is not there.")
        return path.read_text()
