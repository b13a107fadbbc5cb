"""A table of methods by benchmarks, the paper's numbers beside ours: `table1` and `table2` say which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from remix.experiments.compare import Comparison, comparison_cells, run_rows
from remix.experiments.paired import Spread
from remix.reproduce.given_rows import RUN_COLUMNS
from remix.reproduce.needed_runs import NeededRun, Variant, benchmarks, comparison, need_runs
from remix.reproduce.published import LAST, Published
from remix.reproduce.result_files import colour_of, new_figure, scale_sentence, tidy, write_results
from remix.reproduce.targets import Listener, Reproduction
from remix.support.text import as_markdown

__all__ = ["MethodsTable", "make_table"]

_LINE = 0.035  # height of a name, of a panel's
_FOR_NAMES = 4.0  # times as many minutes as the slowest method takes: its name stands to the right


@dataclass(frozen=True)
class MethodsTable:
    """What a table has besides its runs.

    Attributes:
        name: of its files.
        published: the paper's table, shown whole.
        words: what that is of, in a sentence.
        counterpart: of a small preset, that of the paper's which has the same data.
        pairs: of methods that a sentence compares, the first minus the second.
        faithful: settings with names that are the paper's method.

    """

    name: str
    published: Published
    words: str
    counterpart: Mapping[str, str]
    pairs: Sequence[tuple[str, str]]
    faithful: Sequence[str] = ()

    def beside(self, benchmark: str) -> dict[str, dict[str, Spread]]:
        """What the paper prints for a benchmark or its counterpart, by metric and the name of the method here."""
        printed = self.published.get(self.counterpart.get(benchmark, benchmark), {})
        return {
            metric: {**one, **{f"{method}-{name}": value for method, value in one.items() for name in self.faithful}}
            for metric, one in printed.items()
        }


def make_table(table: MethodsTable, variants: Sequence[Variant], wanted: Reproduction, listener: Listener) -> bool:
    """Find or make the runs of the variants, and write the table; returns whether all are there."""
    runs, complete = need_runs(wanted, variants, listener, RUN_COLUMNS)
    if not runs:
        return complete
    parts = {name: comparison(group) for name, group in benchmarks(runs).items()}
    rows = [
        {"preset": name, "data": mine[0].config.data.name, "tasks": mine[0].config.data.tasks, **row}
        for name, mine in benchmarks(runs).items()
        for row in run_rows(parts[name])
    ]
    tables = [_part(table, name, found) for name, found in parts.items()]
    text = "\n\n".join([scale_sentence(wanted, runs), *tables, _paper_table(table)])
    costs = {f"{table.name}_cost": _costs(parts)}
    write_results(wanted, table.name, runs, rows, text, _figure(table, parts, runs), listener, costs)
    return complete


def _part(table: MethodsTable, name: str, found: Comparison) -> str:
    """Our table, with the paper's numbers in columns of their own, and what may be said."""
    heads, cells = comparison_cells(found)
    for metric, theirs in table.beside(name).items():
        heads = [*heads, f"the paper's {metric} ({table.counterpart.get(name, name)})"]
        cells = [[*line, str(theirs.get(line[0], ""))] for line in cells]
    lines = [f"## {name}", "", as_markdown(heads, cells, left=2)]
    said = [sentence for first, second in table.pairs for sentence in _difference(found, first, second)]
    return "\n".join([*lines, *([""] if said else []), *(f"- {sentence}" for sentence in said)])


def _paper_table(table: MethodsTable) -> str:
    """The paper's own table, whole."""
    columns = {
        preset if len(metrics) == 1 else f"{preset}, {metric}": column
        for preset, metrics in table.published.items()
        for metric, column in metrics.items()
    }
    methods = list(dict.fromkeys(method for column in columns.values() for method in column))
    lines = [[method, *(str(column.get(method, "")) for column in columns.values())] for method in methods]
    return "\n".join(["## The paper's table", "", table.words, "", as_markdown(["method", *columns], lines)])


def _difference(found: Comparison, first: str, second: str) -> list[str]:
    """A sentence on a method against another, if both have runs."""
    wanted = {name: runs for name, runs in found.summaries.items() if name in (first, second)}
    return Comparison(wanted, (), ()).sentences(first) if len(wanted) == 2 else []


