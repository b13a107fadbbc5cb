"""What a target leaves: a table in Markdown, the numbers as CSV, a figure, and the page of its runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from remix.report import write_report
from remix.reproduce.needed_runs import NeededRun
from remix.reproduce.targets import Listener, Reproduction
from remix.support.files import write_text, written_whole
from remix.support.text import as_csv

__all__ = ["colour_of", "new_figure", "scale_sentence", "tidy", "write_results"]

_COLOURS = {
    "finetune": "#868e96",
    "joint": "#212529",
    "lwf": "#b08968",
    "ssre": "#099268",
    "praka": "#a61e4d",
    "ldc": "#f08c00",
    "efcpp": "#c2255c",
    "adagauss": "#66a80f",
    "drift": "#5c940d",
    "deepinversion": "#7b2cbf",
    "deepinversion-noise": "#9775fa",
    "abd": "#d6336c",
    "dcmi": "#0b7285",
    "rdfcil": "#e8590c",
    "pmi": "#2f9e44",
    "remix": "#1971c2",
}


def write_results(
    wanted: Reproduction,
    name: str,
    runs: Sequence[NeededRun],
    rows: Sequence[Mapping[str, Any]],
    text: str,
    figure: Figure,
    listener: Listener,
    more: Mapping[str, Figure] | None = None,
) -> None:
    """Write NAME.md, NAME.csv, NAME.png and report.html into the folder of the target, and show the table.

    Runs that rows stand for are not on the page. Figures besides the first have names of their own.
    """
    figures = {name: figure, **(more or {})}
    wanted.out.mkdir(parents=True, exist_ok=True)
    columns = list(dict.fromkeys(column for row in rows for column in row))  # of all; a row may lack some
    write_text(wanted.out / f"{name}.csv", as_csv([{column: row.get(column) for column in columns} for row in rows]))
    write_text(wanted.out / f"{name}.md", text + "\n")
    for title, drawn in figures.items():
        with written_whole(wanted.out / f"{title}.png") as file:
            drawn.savefig(file, format="png", dpi=120)
    listener.say(text)
    written = [f"{name}.md", f"{name}.csv", *(f"{title}.png" for title in figures)]
    folders = [run.job.folder for run in runs if not run.rows]
    if folders:
        for line in write_report(folders, wanted.out / "report.html", wanted.data):
            listener.say(line)
        written.append("report.html")
    listener.say(f"written  {wanted.out}/{', '.join(written)}")


def scale_sentence(wanted: Reproduction, runs: Sequence[NeededRun]) -> str:
    """Which scale, what the numbers are of, and how many are rows of an earlier table."""
    tested = {run.summary()["tested_on"].removesuffix(" images") for run in runs}
    words = "small networks and few epochs, not the paper's" if wanted.scale == "mini" else "the paper's protocol"
    given = sum(bool(run.rows) for run in runs)
    table = f" {given} of {len(runs)} runs are rows of an earlier table." if given else ""
    return (
        f"Scale `{wanted.scale}` ({words}); tested on {' and '.join(sorted(tested))} images; percent, means over "
        f"tasks; mean ± standard deviation over seeds.{table}"
    )


def new_figure(width: float, height: float) -> Figure:
    """A figure that is drawn into a file, no window."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def tidy(axis: Axes, title: str, across: str = "", up: str = "") -> None:
    """The look of all figures."""
    axis.set_title(title, fontsize=10, loc="left")
    axis.set_xlabel(across, fontsize=9)
    axis.set_ylabel(up, fontsize=9)
    axis.tick_params(labelsize=8)
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)


def colour_of(name: str) -> str:
    """Of a method, the same in every figure; variants have that of their method."""
    return _COLOURS.get(name) or _COLOURS.get(re.split("[- ]", name)[0], "#495057")
