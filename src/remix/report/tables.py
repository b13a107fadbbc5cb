"""Tables of a report: every run, what phases of a run cost in time and memory, and what it takes to repeat it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import yaml

from remix.experiments.paired import spread
from remix.learning.metrics import METRICS
from remix.report.charts import Chart, line_over_seeds
from remix.report.runs import Group, RunFacts

__all__ = ["phase_costs", "run_rows", "seconds_chart", "variant_facts"]

_LAST = ("remember", "evaluate")  # of every method; those before differ


def run_rows(group: Group) -> list[dict[str, Any]]:
    """Every run, also those that are not finished, with its numbers so far, as texts."""
    rows = []
    for name, runs in group.variants.items():
        for seed, run in runs.items():
            found = run.matrix.summary() if run.matrix is not None and run.learned else {}
            numbers = [found.get(metric) for metric in METRICS]
            rows.append({
                "name": name,
                "seed": seed,
                "folder": str(run.folder),
                "state": run.state,
                "numbers": ["" if number is None else f"{number:.2f}" for number in numbers],
                "minutes": f"{run.summary['minutes_in_all']:.1f}" if run.summary else "",
                "memory": f"{run.summary['peak_memory_mib']:,}" if run.summary else "",
            })  # fmt: skip
    return rows


def variant_facts(group: Group) -> list[dict[str, Any]]:
    """How the runs of every method were made.

    Each has ``name``, ``seeds``, ``config`` (of the first run, as YAML), ``commands`` (what was typed, run by run),
    ``again`` (what repeats the first run, whatever was typed), and ``machines`` in words.
    """
    found = []
    for name, runs in group.variants.items():
        first = next(iter(runs.values()))
        commands = [str(run.start["command"]) for run in runs.values() if run.start.get("command")]
        machines = list(dict.fromkeys(_machine(run) for run in runs.values()))
        config = shlex.quote(str(first.folder / "config.yaml"))
        found.append({
            "name": name,
            "seeds": list(runs),
            "config": yaml.safe_dump(first.config, sort_keys=False, allow_unicode=True),
            "commands": list(dict.fromkeys(commands)),
            "again": f"remix run {config} --seed {first.seed} --out again",
            "machines": machines,
        })  # fmt: skip
    return found


def _machine(run: RunFacts) -> str:
    told = run.start
    versions = _words(told.get("versions"))
    hardware: Any = told.get("hardware")
    parts = []
    if isinstance(hardware, Mapping):
        size = hardware.get("memory_bytes")
        memory = f"{size / 2**30:.0f} GiB of memory" if isinstance(size, int) else ""
        known = ("processor", "processors", "memory_bytes", "system")
        more = [f"{key} {value}" for key, value in hardware.items() if key not in known]
        cores = f"{hardware.get('processors')} processors" if hardware.get("processors") else ""
        parts = [str(hardware.get("processor", "")), cores, memory, str(hardware.get("system", "")), *more]
    threads = f"{told['threads']} thread{'s' * (told['threads'] != 1)} used" if told.get("threads") else ""
    words = ", ".join(part for part in [*parts, threads, versions] if part)
    return words if hardware else f"{words or 'nothing'}; the hardware was not written down"


def _words(values: Any) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items()) if isinstance(values, Mapping) else ""


def phase_costs(group: Group) -> dict[str, Any]:
    """What the phases of all tasks took: ``unit`` of times, and ``rows`` in the order of a run, last the whole.

    A row has ``phase`` and per method ``times`` (means over seeds), ``shares`` (percent of the longest) and ``memory``
    (the highest, MiB). There are no rows if no run wrote them down.
    """
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
        {
            "phase": name,
            "times": [_text([run[name] for run in runs if name in run]) for runs in spent],
            "shares": [round(100 * value / longest, 1) for value in means[name]],
            "memory": [_memory(found.get(name)) for found in peaks],
        }
        for name in names
    ]
    if rows:
        whole = [_text([sum(run.values()) for run in runs if run]) for runs in spent]
        highest = [_memory(max((_peak(run) for run in runs), default=0)) for runs in variants]
        rows.append({"phase": "in all", "times": whole, "shares": [0.0] * len(whole), "memory": highest})
    return {"unit": unit, "rows": rows}


def seconds_chart(group: Group) -> Chart | None:
    """The time that every task took; None if no run wrote it down."""
    unit, divisor = _unit(group)
    lines = []
    for colour, (name, runs) in enumerate(group.variants.items()):
        seeds = [[_task_time(run, task, divisor) for task in range(1, group.tasks + 1)] for run in runs.values()]
        line = line_over_seeds(name, colour, seeds)
        lines.append(replace(line, low=[None if low is None else max(0.0, low) for low in line.low]))
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
