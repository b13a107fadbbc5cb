"""Where time and memory went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remix.experiments.paired import spread
from remix.experiments.report.charts import Chart, line_over_seeds
from remix.experiments.report.groups import Group
from remix.experiments.report.reading import RunFacts

__all__ = ["PhaseCost", "phase_costs", "seconds_chart"]


@dataclass(frozen=True)
class PhaseCost:
    """A phase of all tasks: per method the text of its minutes, their share of the longest, and of its peak memory."""

    phase: str
    minutes: list[str]
    shares: list[float]
    memory: list[str]


def phase_costs(group: Group) -> list[PhaseCost]:
    """Per phase in the order of a run, last the whole; minutes are means over seeds, memory the highest of all."""
    variants = [list(runs.values()) for runs in group.variants.values()]
    spent = [[_minutes(run) for run in runs] for runs in variants]
    peaks = [_peaks(runs) for runs in variants]
    names = list(dict.fromkeys(phase for runs in spent for run in runs for phase in run))
    names.sort(key=lambda name: name in ("remember", "evaluate"))  # other methods have other phases before these
    means = {name: [_mean([run.get(name, 0.0) for run in runs]) for runs in spent] for name in names}
    longest = max((value for row in means.values() for value in row), default=0.0)
    rows = [
        PhaseCost(
            name,
            [_text([run[name] for run in runs if name in run]) for runs in spent],
            [value / longest if longest else 0.0 for value in means[name]],
            [_memory(found.get(name)) for found in peaks],
        )
        for name in names
    ]
    whole = [_text([sum(run.values()) for run in runs if run]) for runs in spent]
    highest = [_memory(max((_peak(run) for run in runs), default=0)) for runs in variants]
    return [*rows, PhaseCost("in all", whole, [0.0] * len(whole), highest)] if rows else []


def seconds_chart(group: Group) -> Chart | None:
    """Minutes that every task took; None if no run wrote them down."""
    lines = []
    for colour, (name, runs) in enumerate(group.variants.items()):
        seeds = [[_task_minutes(run, task) for task in range(1, group.tasks + 1)] for run in runs.values()]
        lines.append(line_over_seeds(name, colour, seeds))
    known = any(value is not None for line in lines for value in line.mean)
    return Chart("task", "minutes", group.tasks, lines) if known else None


def _task_minutes(run: RunFacts, task: int) -> float | None:
    seconds = [event["seconds"] for event in run.task("phase", task)]
    return sum(seconds) / 60 if seconds and task <= run.learned else None


def _minutes(run: RunFacts) -> dict[str, float]:
    """By phase; a summary knows also what was done before an interruption."""
    if run.summary is not None:
        return {str(name): float(value) for name, value in run.summary["minutes"].items()}
    found: dict[str, float] = {}
    for event in run.events.of("phase"):
        found[event["phase"]] = found.get(event["phase"], 0.0) + event["seconds"] / 60
    return found


def _peaks(runs: Sequence[RunFacts]) -> dict[str, int]:
    found: dict[str, int] = {}
    for run in runs:
        for event in run.events.of("phase"):
            if isinstance(event.get("peak_bytes"), int):
                found[event["phase"]] = max(found.get(event["phase"], 0), event["peak_bytes"])
    return found


def _peak(run: RunFacts) -> int:
    if run.summary is not None:
        return int(run.summary["peak_memory_mib"]) * 2**20
    told = [event.get("peak_bytes", 0) for kind in ("task", "phase") for event in run.events.of(kind)]
    return max((value for value in told if isinstance(value, int)), default=0)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _text(minutes: Sequence[float]) -> str:
    return str(spread(minutes)) if minutes else ""


def _memory(size: int | None) -> str:
    return f"{round(size / 2**20):,}" if size else ""
