"""Methods by data sets and numbers of tasks. The paper's table 1 is of last accuracy, whatever its label says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from matplotlib.figure import Figure

from remix.experiments.compare import Comparison, comparison_cells, run_rows
from remix.experiments.paired import Spread
from remix.methods import list_methods, method_class
from remix.reproduce import needed_runs
from remix.reproduce.given_rows import RUN_COLUMNS
from remix.reproduce.needed_runs import NeededRun, Variant, benchmarks, comparison, need_runs
from remix.reproduce.published import UNSELECTED, paper_numbers, published_last
from remix.reproduce.result_files import colour_of, new_figure, scale_sentence, tidy, write_results
from remix.reproduce.targets import Listener, Reproduction
from remix.support.text import as_markdown

__all__ = ["TAKES", "reproduce"]

TAKES = needed_runs.TAKES

# Of small presets, that of the paper's which has the same data and number of tasks.
_COUNTERPART = {"cifar100-mini": "cifar100-5", "tiny-mini": "tiny-5"}
_FAITHFUL = ("paper", "code")  # of the named settings, those that are the paper's method
_PAIRS = (
    ("remix-paper", "pmi-paper"), ("remix-code", "pmi-code"), ("remix-paper", "remix-code"), ("remix-code", "rdfcil"),
    ("remix-ours", "pmi-ours"), ("remix-ours", "remix-code"), ("remix-ours", "rdfcil"), ("remix-ours", "finetune"),
    ("lda", "rdfcil"), ("lda", "remix-ours"), ("lda", "drift"),
)  # fmt: skip


def variants(scale: str) -> list[Variant]:
    """What the table is made of."""
    if scale == "paper":
        return [variant for preset in published_last() for variant in _of_preset(preset, _FAITHFUL)]
    everything = (*_FAITHFUL, "ours")
    few = {"finetune": "0", "rdfcil": "0", "pmi-paper": "", "remix-paper": "", "remix-ours": "0"}
    tiny = [variant for variant in _of_preset("tiny-mini", everything) if variant.name in few]
    return [
        *_of_preset("digits", everything),
        *_exact("digits"),
        *_of_preset("cifar100-mini", everything, unselected="0"),
        *_exact("cifar100-mini"),
        *(replace(variant, seeds=few[variant.name]) for variant in tiny),
        *_exact("tiny-mini"),
    ]


def _exact(preset: str) -> list[Variant]:
    """Heads on a network that only learns in the first task: the paper has none, and whoever reads its table asks."""
    return [Variant(preset, method) for method in ("lda", "ranpac")]


def _of_preset(preset: str, settings: Sequence[str], unselected: str = "") -> list[Variant]:
    """Every method, in all of these settings where they have names; before PMI that without selection, as the paper has
    it, with these seeds.
    """
    found = []
    for method in list_methods():
        if method_class(method).exact or method_class(method).transformers:  # the paper's has none
            continue
        if method == "pmi":
            found.append(Variant(preset, method, ("settings.selection=false",), UNSELECTED, seeds=unselected))
        if not method_class(method).named:
            found.append(Variant(preset, method))
            continue
        words = [(f"settings.setting={setting}", f"{method}-{setting}") for setting in settings]
        found += [Variant(preset, method, (word,), name) for word, name in words]
    return found


def reproduce(wanted: Reproduction, listener: Listener) -> bool:
    """See `remix.reproduce`."""
    runs, complete = need_runs(wanted, variants(wanted.scale), listener, RUN_COLUMNS)
    if not runs:
        return complete
    parts = {name: comparison(group) for name, group in benchmarks(runs).items()}
    rows = [
        {"preset": name, "data": mine[0].config.data.name, "tasks": mine[0].config.data.tasks, **row}
        for name, mine in benchmarks(runs).items()
        for row in run_rows(parts[name])
    ]
    tables = [_part(name, found) for name, found in parts.items()]
    text = "\n\n".join([scale_sentence(wanted, runs), *tables, _paper_table()])
    write_results(wanted, "table1", runs, rows, text, _figure(parts, runs), listener)
    return complete


def _theirs(name: str) -> dict[str, Spread]:
    """What the paper prints for a benchmark or its counterpart, by the name of the method here."""
    printed = published_last().get(_COUNTERPART.get(name, name), {})
    of_settings = {f"{method}-{setting}": one for method, one in printed.items() for setting in _FAITHFUL}
    return {**printed, **of_settings}


def _part(name: str, found: Comparison) -> str:
    """Our table, with the paper's numbers in a column of their own, and what may be said."""
    heads, cells = comparison_cells(found)
    theirs = _theirs(name)
    if theirs:
        heads = [*heads, f"the paper's last accuracy ({_COUNTERPART.get(name, name)})"]
        cells = [[*line, str(theirs.get(line[0], ""))] for line in cells]
    lines = [f"## {name}", "", as_markdown(heads, cells, left=2)]
    said = [sentence for first, second in _PAIRS for sentence in _difference(found, first, second)]
    return "\n".join([*lines, *([""] if said else []), *(f"- {sentence}" for sentence in said)])


