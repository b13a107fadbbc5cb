"""Accuracy on the newest and on all older tasks, after every task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from remix.experiments.paired import spread
from remix.learning.metrics import AccuracyMatrix
from remix.reproduce import needed_runs
from remix.reproduce.given_rows import Row
from remix.reproduce.needed_runs import NeededRun, Variant, need_runs
from remix.reproduce.result_files import colour_of, new_figure, scale_sentence, tidy, write_results
from remix.reproduce.targets import Listener, Reproduction
from remix.support.text import as_markdown

__all__ = ["TAKES", "reproduce"]

TAKES = (*needed_runs.TAKES, "preset")
_PRESET = {"mini": "cifar100-mini", "paper": "cifar100-10"}
_METHODS = ("finetune", "rdfcil", "pmi", "remix")
_ACCURACIES = {"new_task_accuracy": "on the newest task", "old_task_accuracy": "on older tasks"}


def reproduce(wanted: Reproduction, listener: Listener) -> bool:
    """See `remix.reproduce`."""
    preset = wanted.preset or _PRESET[wanted.scale]
    columns = ("after_task", *_ACCURACIES)
    runs, complete = need_runs(wanted, [Variant(preset, method) for method in _METHODS], listener, columns)
    if not runs:
        return complete
    rows = [
        {"preset": run.variant.benchmark, "method": run.variant.name, "seed": run.seed}
        | {column: line[column] for column in columns}
        for run in runs
        for line in run.rows or _steps(run)
    ]
    tables = [f"Accuracy {words}:\n\n{_table(rows, column)}" for column, words in _ACCURACIES.items()]
    text = "\n\n".join([f"{runs[0].variant.benchmark}. {scale_sentence(wanted, runs)}", *tables])
    write_results(wanted, "retention", runs, rows, text, _figure(rows), listener)
    return complete


def _steps(run: NeededRun) -> list[Row]:
    """Both accuracies after every task."""
    matrix = AccuracyMatrix.from_dict(run.summary()["matrix"])
    return [
        {
            "after_task": step + 1,
            "new_task_accuracy": matrix.new_task_accuracy(step),
            "old_task_accuracy": matrix.old_task_accuracy(step),
        }
        for step in range(len(matrix))
    ]


def _values(rows: Sequence[dict[str, Any]], method: str, column: str) -> dict[int, list[float]]:
    """By number of tasks learned, one value per seed."""
    found: dict[int, list[float]] = {}
    for row in rows:
        if row["method"] == method and row[column] is not None:
            found.setdefault(row["after_task"], []).append(row[column])
    return found


def _table(rows: Sequence[dict[str, Any]], column: str) -> str:
    tasks = sorted({row["after_task"] for row in rows})
    lines = []
    for method in dict.fromkeys(row["method"] for row in rows):
        seeds = sorted({row["seed"] for row in rows if row["method"] == method})
        values = _values(rows, method, column)
        cells = [str(spread(values[task])) if task in values else "" for task in tasks]
        lines.append([method, " ".join(map(str, seeds)), *cells])
    return as_markdown(["method", "seeds", *(f"after {task}" for task in tasks)], lines, left=2)


def _figure(rows: Sequence[dict[str, Any]]) -> Figure:
    """Two panels: mean over seeds as a line, from the lowest to the highest seed as a band."""
    figure = new_figure(9, 3.6)
    panels = figure.subplots(1, 2, sharey=True)
    for panel, (column, words) in zip(panels, _ACCURACIES.items(), strict=True):
        for method in dict.fromkeys(row["method"] for row in rows):
            values = _values(rows, method, column)
            tasks = sorted(values)
            colour = colour_of(method)
            means = [spread(values[task]).mean for task in tasks]
            panel.plot(tasks, means, "o-", ms=4, lw=1.6, color=colour, label=method)
            low, high = ([choose(values[task]) for task in tasks] for choose in (min, max))
            panel.fill_between(tasks, low, high, color=colour, alpha=0.18, lw=0)
        panel.set_ylim(bottom=-2)
        panel.set_xticks(sorted({row["after_task"] for row in rows}))
        tidy(panel, f"accuracy {words}; band: lowest to highest seed", "tasks learned", "%")
    panels[0].legend(fontsize=8)
    return figure
