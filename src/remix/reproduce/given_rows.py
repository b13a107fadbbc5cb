"""Rows of a table that an earlier call wrote, in place of runs whose folders are not here."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from remix.learning.metrics import AccuracyMatrix
from remix.support.files import read_limited, why_unreadable
from remix.support.text import printable, shown

__all__ = ["RUN_COLUMNS", "Key", "Row", "read_rows", "summary_of"]

Row = Mapping[str, Any]
"""The cells of a line: numbers, None for empty ones, else text."""

Key = tuple[str, str, int, str]
"""Which run a row is of: preset (or benchmark), name of the variant, seed, and what it was tested on."""

_KEY = ("preset", "method", "seed")
_COSTS = {"minutes": "minutes_in_all", "processor_minutes": "processor_minutes", "peak_memory_mib": "peak_memory_mib"}
_MAY_BE_EMPTY = ("forgetting", "backward_transfer", "old_task_accuracy")  # with one task there is none
_LONGEST = 1 << 24  # bytes


def _metrics() -> tuple[str, ...]:
    matrix = AccuracyMatrix()
    matrix.add_row([0], [1])
    return tuple(matrix.summary())


RUN_COLUMNS = (*_metrics(), *_COSTS)
"""What `remix.experiments.compare.run_rows` says of a run."""


def read_rows(path: str | Path, needed: Sequence[str]) -> dict[Key, list[Row]]:
    """The rows of a CSV file by run; most tables have one row for each.

    Args:
        path: of the file.
        needed: columns of numbers that must be there, besides preset, method and seed.

    Raises:
        ValueError: if it cannot be read, lacks a column, or a number is none.

    """
    name = f"--rows {printable(path)}"
    try:
        text = read_limited(path, _LONGEST).decode()
        lines = list(csv.DictReader(io.StringIO(text, newline="")))
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not text in UTF-8") from error
    except csv.Error as error:
        raise ValueError(f"{name} is not CSV: {error}") from error
    except OSError as error:
        raise ValueError(why_unreadable(path, error)) from error
    missing = [column for column in (*_KEY, *needed) if not lines or column not in lines[0]]
    if missing:
        raise ValueError(f"{name} lacks the column {missing[0]}, which this target needs of a row")
    found: dict[Key, list[Row]] = {}
    for number, line in enumerate(lines, start=2):
        row = {column: _value(text) for column, text in line.items() if column is not None}
        bad = [column for column in needed if not _fits(column, row[column])]
        if bad or type(row["seed"]) is not int:
            column = bad[0] if bad else "seed"
            raise ValueError(f"{name}, line {number}: {column} must be a number, got {shown(line[column])}")
        key = str(row["preset"]), str(row["method"]), row["seed"], str(row.get("tested_on") or "test")
        found.setdefault(key, []).append(row)
    return found


def summary_of(row: Row) -> dict[str, Any]:
    """What the summary of the run says, as far as the row has it."""
    costs = {**_COSTS, "peak_gpu_mib": "peak_gpu_mib"}
    return {
        "metrics": {name: row[name] for name in _metrics() if name in row},
        "tested_on": row.get("tested_on") or "test",
        **{key: row[key] for key in ("data", "tasks") if key in row},
        **{key: row[column] for column, key in costs.items() if row.get(column) is not None},
    }


def _value(text: str | None) -> Any:
    """An int, a finite float, None for an empty cell, or the text."""
    if not text:
        return None
    for kind in (int, float):
        try:
            value = kind(text)
            return value if math.isfinite(value) else text
        except (ValueError, OverflowError):
            continue
    return text


def _fits(column: str, value: Any) -> bool:
    return isinstance(value, int | float) or (value is None and column in _MAY_BE_EMPTY)
