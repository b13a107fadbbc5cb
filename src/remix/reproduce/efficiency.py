"""What REMIX costs more than PMI, in time and memory: the same network, data, steps and samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib import colormaps
from matplotlib.figure import Figure

from remix.experiments.compare import Comparison, run_rows
from remix.experiments.events import read_events
from remix.experiments.paired import spread
from remix.experiments.run_directory import RunDirectory
from remix.reproduce import needed_runs
from remix.reproduce.needed_runs import NeededRun, Variant, comparison, need_runs
from remix.reproduce.result_files import new_figure, tidy, write_results
from remix.reproduce.targets import Listener, Reproduction
from remix.support.text import as_markdown

__all__ = ["TAKES", "reproduce"]

TAKES = needed_runs.TAKES
_PRESET = {"mini": "cifar100-mini", "paper": "cifar100-20"}
_COSTS = {"minutes_in_all": "minutes", "processor_minutes": "processor minutes", "peak_memory_mib": "peak MiB"}
Phases = Mapping[tuple[str, int], Mapping[str, float]]  # processor minutes by phase, of a method and seed


def reproduce(wanted: Reproduction, listener: Listener) -> bool:
    """See `remix.reproduce`."""
    preset = _PRESET[wanted.scale]
    runs, complete = need_runs(wanted, [Variant(preset, method) for method in ("pmi", "remix")], listener)
    if not runs:
        return complete
    found = comparison(runs)
    phases = {(run.variant.name, run.seed): _phases(run) for run in runs}
    names = list(dict.fromkeys(name for one in phases.values() for name, minutes in one.items() if minutes >= 0.01))
    data = runs[0].config.data
    rows = [
        {"preset": runs[0].variant.benchmark, "data": data.name, "tasks": data.tasks, **row}
        | {f"processor minutes: {name}": phases[row["method"], row["seed"]].get(name, 0.0) for name in names}
        for row in run_rows(found)
    ]
    text = f"{runs[0].variant.benchmark}, scale `{wanted.scale}`.\n\n{_table(found, phases, names)}\n\n{_ratios(found)}"
    write_results(wanted, "efficiency", runs, rows, text, _figure(found, phases, names), listener)
    return complete


def _phases(run: NeededRun) -> dict[str, float]:
    """Processor minutes by phase. Of a phase that was interrupted, only the part after that."""
    found: dict[str, float] = {}
    for event in read_events(RunDirectory(run.job.folder).metrics).of("phase"):
        found[event["phase"]] = found.get(event["phase"], 0.0) + event.get("processor", 0.0) / 60
    return {name: round(minutes, 3) for name, minutes in found.items()}


def _table(found: Comparison, phases: Phases, names: Sequence[str]) -> str:
    methods = list(found.summaries)
    lines = [["seeds", *(" ".join(map(str, runs)) for runs in found.summaries.values())]]
    for key, name in _COSTS.items():
        values = [[run[key] for run in runs.values()] for runs in found.summaries.values()]
        lines.append([name, *map(_mean, values)])
    for name in names:
        values = [[phases[method, seed].get(name, 0.0) for seed in found.summaries[method]] for method in methods]
        lines.append([f"processor minutes: {name}", *map(_mean, values)])
    return as_markdown(["", *methods], lines)


def _mean(values: Sequence[float]) -> str:
    found = spread(values)
    return f"{found.mean:,.1f}" + (f" ± {found.std:.1f}" if found.std is not None else "")


def _ratios(found: Comparison) -> str:
    """REMIX over PMI, seed by seed."""
    pmi, remix = (found.summaries.get(name, {}) for name in ("pmi", "remix"))
    seeds = sorted(pmi.keys() & remix.keys())
    if not seeds:
        return "No seed was run with both methods."
    parts = []
    for key, name in _COSTS.items():
        ratio = spread([remix[seed][key] / pmi[seed][key] for seed in seeds])
        parts.append(f"{name} {ratio.mean:.2f}" + (f" ± {ratio.std:.2f}" if ratio.std is not None else ""))
    return (
        f"REMIX over PMI, paired seeds {', '.join(map(str, seeds))}: {', '.join(parts)}. Where other programs share "
        "the machine, the processor minutes tell the cost and those of the clock do not."
    )


def _figure(found: Comparison, phases: Phases, names: Sequence[str]) -> Figure:
    """Stacked bars of the phases, means over seeds; peak memory beside them."""
    figure = new_figure(9, 2.8)
    times, memory = figure.subplots(1, 2, width_ratios=(3, 1))
    palette = colormaps["tab20"]
    methods: dict[str, dict[int, dict[str, Any]]] = found.summaries
    for place, (method, runs) in enumerate(methods.items()):
        left = 0.0
        for number, name in enumerate(names):
            value = spread([phases[method, seed].get(name, 0.0) for seed in runs]).mean
            times.barh(place, value, left=left, color=palette(number), label=None if place else name)
            left += value
        peaks = [run["peak_memory_mib"] for run in runs.values()]
        memory.barh(place, max(peaks), color="#adb5bd")
        memory.plot(peaks, [place] * len(peaks), "o", ms=4, color="#343a40")
    for panel in (times, memory):
        panel.set_yticks(range(len(methods)), list(methods))
    tidy(times, "processor minutes of a run, by phase", "minutes")
    tidy(memory, "peak memory", "MiB, a dot per seed")
    figure.legend(loc="outside lower left", fontsize=7, ncols=9)
    return figure
