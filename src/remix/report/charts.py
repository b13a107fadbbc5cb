"""Charts as plain data: what the page's script draws, and what its tables say.

Below, those over tasks (accuracy, forgetting, time) and over layers (likelihood); `terms` has those of losses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from remix.experiments.paired import spread
from remix.learning.metrics import AccuracyMatrix
from remix.report.runs import Group, RunFacts

__all__ = [
    "Chart",
    "Line",
    "accuracy_chart",
    "forgetting_chart",
    "likelihood_charts",
    "likelihood_table",
    "line_over_seeds",
    "matrices",
    "new_and_old_chart",
]

Values = Sequence[float | None]
Reading = Callable[[AccuracyMatrix, int], float | None]


@dataclass(frozen=True)
class Line:
    """A curve with its band; None where there is no value.

    Attributes:
        name: in the legend.
        colour: number of the colour; lines of one method share it.
        mean, low, high: over seeds, as many as the chart has places.
        dashed: how it is drawn.

    """

    name: str
    colour: int
    mean: Values
    low: Values
    high: Values
    dashed: bool = False

    @property
    def texts(self) -> list[str]:
        """Mean ± deviation at every place, for a table."""
        return [
            "" if mean is None else f"{mean:.1f}" if high is None or high == mean else f"{mean:.1f} ± {high - mean:.1f}"
            for mean, high in zip(self.mean, self.high, strict=True)
        ]


@dataclass(frozen=True)
class Chart:
    """Curves over places 1, 2, ...

    Attributes:
        x, y: what the axes are.
        count: of places.
        lines: the curves.
        marks: what begins where: places from 1, and names.
        places: names of the places, if they have any.
        logarithmic: whether values are shown by their order of magnitude.
        bounds: of the vertical axis, if they are fixed.

    """

    x: str
    y: str
    count: int
    lines: Sequence[Line]
    marks: Sequence[tuple[int, str]] = ()
    places: Sequence[str] = ()
    logarithmic: bool = False
    bounds: tuple[float, float] | None = None

    def to_plain(self, most: int) -> dict[str, Any]:
        """As JSON, numbers shortened to five digits; of more than ``most`` places about so many, evenly spread."""
        stride = -(-self.count // most)
        kept = [*range(0, self.count - 1, stride), self.count - 1]
        return {
            "x": self.x,
            "y": self.y,
            "count": len(kept),
            "xs": [place + 1 for place in kept],
            "marks": [{"at": at, "name": name} for at, name in self.marks],
            "places": list(self.places),
            "log": self.logarithmic,
            "bounds": self.bounds,
            "lines": [
                {
                    "name": line.name,
                    "colour": line.colour,
                    "dashed": line.dashed,
                    "mean": _short(line.mean, kept),
                    **(
                        {}
                        if line.low == line.mean
                        else {"low": _short(line.low, kept), "high": _short(line.high, kept)}
                    ),
                }
                for line in self.lines
            ],
        }


def line_over_seeds(name: str, colour: int, seeds: Sequence[Values], dashed: bool = False) -> Line:
    """Mean and mean ± standard deviation at every place over the seeds that have a finite value there.

    Args:
        name, colour, dashed: of the line.
        seeds: for every seed as many values.

    """
    mean: list[float | None] = []
    low: list[float | None] = []
    high: list[float | None] = []
    for values in zip(*seeds, strict=True):
        known = [value for value in values if value is not None and math.isfinite(value)]
        found = spread(known) if known else None
        mean.append(found.mean if found else None)
        low.append(found.mean - (found.std or 0.0) if found else None)
        high.append(found.mean + (found.std or 0.0) if found else None)
    return Line(name, colour, mean, low, high, dashed)


def _short(values: Values, kept: Sequence[int]) -> list[float | None]:
    chosen = (values[place] for place in kept)
    return [None if value is None or not math.isfinite(value) else float(f"{value:.5g}") for value in chosen]


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


def likelihood_charts(group: Group) -> dict[str, Chart]:
    """By task: the gain over independent coordinates, layer by layer from the image on, a line per method."""
    found = {}
    for task in range(1, group.tasks + 1):
        by_run = {name: [_gains(run, task) for run in runs.values()] for name, runs in group.variants.items()}
        layers = list(dict.fromkeys(layer for runs in by_run.values() for gains in runs for layer in gains))
        if not layers:
            continue
        lines = [
            line_over_seeds(name, colour, [[gains.get(layer) for layer in layers] for gains in runs])
            for colour, (name, runs) in enumerate(by_run.items())
            if any(runs)
        ]
        found[str(task)] = Chart("layer", "nats per coordinate", len(layers), lines, places=layers)
    return found


def likelihood_table(group: Group) -> list[dict[str, Any]]:
    """The same as text, of the last task that each method has: ``name``, ``task``, ``rows`` of layer and gain."""
    found = []
    charts = likelihood_charts(group)
    for name in group.variants:
        for task, chart in reversed(charts.items()):
            line = next((line for line in chart.lines if line.name == name), None)
            if line is not None:
                rows = [
                    (layer, f"{mean:.3f}" if high == mean or high is None else f"{mean:.3f} ± {high - mean:.3f}")
                    for layer, mean, high in zip(chart.places, line.mean, line.high, strict=True)
                    if mean is not None
                ]
                found.append({"name": name, "task": task, "rows": rows})
                break
    return found


def _gains(run: RunFacts, task: int) -> dict[str, float]:
    """Of the last time the task's likelihoods were written."""
    events = run.task("likelihood", task)
    return {layer["layer"]: layer["gain"] for layer in events[-1]["layers"]} if events else {}
