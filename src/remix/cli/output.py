"""How commands print: results to standard output, everything else to standard error; tables that several show."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from remix.support.text import as_table, fitted_widths, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from remix.data import Skipped
    from remix.experiments.compare import Comparison

__all__ = [
    "Format",
    "accuracy_table",
    "as_json",
    "check_format",
    "check_target",
    "fitted_table",
    "note",
    "note_left_out",
    "show",
    "show_comparison",
    "text_table",
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


def fitted_table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str] | None],
    width: int,
    *,
    texts: Collection[str],
    drop: Sequence[str] = (),
    **look: Any,
) -> Table:
    """A table in which no word is cut: texts break between words, and columns that may be missing go where they must.

    Args:
        heads: of the columns.
        rows: of cells; None for a line across.
        width: of the terminal.
        texts: heads of the columns whose cells may break; the others are numbers, at the right.
        drop: heads of the columns that may go, the first one first.
        look: options of a table of rich.

    """
    from rich.table import Table
    from rich.text import Text

    kept = list(heads)
    each, ends = (2, 0) if "box" in look else (3, 1)
    for head in [None, *drop]:
        kept = [one for one in kept if one != head]
        columns = [[head, *(row[heads.index(head)] for row in rows if row is not None)] for head in kept]
        breaks = [place for place, one in enumerate(kept) if one in texts]
        sizes = fitted_widths(columns, breaks, width - ends - each * len(kept))
        if sizes is not None:
            break
    table = Table(**look)
    for place, head in enumerate(kept):
        justify: Literal["left", "right"] = "left" if head in texts else "right"
        table.add_column(head, justify=justify, width=None if sizes is None else sizes[place], overflow="fold")
    for row in rows:
        if row is None:
            table.add_section()
        else:
            table.add_row(*(Text(printable(cell)) for head, cell in zip(heads, row, strict=True) if head in kept))
    return table


def text_table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Aligned columns; in a terminal (or with COLUMNS set) lines break between words, in a pipe they do not."""
    return as_table(head, rows, right, shutil.get_terminal_size((0, 0)).columns)


def accuracy_table(title: str, content: Mapping[str, Any], width: int, small: bool = False) -> Table:
    """The accuracy matrix that a summary holds, and below it the numbers that are read from it.

    Many tasks have columns without words, then whole numbers; what is still too wide is left out in the middle.

    Args:
        title: above it.
        content: of `AccuracyMatrix.from_dict`.
        width: of the terminal.
        small: leaves room for two side by side in a terminal of 80 columns.

    """
    from rich.table import Table
    from rich.text import Text

    from remix.learning.metrics import METRICS, AccuracyMatrix

    matrix = AccuracyMatrix.from_dict(content)
    found = matrix.summary()
    caption = ", ".join(f"{name} {found[key]:.2f} %" for key, name in METRICS.items() if found[key] is not None)
    count = len(matrix)
    small = small or 22 + 10 * count > width
    digits = 0 if small and 9 + 6 * count > width else 1
    most = max(2, (width - 9) // 4)
    shown = range(count) if digits or count <= most else [*range(most // 2), *range(count - (most - 1) // 2, count)]
    look: dict[str, Any] = {"box": None, "padding": (0, 1, 0, 0), "pad_edge": False} if small else {}
    table = Table(title=Text(printable(title)), title_justify="left", caption=caption, caption_justify="left", **look)
    table.add_column("" if small else "after task", justify="right", style="dim" if small else None)
    for place, task in enumerate(shown):
        if place and shown[place - 1] != task - 1:
            table.add_column("...")
        table.add_column(f"{'' if small else 'task '}{task + 1}", justify="right")
    table.add_column("mean", justify="right", style="bold")
    for step in range(count):
        row = matrix.row(step)
        cells = [f"{row[task]:.{digits}f}" if task < len(row) else "" for task in shown]
        if len(shown) < count:
            cells.insert(most // 2, "")
        table.add_row(str(step + 1), *cells, f"{matrix.accuracy(step, average='macro'):.1f}")
    return table


def show_comparison(data: str, found: Comparison, console: Console) -> None:
    """A data set's methods by metrics over their seeds, and what may be said about their differences."""
    from pathlib import Path

    from remix.experiments.compare import INTERVAL, comparison_cells
    from remix.support.display import say

    heads, rows = comparison_cells(found)
    if not any(row[heads.index(INTERVAL)] for row in rows):  # one seed each
        rows = [[cell for head, cell in zip(heads, row, strict=True) if head != INTERVAL] for row in rows]
        heads.remove(INTERVAL)
    drop = ["peak MiB", "processor minutes", "minutes"]
    title = f"{printable(Path(data).name)}: percent, means over tasks; mean ± standard deviation over seeds"
    look = {"title": title, "title_justify": "left"}
    console.print(fitted_table(heads, rows, console.width, texts=("method", "seed", "seeds"), drop=drop, **look))
    for line in (*found.sentences(), *found.remarks):
        say(console, line)
