"""Tables of results for the terminal."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from remix.learning.metrics import AccuracyMatrix
from remix.support.text import printable

__all__ = ["METRICS", "result_table", "small_table"]

METRICS = {
    "last_accuracy_macro": "last accuracy",
    "average_incremental_accuracy_macro": "average incremental accuracy",
    "forgetting": "forgetting",
}
"""The numbers that are shown of a run, all in percent and means over tasks, with their names."""


def result_table(title: str, matrix: AccuracyMatrix) -> Table:
    """The accuracy matrix, and below it the numbers that are read from it."""
    table = Table(title=Text(printable(title)), title_justify="left", caption=_caption(matrix), caption_justify="left")
    table.add_column("after task", justify="right")
    return _filled(table, matrix, "task ")


def small_table(title: str, matrix: AccuracyMatrix) -> Table:
    """The same with room for two side by side in a terminal of 80 columns."""
    table = Table(
        title=Text(printable(title)), title_justify="left", caption=_caption(matrix), caption_justify="left",
        box=None, padding=(0, 1, 0, 0), pad_edge=False,
    )  # fmt: skip
    table.add_column("", justify="right", style="dim")
    return _filled(table, matrix, "")


def _filled(table: Table, matrix: AccuracyMatrix, prefix: str) -> Table:
    for task in range(len(matrix)):
        table.add_column(f"{prefix}{task + 1}", justify="right")
    table.add_column("mean", justify="right", style="bold")
    for step in range(len(matrix)):
        row = [f"{accuracy:.1f}" for accuracy in matrix.row(step)]
        padding = [""] * (len(matrix) - step - 1)
        table.add_row(str(step + 1), *row, *padding, f"{matrix.accuracy(step, average='macro'):.1f}")
    return table


def _caption(matrix: AccuracyMatrix) -> str:
    found = matrix.summary()
    parts = [f"{name} {found[key]:.2f} %" for key, name in METRICS.items() if found[key] is not None]
    return ", ".join(parts)
