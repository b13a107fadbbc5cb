"""`remix report`."""

from __future__ import annotations

__all__ = ["report"]


def report(runs: list[str], *, out: str, data: str | None = None) -> None:
    """An HTML page about runs, in one file: accuracies, curves, synthetic images, settings.

    The page needs no network and no other file. Runs that are not finished are shown as far as they came. Seeds of one
    method are shown as mean and band; runs of different data are kept apart.

    Args:
        runs: Folders of runs, or folders that hold some.
        out: The page to write, such as report.html.
        data: The folder that data sets are kept in: real images are shown beside synthetic ones. Without it only
            those of data sets that come with REMIX are.

    Examples:
        remix report runs/digits-remix-seed0 --out report.html
        remix report runs --out report.html
        remix report runs/cifar100-mini-* --data ~/data --out report.html
    """
    from rich.console import Console

    from remix.report import write_report
    from remix.support.display import say

    console = Console()
    for line in write_report(runs, out, data):
        say(console, line)
