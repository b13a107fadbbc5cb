"""Data sets on the terminal: the list of them, and the counts of one."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from remix.data.errors import left_out
from remix.data.registry import list_datasets
from remix.data.splits import Splits
from remix.support.text import printable

__all__ = ["show_datasets", "show_splits"]

_MANY_CLASSES = 20


def show_datasets(console: Console) -> None:
    """One line for each data set."""
    width = max(len(entry.name) for entry in list_datasets())
    for entry in list_datasets():
        console.print(f"[bold]{entry.name:{width}}[/bold]  {escape(entry.about)}", highlight=False, soft_wrap=True)


def show_splits(splits: Splits, console: Console) -> None:
    """Numbers of images per class, where they came from, and at the end the files that were left out."""
    parts = {"train": splits.train, "test": splits.test}
    if splits.validation is not None:
        parts["validation"] = splits.validation
    counts = {part: data.counts() for part, data in parts.items()}
    shape = " x ".join(map(str, splits.train.input_shape))
    where = f" in {printable(splits.source)}" if splits.source else ""
    title = f"{splits.name}{where}: {len(splits.classes)} classes, images {shape}"
    console.print(escape(title), style="bold", highlight=False, soft_wrap=True)
    table = Table()
    table.add_column("class", overflow="fold")
    for part in parts:
        table.add_column(part, justify="right")
    if len(splits.classes) > _MANY_CLASSES and all(len(set(of.values())) == 1 for of in counts.values()):
        table.add_row(f"each of {len(splits.classes)}", *(f"{next(iter(of.values())):,}" for of in counts.values()))
    else:
        for name in splits.classes:
            table.add_row(escape(name), *(f"{of[name]:,}" for of in counts.values()))
    table.add_section()
    table.add_row("all", *(f"{len(data):,}" for data in parts.values()))
    console.print(table)
    if splits.skipped:
        console.print(f"left out: {len(splits.skipped):,}", style="yellow", highlight=False)
        for line in left_out(splits.skipped):
            console.print(f"  {escape(line)}", highlight=False, soft_wrap=True)
