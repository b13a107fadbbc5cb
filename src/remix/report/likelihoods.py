"""How likely the activations of every layer are under what is remembered of them."""

from __future__ import annotations

from typing import Any

from remix.report.charts import Chart, line_over_seeds
from remix.report.groups import Group
from remix.report.reading import RunFacts

__all__ = ["likelihood_charts", "likelihood_table"]


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
