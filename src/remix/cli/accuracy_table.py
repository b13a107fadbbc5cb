"""The result of a run as a table for the terminal; imported by commands when they show one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from remix.learning.metrics import METRICS, AccuracyMatrix
from remix.support.text import printable

__all__ = ["accuracy_table"]


def accuracy_table(title: str, content: Mapping[str, Any], small: bool = False) -> Table:
    """The accuracy matrix that a summary holds, and below it the numbers that are read from it.

    Args:
        title: above it.
        content: of `AccuracyMatrix.from_dict`.
        small: leaves room for two side by side in a terminal of 80 columns.

    """
    matrix = AccuracyMatrix.from_dict(content)
    found = matrix.summary()
    caption = ", ".join(f"{name} {found[key]:.2f} %" for key, name in METRICS.items() if found[key] is not None)
    look: dict[str, Any] = {"box": None, "padding": (0, 1, 0, 0), "pad_edge": False} if small else {}
    table = Table(title=Text(printable(title)), title_justify="left", caption=caption, caption_justify="left", **look)
    table.add_column("" if small else "after task", justify="right", style="dim" if small else None)
    for task in range(len(matrix)):
        table.add_column(f"{'' if small else 'task '}{task + 1}", justify="right")
    table.add_column("mean", justify="right", style="bold")
    for step in range(len(matrix)):
        row = [f"{accuracy:.1f}" for accuracy in matrix.row(step)]
        padding = [""] * (len(matrix) - step - 1)
        table.add_row(str(step + 1), *row, *padding, f"{matrix.accuracy(step, average='macro'):.1f}")
    return table
