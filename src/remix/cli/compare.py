"""`remix compare`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from remix.cli.output import accuracy_table, show_comparison

if TYPE_CHECKING:
    from rich.console import Console

    from remix.experiments.compare import Comparison

__all__ = ["compare"]


def compare(
    runs: list[str], *, format: Literal["table", "markdown", "csv", "latex"] = "table", matrices: bool = False
) -> None:
    """Finished runs side by side, a table per data set: mean, standard deviation and interval over seeds.

    Below each, the difference of the last method to every other over the seeds that both have. The interval is that of
    the mean last accuracy, with a confidence of 95 % by Student's t; one seed has none.

    Args:
        runs: Folders of runs, or folders that hold some; other files that a glob matches are left out.
        format: How the tables are printed: table, markdown, csv (one line per run) or latex.
        matrices: Show the accuracy matrices, side by side, and name the files to open.

    Examples:
        remix compare runs/digits-*
        remix compare runs --format markdown
    """
    from rich.console import Console

    from remix.experiments.compare import compare_by_data, format_comparison

    groups = compare_by_data(runs)
    console = Console()
    if matrices:
        for found in groups.values():
            _show_matrices(found, console)
    if format == "table":
        for name, found in groups.items():
            show_comparison(name, found, console)
    else:
        print(format_comparison(groups, format))
    if matrices:
        for found in groups.values():
            _show_files(found, console)


def _show_matrices(found: Comparison, console: Console) -> None:
    """The accuracy matrices of the first seed of every method, side by side where there is room: after which task
    (rows), percent of the test images of which task (columns) were right.
    """
    from rich.columns import Columns

    tables = []
    for name, runs in found.summaries.items():
        seed, summary = next(iter(runs.items()))
        tables.append(accuracy_table(f"{name}, seed {seed}", summary["matrix"], console.width, small=True))
    console.print("accuracy in percent: rows after which task, columns on the images of which task", highlight=False)
    console.print(Columns(tables, padding=(1, 2)))


def _show_files(found: Comparison, console: Console) -> None:
    """What there is to open of every run: its dreams of the old classes, and the model."""
    from remix.experiments.run_directory import RunDirectory
    from remix.support.display import say

    for folder in found.folders:
        directory = RunDirectory(folder)
        for label, file in (("dreams", [*directory.pictures().values()]), ("model", [directory.model])):
            if file and file[-1].is_file():
                say(console, f"{label:<8} {file[-1]}")
