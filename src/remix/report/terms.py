"""The terms of the losses, of training epoch by epoch, of inversion step by step; and accuracy epoch by epoch."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from remix.experiments.events import Event
from remix.report.charts import Chart, line_over_seeds
from remix.report.runs import Group, RunFacts

__all__ = ["epoch_accuracy_charts", "inversion_charts", "last_terms", "training_charts"]


@dataclass(frozen=True)
class _Kind:
    """How events of a kind are laid side by side: what they are called, their place in a task, and what begins."""

    event: str
    x: str
    y: str
    place: Callable[[Event], Hashable]
    part: Callable[[Event], str]
    values: Callable[[Event], Mapping[str, float]] = lambda event: event["terms"]
    percent: bool = False


_TRAINING = _Kind(
    "epoch", "epoch of the task", "weighted loss", lambda e: (e["stage"], e["epoch"]), lambda e: str(e["stage"])
)
_TESTED = replace(
    _TRAINING,
    x="tested epoch of the task",
    y="accuracy, percent",
    values=lambda e: {"accuracy": e["accuracy_macro"]},
    percent=True,
)
_INVERSION = _Kind(
    "inversion", "recorded step of the task", "term, not weighted", lambda e: (e["number"], e["step"]),
    lambda e: str(e["phase"]),
)  # fmt: skip


def training_charts(group: Group) -> dict[str, Chart]:
    """By "METHOD|TASK" (numbers, the tasks from 1) the mean of every weighted term in every epoch."""
    return _charts(group, _TRAINING)


def epoch_accuracy_charts(group: Group) -> dict[str, Chart]:
    """By "METHOD|TASK" the accuracy on all classes so far, after the epochs that were tested."""
    return _charts(group, _TESTED)


def inversion_charts(group: Group) -> dict[str, Chart]:
    """By "METHOD|TASK" every term of the inversion in the steps that were written down."""
    return _charts(group, _INVERSION)


def _charts(group: Group, kind: _Kind) -> dict[str, Chart]:
    found = {}
    for number, runs in enumerate(group.variants.values()):
        for task in range(1, group.tasks + 1):
            chart = _chart(kind, [_events(kind, run, task) for run in runs.values()])
            if chart is not None:
                found[f"{number}|{task}"] = chart
    return found


def _events(kind: _Kind, run: RunFacts, task: int) -> list[Event]:
    events = run.task(kind.event, task)
    return [event for event in events if "accuracy_macro" in event] if kind.percent else events


def _chart(kind: _Kind, seeds: list[list[Event]]) -> Chart | None:
    longest = max(seeds, key=len)
    if not longest:
        return None
    places = [kind.place(event) for event in longest]
    parts = [kind.part(event) for event in longest]
    marks = [(i + 1, part) for i, part in enumerate(parts) if i == 0 or part != parts[i - 1]]
    by_place = [{kind.place(event): kind.values(event) for event in seed} for seed in seeds]
    names = list(dict.fromkeys(name for event in longest for name in kind.values(event)))
    lines = [
        line_over_seeds(name, colour, [[seed.get(place, {}).get(name) for place in places] for seed in by_place])
        for colour, name in enumerate(names)
    ]
    if kind.percent:
        names = [f"{event['stage']}, {event['epoch']}" for event in longest]
        return Chart(kind.x, kind.y, len(places), lines, marks, names, bounds=(0, 100))
    values = [value for line in lines for value in line.mean if value is not None]
    # Below zero there are no orders of magnitude: log-likelihood terms may be negative.
    logarithmic = bool(values) and min(values) >= 0 and max(values) > 0
    return Chart(kind.x, kind.y, len(places), lines, marks, logarithmic=logarithmic)


def last_terms(group: Group, inversion: bool) -> list[dict[str, Any]]:
    """What each part ended with: of training the last epoch of every stage, of inversion the last step of all.

    Each method has ``name`` and ``rows``: part, term, and per task the mean over seeds.
    """
    found = []
    for variant, runs in group.variants.items():
        cells: dict[tuple[str, str], dict[int, list[float]]] = {}
        for run in runs.values():
            for task in range(1, group.tasks + 1):
                for part, event in _endings(run, task, inversion).items():
                    for term, value in event["terms"].items():
                        cells.setdefault((part, term), {}).setdefault(task, []).append(value)
        rows = [
            (part, term, [_mean(by_task.get(task)) for task in range(1, group.tasks + 1)])
            for (part, term), by_task in cells.items()
        ]
        if rows:
            found.append({"name": variant, "rows": rows})
    return found


def _endings(run: RunFacts, task: int, inversion: bool) -> dict[str, Event]:
    if inversion:
        steps = run.task("inversion", task)
        return {"last step": steps[-1]} if steps else {}
    return {str(event["stage"]): event for event in run.task("epoch", task)}


def _mean(values: list[float] | None) -> str:
    return f"{sum(values) / len(values):.3g}" if values else ""
