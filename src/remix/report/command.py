"""What `remix report` does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from remix.report.groups import group_runs
from remix.report.page import render
from remix.report.reading import read_runs
from remix.support.atomic import write_text
from remix.support.display import say
from remix.support.settings import SettingError

__all__ = ["report_command"]


def report_command(
    folders: Sequence[str | Path], out: str | Path, data: str | None = None, console: Console | None = None
) -> None:
    """Write a page about runs, and say where it is and what could not be read.

    Args:
        folders: run directories, or folders that hold some.
        out: the page; a report that is there already is replaced.
        data: folder of data sets, to show real images beside dreams.
        console: where to say it.

    Raises:
        ValueError: (RunDirectoryError, SettingError, DataError) for what the person can set right; nothing was written.
        OSError: if the page cannot be written.

    """
    console = console or Console()
    page = Path(out)
    if page.is_dir() or page.suffix.lower() not in (".html", ".htm"):
        raise SettingError(f"--out must name a page that ends with .html, got {out}")
    runs, remarks = read_runs(folders)
    groups, about = group_runs(runs)
    text = render(groups, [*about, *remarks], data)
    page.parent.mkdir(parents=True, exist_ok=True)
    write_text(page, text)
    for remark in [*about, *remarks, *(remark for group in groups for remark in group.remarks)]:
        say(console, f"note: {remark}")
    size = len(text.encode()) / 2**20
    say(console, f"report   {page} ({len(runs)} runs, {size:.1f} MiB)")