def _figure(table: MethodsTable, parts: dict[str, Comparison], runs: Sequence[NeededRun]) -> Figure:
    """A panel per benchmark: bars of the mean last accuracy, a dot per seed, the paper's number as a line."""
    columns = min(2, len(parts))  # beside each other: readable at the width of a page
    rows = -(-len(parts) // columns)
    bars = [len(found.summaries) for found in parts.values()]
    heights = [0.8 + 0.2 * max(bars[columns * row : columns * (row + 1)]) for row in range(rows)]
    figure = new_figure(4.8 * columns, sum(heights))
    panels = figure.subplots(rows, columns, squeeze=False, gridspec_kw={"height_ratios": heights}).ravel()
    for panel, (name, found) in zip(panels, parts.items(), strict=False):
        methods, theirs = list(found.summaries), table.beside(name).get(LAST, {})
        for place, method in enumerate(methods):
            values = [run["metrics"]["last_accuracy_macro"] for run in found.summaries[method].values()]
            mean = sum(values) / len(values)
            panel.barh(place, mean, color=colour_of(method), alpha=0.45)
            panel.plot(values, [place] * len(values), "o", ms=4, color=colour_of(method))
            panel.text(1.5, place, f"{mean:.1f}", va="center", fontsize=8)
            if method in theirs:
                panel.plot([theirs[method].mean] * 2, [place - 0.4, place + 0.4], color="black", lw=1.5)
        panel.set_yticks(range(len(methods)), methods)
        panel.set_xlim(0, 100)
        tasks = next(run.config.data.tasks for run in runs if run.variant.benchmark == name)
        line = f" (line: {table.counterpart.get(name, name)})" if theirs else ""
        tidy(panel, f"{name}, {tasks} tasks{line}", "last accuracy, %; a dot per seed")
    for panel in panels[len(parts) :]:
        panel.set_visible(False)
    return figure


def _costs(parts: Mapping[str, Comparison]) -> Figure:
    """A panel per benchmark: last accuracy against processor minutes, both means over seeds, a point per method."""
    columns = min(2, len(parts))
    rows = -(-len(parts) // columns)
    figure = new_figure(5.4 * columns, 3.8 * rows)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel, (name, found) in zip(panels, parts.items(), strict=False):
        points = {}
        for method, by_seed in found.summaries.items():
            if runs := [run for run in by_seed.values() if run.get("processor_minutes")]:
                minutes = fmean(run["processor_minutes"] for run in runs)
                points[method] = minutes, fmean(run["metrics"]["last_accuracy_macro"] for run in runs)
                panel.plot(*points[method], "o", ms=5, color=colour_of(method))
        panel.set_xscale("log")
        panel.margins(x=0.1, y=0.1)
        if points:  # rows of earlier tables may lack the time
            panel.set_xlim(right=_FOR_NAMES * max(minutes for minutes, _ in points.values()))
        panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.xaxis.set_major_formatter("{x:g}")
        panel.xaxis.set_minor_formatter(NullFormatter())
        _named(panel, points)
        tidy(panel, name, "processor minutes of a run", "last accuracy, %")
    for panel in panels[len(parts) :]:
        panel.set_visible(False)
    return figure


def _named(panel: Axes, points: Mapping[str, tuple[float, float]]) -> None:
    """Write names beside points, each as much higher as it takes to be clear of those below."""
    panel.autoscale_view()  # else the limits are not yet those of the points
    to_axes = panel.transData + panel.transAxes.inverted()
    taken: list[tuple[float, float, float]] = []
    for name, point in sorted(points.items(), key=lambda item: item[1][1]):
        x, y = (float(one) for one in to_axes.transform(point))
        x, y, width = x + 0.015, y - 0.01, 0.015 * len(name)
        for left, right, at in sorted(taken, key=lambda one: one[2]):
            if left < x + width and x < right and abs(at - y) < _LINE:
                y = at + _LINE
        taken.append((x, x + width, y))
        panel.text(x, y, name, transform=panel.transAxes, fontsize=7)