def _paper_table() -> str:
    """The paper's own table, whole."""
    theirs = published_last()
    methods = list(dict.fromkeys(method for column in theirs.values() for method in column))
    lines = [[method, *(str(column.get(method, "")) for column in theirs.values())] for method in methods]
    runs = paper_numbers()["runs in table 1"]
    return "\n".join([
        "## The paper's table",
        "",
        f"Theirs, not ours: last accuracy, %, mean ± standard deviation over {runs} runs. The paper calls it average "
        "incremental accuracy; by its own curves it is last accuracy.",
        "",
        as_markdown(["method", *theirs], lines),
    ])  # fmt: skip


def _difference(found: Comparison, first: str, second: str) -> list[str]:
    """A sentence on a method against another, if both have runs."""
    wanted = {name: runs for name, runs in found.summaries.items() if name in (first, second)}
    return Comparison(wanted, (), ()).sentences(first) if len(wanted) == 2 else []


def _figure(parts: dict[str, Comparison], runs: Sequence[NeededRun]) -> Figure:
    """A panel per benchmark: bars of the mean last accuracy, a dot per seed, the paper's number as a line."""
    columns = min(2, len(parts))  # beside each other: readable at the width of a page
    rows = -(-len(parts) // columns)
    bars = [len(found.summaries) for found in parts.values()]
    heights = [0.8 + 0.2 * max(bars[columns * row : columns * (row + 1)]) for row in range(rows)]
    figure = new_figure(4.8 * columns, sum(heights))
    panels = figure.subplots(rows, columns, squeeze=False, gridspec_kw={"height_ratios": heights}).ravel()
    for panel, (name, found) in zip(panels, parts.items(), strict=False):
        methods, theirs = list(found.summaries), _theirs(name)
        for place, method in enumerate(methods):
            values = [run["metrics"]["last_accuracy_macro"] for run in found.summaries[method].values()]
            mean = sum(values) / len(values)
            panel.barh(place, mean, color=colour_of(method), alpha=0.45)
            panel.plot(values, [place] * len(values), "o", ms=4, color=colour_of(method))
            panel.text(1.5, place, f"{mean:.1f}", va="center", fontsize=8)
            if method in theirs:
                panel.plot([theirs[method].mean] * 2, [place - 0.4, place + 0.4], color="black", lw=1.5)
        panel.set_yticks(range(len(methods)), methods)
        panel.set_xlim(0, 100)
        tasks = next(run.config.data.tasks for run in runs if run.variant.benchmark == name)
        line = f"line: the paper's {_COUNTERPART.get(name, name)}" if theirs else ""
        tidy(panel, f"{name}, {line or f'{tasks} tasks'}", "last accuracy, %; a dot per seed")
    for panel in panels[len(parts) :]:
        panel.set_visible(False)
    return figure
