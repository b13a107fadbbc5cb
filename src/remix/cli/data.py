"""`remix data prepare`; see `remix.cli` for how such functions are written."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.console import Console

    from remix.data import ImageDataset, Splits

__all__ = ["data"]

_MANY_CLASSES = 20


def data(action: Literal["prepare"], name: str, *, data: str | None = None) -> None:
    """Find a data set, check it, count its images per class; download it if it is not there and can be fetched.

    Args:
        action: What to do with the data set: prepare, which is find, check and count it.
        name: Name of the data set (see: remix datasets), or a folder with one sub-folder of images per class.
        data: The folder that data sets are kept in; by default the one that REMIX_DATA names.

    Examples:
        remix data prepare cifar100 --data ~/data
        remix data prepare photos/
    """
    from rich.console import Console

    from remix.data import DataError
    from remix.data.prepare import Watcher, prepare

    console = Console()
    note = partial(console.print, soft_wrap=True, markup=False)
    try:
        _show(prepare(name, data, Watcher(console.status, partial(_download_bar, console), note)), console)
    except DataError as error:
        print(f"remix data {action}: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print(f"remix data {action}: interrupted; the same command goes on from here", file=sys.stderr)
        sys.exit(130)


@contextmanager
def _download_bar(console: Console, file: str) -> Iterator[Callable[[int, int | None], None]]:
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(TextColumn("{task.description}"), *columns, console=console) as progress:
        task = progress.add_task(file, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _counts(data: ImageDataset, classes: tuple[str, ...]) -> dict[str, int]:
    counts = data.counts()
    return {name: counts[name] for name in classes}


def _show(splits: Splits, console: Console) -> None:
    """Numbers of images per class, where they came from, and at the end the files that were left out."""
    from rich.markup import escape
    from rich.table import Table

    from remix.data.errors import left_out
    from remix.support.text import printable

    counts = {part: _counts(data, splits.here) for part, data in splits.parts.items()}
    shape = " x ".join(map(str, splits.train.input_shape))
    where = f" in {printable(splits.source)}" if splits.source else ""
    here = splits.here
    number = f"{len(here)} of {len(splits.classes)}" if len(here) < len(splits.classes) else f"{len(here)}"
    title = f"{splits.name}{where}: {number} classes, images {shape}"
    console.print(escape(title), style="bold", highlight=False, soft_wrap=True)
    table = Table()
    table.add_column("class", overflow="fold")
    for part in counts:
        table.add_column(part, justify="right")
    if len(here) > _MANY_CLASSES and all(len(set(of.values())) == 1 for of in counts.values()):
        table.add_row(f"each of {len(here)}", *(f"{next(iter(of.values())):,}" for of in counts.values()))
    else:
        for name in here:
            table.add_row(escape(name), *(f"{of[name]:,}" for of in counts.values()))
    table.add_section()
    table.add_row("all", *(f"{len(data):,}" for data in splits.parts.values()))
    console.print(table)
    if splits.skipped:
        console.print(f"left out: {len(splits.skipped):,}", style="yellow", highlight=False)
        for line in left_out(splits.skipped):
            console.print(f"  {escape(line)}", highlight=False, soft_wrap=True)
