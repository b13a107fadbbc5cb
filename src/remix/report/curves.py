"""Accuracy, forgetting, and new against old classes, task after task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remix.learning.metrics import AccuracyMatrix
from remix.report.charts import Chart, Line, line_over_seeds
from remix.report.groups import Group

__all__ = ["accuracy_chart", "forgetting_chart", "matrices", "new_and_old_chart"]

Reading = Callable[[AccuracyMatrix, int], float | None]


def accuracy_chart(group: Group) -> Chart:
    """Accuracy on all classes so far, as the mean over tasks."""
    lines = _lines(group, lambda matrix, step: matrix.accuracy(step, average="macro"))
    return Chart("after task", "accuracy, percent", group.tasks, lines, bounds=(0, 100))


def forgetting_chart(group: Group) -> Chart:
    """How much earlier tasks lost."""
    return Chart("after task", "forgetting, points", group.tasks, _lines(group, lambda m, step: m.forgetting(step)))


def new_and_old_chart(group: Group) -> Chart:
    """Accuracy on the task just learned, and on those before."""
    new = _lines(group, lambda matrix, step: matrix.new_task_accuracy(step), ", new")
    old = _lines(group, lambda matrix, step: matrix.old_task_accuracy(step), ", old", dashed=True)
    lines = [line for pair in zip(new, old, strict=True) for line in pair]
    return Chart("after task", "accuracy, percent", group.tasks, lines, bounds=(0, 100))


def _lines(group: Group, read: Reading, suffix: str = "", dashed: bool = False) -> list[Line]:
    found = []
    for colour, (variant, runs) in enumerate(group.variants.items()):
        seeds = [
            [read(run.matrix, step) if step < run.learned else None for step in range(group.tasks)]
            if run.matrix is not None
            else [None] * group.tasks
            for run in runs.values()
        ]
        found.append(line_over_seeds(variant + suffix, colour, seeds, dashed))
    return found


def matrices(group: Group) -> list[dict[str, Any]]:
    """The accuracy matrix of every method: the mean over seeds, and of every seed.

    Each has ``name``, ``seeds`` (their numbers), and ``values``: by "mean" and by seed the rows, percent, each as long
    as there were tasks.
    """
    found = []
    for variant, runs in group.variants.items():
        known = {seed: run.matrix for seed, run in runs.items() if run.matrix is not None}
        if not known:
            continue
        rows = {
            str(seed): [[round(share, 2) for share in matrix.row(step)] for step in range(len(matrix))]
            for seed, matrix in known.items()
        }
        steps = max(len(matrix) for matrix in known.values())
        mean = [
            line_over_seeds(
                "", 0, [list(m.row(step)) if step < len(m) else [None] * (step + 1) for m in known.values()]
            )
            for step in range(steps)
        ]
        values = {"mean": [[round(value or 0.0, 2) for value in line.mean] for line in mean], **rows}
        texts = [line.texts for line in mean]
        found.append({"name": variant, "seeds": list(known), "values": values, "texts": texts, "steps": steps})
    return found
