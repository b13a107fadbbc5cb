"""Where time and memory went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remix.experiments.paired import spread
from remix.report.charts import Chart, line_over_seeds
from remix.report.groups import Group
from remix.report.reading import RunFacts

__all__ = ["Costs", "PhaseCost", "phase_costs", "seconds_chart"]

_LAST = ("remember", "evaluate")  # of every method; those before differ


@dataclass(frozen=True)
class PhaseCost:
    """A phase of all tasks: per method the text of its time, its percent of the longest, and its peak memory in MiB."""

    phase: str
    times: list[str]
    shares: list[float]
    memory: list[str]


@dataclass(frozen=True)
class Costs:
    """The phases in the order of a run, last the whole; times are means over seeds in ``unit``, memory the highest."""

    unit: str
    rows: list[PhaseCost]


def phase_costs(group: Group) -> Costs:
    """Of all methods; there are no rows if no run wrote them down."""
    unit, divisor = _unit(group)
    variants = [
        [run for run in runs.values() if run.summary] or list(runs.values()) for runs in group.variants.values()
    ]  # an unfinished run has spent less than it takes
    spent = [[_times(run, divisor) for run in runs] for runs in variants]
    peaks = [_peaks(runs) for runs in variants]
    names = list(dict.fromkeys(phase for runs in spent for run in runs for phase in run))
    names.sort(key=lambda name: name in _LAST)
    means = {name: [sum(run.get(name, 0.0) for run in runs) / len(runs) for runs in spent] for name in names}
    longest = max((value for row in means.values() for value in row), default=0.0) or 1.0
    rows = [
        PhaseCost(
            name,
            [_text([run[name] for run in runs if name in run]) for runs in spent],
            [round(100 * value / longest, 1) for value in means[name]],
            [_memory(found.get(name)) for found in peaks],
        )
        for name in names
    ]
    if rows:
        whole = [_text([sum(run.values()) for run in runs if run]) for runs in spent]
        highest = [_memory(max((_peak(run) for run in runs), default=0)) for runs in variants]
        rows.append(PhaseCost("in all", whole, [0.0] * len(whole), highest))
    return Costs(unit, rows)


def seconds_chart(group: Group) -> Chart | None:
    """The time that every task took; None if no run wrote it down."""
    unit, divisor = _unit(group)
    lines = []
    for colour, (name, runs) in enumerate(group.variants.items()):
        seeds = [[_task_time(run, task, divisor) for task in range(1, group.tasks + 1)] for run in runs.values()]
        lines.append(line_over_seeds(name, colour, seeds))
    known = any(value is not None for line in lines for value in line.mean)
    return Chart("task", unit, group.tasks, lines) if known else None


def _unit(group: Group) -> tuple[str, float]:
    """Minutes, or seconds where the longest run took few of them; and the seconds in one."""
    longest = max(sum(_times(run, 1.0).values()) for run in group.runs)
    return ("minutes", 60.0) if longest >= 600 else ("seconds", 1.0)


def _task_time(run: RunFacts, task: int, divisor: float) -> float | None:
    seconds = [event["seconds"] for event in run.task("phase", task)]
    return sum(seconds) / divisor if seconds and task <= run.learned else None


def _times(run: RunFacts, divisor: float) -> dict[str, float]:
    """By phase; a summary knows also what was done before an interruption."""
    if run.summary is not None:
        return {str(name): 60 * float(value) / divisor for name, value in run.summary["minutes"].items()}
    found: dict[str, float] = {}
    for event in run.events.of("phase"):
        found[event["phase"]] = found.get(event["phase"], 0.0) + event["seconds"] / divisor
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


def _text(times: Sequence[float]) -> str:
    if not times:
        return ""
    found = spread(times)
    digits = 0 if found.mean >= 100 else 1
    return f"{found.mean:.{digits}f}" + (f" ± {found.std:.{digits}f}" if found.std is not None else "")


def _memory(size: int | None) -> str:
    return f"{round(size / 2**20):,}" if size else ""
