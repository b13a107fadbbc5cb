"""How commands print: results to standard output, everything else to standard error; tables that several show."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from remix.support.text import printable

if TYPE_CHECKING:
    from rich.table import Table

    from remix.data import Skipped
    from remix.experiments.compare import Comparison

__all__ = [
    "Format",
    "accuracy_table",
    "as_json",
    "check_format",
    "check_target",
    "comparison_table",
    "note",
    "note_left_out",
    "show",
]

Format = Literal["table", "json", "csv"]


def check_format(name: str, known: Collection[str] = get_args(Format)) -> None:
    """Check the name of a format. Raises ValueError that lists the known ones."""
    if name not in known:
        raise ValueError(f"--format knows {', '.join(known)}, got {name!r}")


def check_target(source: Path, out: Path, overwrite: bool) -> None:
    """Whether a model that is made of another, or of a folder, can be written there. Raises ValueError if not."""
    if out.is_dir():
        raise ValueError(f"--out {out} is a folder; name a file in it, such as {out / 'model.remix'}")
    if out.exists() and source.exists() and out.samefile(source):
        raise ValueError(f"--out {out} is the model itself, which is never changed: choose another name")
    if out.exists() and not overwrite:
        raise ValueError(f"{out} exists already: choose another name, or add --overwrite")
    if not out.parent.is_dir():
        raise ValueError(f"there is no folder {out.parent} to write {out.name} to")
    if not os.access(out.parent, os.W_OK):
        raise ValueError(f"no permission to write to the folder {out.parent}")


def as_json(content: Any) -> str:
    """Indented JSON; letters of every script stay letters."""
    return json.dumps(content, indent=2, ensure_ascii=False)


def show(text: str) -> None:
    """Print a result. A reader that has had enough (``| head``) ends the command quietly."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # Python would complain once more when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + 13)


def note(text: str) -> None:
    """Print what is not a result, where it does not get into a pipe."""
    print(text, file=sys.stderr, flush=True)


def note_left_out(skipped: Sequence[Skipped]) -> None:
    """Say what was left out and why, if anything was."""
    from remix.data.errors import left_out

    if skipped:
        note(f"left out {len(skipped):,}:")
    for line in left_out(skipped):
        note(f"  {line}")


def accuracy_table(title: str, content: Mapping[str, Any], small: bool = False) -> Table:
    """The accuracy matrix that a summary holds, and below it the numbers that are read from it.

    Args:
        title: above it.
        content: of `AccuracyMatrix.from_dict`.
        small: leaves room for two side by side in a terminal of 80 columns.

    """
    from rich.table import Table
    from rich.text import Text

    from remix.learning.metrics import METRICS, AccuracyMatrix

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


def comparison_table(found: Comparison) -> Table:
    """Methods by metrics, over their seeds."""
    from rich.table import Table
    from rich.text import Text

    from remix.experiments.compare import comparison_cells

    heads, rows = comparison_cells(found)
    table = Table(*heads, title="percent, means over tasks; mean ± standard deviation over seeds")
    table.columns[0].overflow = "fold"
    for column in table.columns[2:]:
        column.justify = "right"
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table
