"""What REMIX costs more than PMI, in time and memory, and what it gains: the same network, data, steps and samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import colormaps
from matplotlib.axes import Axes

from remix.experiments.compare import Comparison, run_rows
from remix.experiments.events import read_events
from remix.experiments.paired import spread
from remix.experiments.run_directory import RunDirectory
from remix.learning.metrics import METRICS
from remix.reproduce import needed_runs
from remix.reproduce.given_rows import RUN_COLUMNS
from remix.reproduce.needed_runs import NeededRun, Variant, benchmarks, comparison, need_runs
from remix.reproduce.published import AVERAGE, LAST, paper_numbers
from remix.reproduce.result_files import new_figure, scale_sentence, tidy, write_results
from remix.reproduce.targets import Listener, Reproduction
from remix.support.text import as_markdown

__all__ = ["TAKES", "reproduce"]

TAKES = (*needed_runs.TAKES, "preset")
_METHODS = ("pmi", "remix")
_PAPER_PRESETS = ("cifar100-5", "cifar100-10", "cifar100-20")
_MINI_PRESET = "cifar100-mini"
_COSTS = {
    "minutes_in_all": "minutes",
    "processor_minutes": "processor minutes",
    "peak_memory_mib": "peak MiB",
    "peak_gpu_mib": "peak MiB of the GPU",  # only where there is one
}
_TEN_TASKS = ("data.tasks=10", "data.images=125", "settings.samples=100", "settings.samples_per_task=25")
_PHASE = "processor minutes: "  # begins the name of a column
Phases = Mapping[tuple[str, int], Mapping[str, float]]  # processor minutes by phase, of a method and seed


def _variants(wanted: Reproduction) -> list[Variant]:
    """Numbers of tasks by methods, at mini ten with one seed and a quarter of the images; or of a preset asked for."""
    if wanted.preset is not None:
        return [Variant(wanted.preset, method) for method in _METHODS]
    if wanted.scale == "paper":
        return [Variant(preset, method) for preset in _PAPER_PRESETS for method in _METHODS]
    more = f"{_MINI_PRESET}, 10 tasks, a quarter of the images"
    return [
        *(Variant(_MINI_PRESET, method) for method in _METHODS),
        *(Variant(_MINI_PRESET, method, _TEN_TASKS, benchmark=more, seeds="0") for method in _METHODS),
    ]


def reproduce(wanted: Reproduction, listener: Listener) -> bool:
    """See `remix.reproduce`."""
    runs, complete = need_runs(wanted, _variants(wanted), listener, RUN_COLUMNS)
    if not runs:
        return complete
    parts, rows, texts = benchmarks(runs), [], []
    clip = all(getattr(run.config.settings, "setting", "") == "clip" for run in runs)
    spent = {run.job.folder: _phases(run) for run in runs}
    names = list(dict.fromkeys(name for one in spent.values() for name, minutes in one.items() if minutes >= 0.01))
    figure = new_figure(9, 2.5 * len(parts) + 0.5)
    panels = figure.subplots(len(parts), 2, width_ratios=(3, 1), squeeze=False)
    for (name, mine), pair in zip(parts.items(), panels, strict=True):
        found, data = comparison(mine), mine[0].config.data
        phases = {(run.variant.name, run.seed): spent[run.job.folder] for run in mine}
        rows += [
            {"preset": name, "data": data.name, "tasks": data.tasks, **row}
            | {f"{_PHASE}{phase}": phases[row["method"], row["seed"]].get(phase, 0.0) for phase in names}
            for row in run_rows(found)
        ]
        few = f", {data.images} images a class" if data.images else ""
        title = f"{Path(mine[0].variant.preset).stem}, {data.tasks} tasks{few}"
        texts.append(f"## {title}\n\n{_table(found, phases, names)}\n\n{_ratios(found)}")
        _draw(pair, title, found, phases, names)
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower left", fontsize=7, ncols=9)
    text = "\n\n".join([scale_sentence(wanted, runs), *texts, _theirs(clip)])
    write_results(wanted, "efficiency", runs, rows, text, figure, listener)
    return complete


def _phases(run: NeededRun) -> dict[str, float]:
    """Processor minutes by phase. Of a phase that was interrupted, only the part after that."""
    if run.rows:
        columns = {name: value for name, value in run.rows[-1].items() if name.startswith(_PHASE) and value is not None}
        return {name.removeprefix(_PHASE): float(value) for name, value in columns.items()}
    found: dict[str, float] = {}
    for event in read_events(RunDirectory(run.job.folder).metrics).of("phase"):
        found[event["phase"]] = found.get(event["phase"], 0.0) + event.get("processor", 0.0) / 60
    return {name: round(minutes, 3) for name, minutes in found.items()}


def _table(found: Comparison, phases: Phases, names: Sequence[str]) -> str:
    methods = list(found.summaries)
    lines = [["seeds", *(" ".join(map(str, runs)) for runs in found.summaries.values())]]
    lines += [[f"{name}, %", *(str(found.spread(one, key) or "") for one in methods)] for key, name in METRICS.items()]
    for key, name in _COSTS.items():
        values = [[run[key] for run in runs.values() if key in run] for runs in found.summaries.values()]
        if any(values):
            lines.append([name, *map(_mean, values)])
    for name in names:
        values = [[phases[method, seed].get(name, 0.0) for seed in found.summaries[method]] for method in methods]
        lines.append([f"{_PHASE}{name}", *map(_mean, values)])
    return as_markdown(["", *methods], lines)


def _mean(values: Sequence[float]) -> str:
    if not values:
        return ""
    found = spread(values)
    return f"{found.mean:,.1f}" + (f" ± {found.std:.1f}" if found.std is not None else "")


def _ratios(found: Comparison) -> str:
    """REMIX over PMI, seed by seed."""
    pmi, remix = (found.summaries.get(name, {}) for name in _METHODS)
    seeds = sorted(pmi.keys() & remix.keys())
    if not seeds:
        return "No seed was run with both methods."
    parts = []
    for key, name in _COSTS.items():
        if all(key in run for seed in seeds for run in (pmi[seed], remix[seed])):
            ratio = spread([remix[seed][key] / pmi[seed][key] for seed in seeds])
            parts.append(f"{name} {ratio.mean:.2f}" + (f" ± {ratio.std:.2f}" if ratio.std is not None else ""))
    return (
        f"REMIX over PMI, paired seeds {', '.join(map(str, seeds))}: {', '.join(parts)}. Where other programs share "
        "the machine, the processor minutes tell the cost and those of the clock do not."
    )


def _theirs(clip: bool) -> str:
    """The paper's own table in a sentence."""
    numbers = paper_numbers()
    table, key, of = (
        (numbers["efficiency, CLIP"], "average", "table 2")
        if clip
        else (numbers["efficiency, ResNet-32"], "last", "table 1")
    )
    metric = {"average": AVERAGE, "last": LAST}[key]
    told = "; ".join(
        f"{name} {table[name][key]:.2f} % {metric}, {table[name]['minutes']} minutes, {table[name]['GB']} GB"
        for name in ("PMI", "REMIX")
    )
    caption = numbers[of]["columns"][table["column its caption names"]]
    if clip:
        return f"The paper's, with MoE-Adapter: {told}. {caption}, in its {of}."
    return f"The paper's: {told}. Its caption says {caption}; these accuracies are those of 5 tasks in its {of}."


def _draw(pair: Sequence[Axes], title: str, found: Comparison, phases: Phases, names: Sequence[str]) -> None:
    """Stacked bars of the phases, means over seeds; peak memory beside them."""
    times, memory = pair
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
    for panel in pair:
        panel.set_yticks(range(len(methods)), list(methods))
    tidy(times, f"{title}: processor minutes of a run, by phase", "minutes")
    tidy(memory, "peak memory", "MiB, a dot per seed")
