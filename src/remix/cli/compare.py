"""`remix compare`."""

from __future__ import annotations

from typing import Literal

__all__ = ["compare"]


def compare(
    runs: list[str], *, format: Literal["table", "markdown", "csv", "latex"] = "table", matrices: bool = False
) -> None:
    """Finished runs side by side: mean and standard deviation over seeds, differences over common seeds.

    Args:
        runs: Folders of runs, or folders that hold some.
        format: table, markdown, csv (one line per run) or latex.
        matrices: Show the accuracy matrices, side by side, and name the files to open.

    Examples:
        remix compare runs/digits-*
        remix compare runs --format markdown
    """
    from rich.console import Console

    from remix.experiments.compare import compare_runs, format_comparison, show_files, show_matrices
    from remix.support.display import say

    found = compare_runs(runs)
    console = Console()
    if matrices:
        show_matrices(found, console)
    formatted = format_comparison(found, format)
    print(formatted) if isinstance(formatted, str) else console.print(formatted)
    if format != "csv":
        begin = {"latex": "% ", "markdown": "\n"}.get(format, "")
        for line in (*found.sentences(), *found.remarks):
            print(begin, end="")
            say(console, line)
    if matrices:
        show_files(found, console)
