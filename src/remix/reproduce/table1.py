"""Methods by data sets and numbers of tasks. The paper's table 1 is of last accuracy, whatever its label says."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from remix.experiments.compare import Comparison, format_comparison, run_rows
from remix.methods import list_methods, method_class
from remix.reproduce import needed_runs
from remix.reproduce.needed_runs import NeededRun, Variant, benchmarks, comparison, need_runs
from remix.reproduce.result_files import colour_of, new_figure, scale_sentence, tidy, write_results
from remix.reproduce.targets import Listener, Reproduction

__all__ = ["TAKES", "reproduce"]

TAKES = needed_runs.TAKES
_IMPROVED = {"pmi": "pmi-improved", "remix": "remix-improved"}

# Last accuracy as printed in the paper, by preset.
_COLUMNS = "joint", "ssre", "praka", "deepinversion", "abd", "rdfcil", "pmi", "remix"
_PUBLISHED = {
    preset: {method: value for method, value in zip(_COLUMNS, values, strict=True) if value is not None}
    for preset, values in {
        "cifar100-5": (70.59, 30.39, 37.74, 20.48, 48.84, 49.87, 52.38, 52.94),
        "cifar100-10": (70.59, 17.77, 26.72, 11.26, 36.75, 41.80, 43.90, 45.38),
        "cifar100-20": (70.59, 10.97, 16.32, 5.63, 24.40, 31.54, 32.60, 33.11),
        "tiny-5": (55.25, 26.22, 31.69, None, 30.83, 35.33, 37.90, 38.64),
        "tiny-10": (55.25, 18.58, 22.37, None, 23.17, 29.05, 32.43, 33.39),
        "tiny-20": (55.25, 10.09, 13.62, None, 14.61, 24.85, 25.67, 27.11),
    }.items()
}


def variants(scale: str) -> list[Variant]:
    """What the table is made of."""
    methods = [name for name in list_methods() if not method_class(name).exact]  # the paper has no exact heads
    if scale == "paper":
        return [Variant(preset, method) for preset in _PUBLISHED for method in methods]
    small = [Variant(preset, method) for preset in ("digits", "cifar100-mini") for method in methods]
    improved = [
        Variant("cifar100-mini-improved", method, name=name, benchmark="cifar100-mini")
        for method, name in _IMPROVED.items()
    ]
    return [*small, *improved]


def reproduce(wanted: Reproduction, listener: Listener) -> bool:
    """See `remix.reproduce`."""
    runs, complete = need_runs(wanted, variants(wanted.scale), listener)
    if not runs:
        return complete
    parts = {name: comparison(group) for name, group in benchmarks(runs).items()}
    rows = [
        {"preset": name, "data": mine[0].config.data.name, "tasks": mine[0].config.data.tasks, **row}
        for name, mine in benchmarks(runs).items()
        for row in run_rows(parts[name])
    ]
    text = "\n\n".join([scale_sentence(wanted, runs), *(_part(name, found) for name, found in parts.items())])
    write_results(wanted, "table1", runs, rows, text, _figure(parts, runs), listener)
    return complete


def _part(name: str, found: Comparison) -> str:
    lines = [f"## {name}", "", str(format_comparison(found, "markdown"))]
    printed = {method: value for method, value in _PUBLISHED.get(name, {}).items() if method in found.summaries}
    if printed:
        lines += ["", "Last accuracy in the paper: " + ", ".join(f"{m} {v:.2f}" for m, v in printed.items()) + "."]
    published = [method for method in found.summaries if method not in _IMPROVED.values()]
    said = _differences(found, "remix", published)
    for method, improved in _IMPROVED.items():
        said += _differences(found, improved, [method])
    said += _differences(found, _IMPROVED["remix"], [_IMPROVED["pmi"], "rdfcil"])
    return "\n".join([*lines, *([""] if said else []), *(f"- {sentence}" for sentence in said)])


def _differences(found: Comparison, method: str, others: Sequence[str]) -> list[str]:
    """Sentences on a method against others, of those that have runs."""
    wanted = {name: runs for name, runs in found.summaries.items() if name in (method, *others)}
    return Comparison(wanted, (), ()).sentences(method) if method in wanted else []


def _figure(parts: dict[str, Comparison], runs: Sequence[NeededRun]) -> Figure:
    """A panel per benchmark: bars of the mean last accuracy, a dot per seed, the paper's number as a line."""
    columns = min(3, len(parts))
    rows = -(-len(parts) // columns)
    figure = new_figure(4.6 * columns, 3.4 * rows)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel, (name, found) in zip(panels, parts.items(), strict=False):
        methods = list(found.summaries)
        for place, method in enumerate(methods):
            values = [run["metrics"]["last_accuracy_macro"] for run in found.summaries[method].values()]
            mean = sum(values) / len(values)
            panel.barh(place, mean, color=colour_of(method), alpha=0.45)
            panel.plot(values, [place] * len(values), "o", ms=4, color=colour_of(method))
            panel.text(max(values) + 1.5, place, f"{mean:.1f}", va="center", fontsize=8)
            printed = _PUBLISHED.get(name, {}).get(method)
            if printed is not None:
                panel.plot([printed, printed], [place - 0.4, place + 0.4], color="black", lw=1.5)
        panel.set_yticks(range(len(methods)), methods)
        panel.set_xlim(0, 100)
        tasks = next(run.config.data.tasks for run in runs if run.variant.benchmark == name)
        tidy(panel, f"{name}, {tasks} tasks", "last accuracy, %; a dot per seed")
    for panel in panels[len(parts) :]:
        panel.set_visible(False)
    return figure
