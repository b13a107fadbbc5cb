"""The weight of the Laplace term (lambda): the paper's grid on validation images, the chosen one on test images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from remix.experiments.config import resolve
from remix.experiments.paired import paired_difference, spread
from remix.learning.metrics import METRICS
from remix.reproduce import needed_runs
from remix.reproduce.needed_runs import NeededRun, Variant, need_runs
from remix.reproduce.published import paper_numbers
from remix.reproduce.result_files import new_figure, scale_sentence, tidy, write_results
from remix.reproduce.targets import Listener, Reproduction
from remix.support.text import as_markdown

__all__ = ["TAKES", "reproduce"]

TAKES = (*needed_runs.TAKES, "preset")
_PRESET = {"mini": "digits", "paper": "cifar100-10"}
_SEEDS = {"mini": "0", "paper": ""}
_DECIDES = "last_accuracy_macro"
Rows = Sequence[dict[str, Any]]


def reproduce(wanted: Reproduction, listener: Listener) -> bool:
    """See `remix.reproduce`."""
    searched = [_variant(wanted, weight, *_held_out(wanted)) for weight in (0.0, *_grid(wanted))]
    runs, complete = need_runs(wanted, searched, listener, tuple(METRICS))
    if wanted.dry_run:
        listener.say("then, of every seed, one run on the test images with the weight that is chosen, and one without")
    if not runs:
        return complete
    chosen = None
    if complete:
        chosen = _choice(_rows(runs))
        listener.say(f"chosen on validation images: weight {chosen:g}")
        tested = [_variant(wanted, weight) for weight in (0.0, chosen)]
        runs, complete = need_runs(wanted, [*searched, *tested], listener, tuple(METRICS))
    rows = _rows(runs)
    parts = {place: [row for row in rows if row["tested_on"] == place] for place in dict.fromkeys(_places(rows))}
    tables = [f"Accuracy on {_words(place)}:\n\n{_table(mine)}" for place, mine in parts.items()]
    text = "\n\n".join([f"{rows[0]['preset']}. {scale_sentence(wanted, runs)}", *tables, *_sentences(rows, chosen)])
    write_results(wanted, "lambda", runs, rows, text, _figure(parts), listener)
    return complete


def _grid(wanted: Reproduction) -> Sequence[float]:
    """The paper's, of ResNets or of CLIP; of the latter at the scale mini its ends, and its choice for CUB-200."""
    clip = _transformer(wanted)
    grid: list[float] = paper_numbers()["lambda"]["grid, CLIP" if clip else "grid, ResNet-32"]
    return [grid[0], 0.01, grid[-1]] if clip and wanted.scale == "mini" else grid


def _held_out(wanted: Reproduction) -> tuple[str, ...]:
    """What tells weights apart: a tenth of the training images; where a class has eight to learn from, eight more."""
    few = _transformer(wanted) and wanted.scale == "mini"
    return ("data.images=16", "data.validation=0.5") if few else ("data.validation=0.1",)


def _transformer(wanted: Reproduction) -> bool:
    preset = wanted.preset or _PRESET[wanted.scale]
    return getattr(resolve(preset, method="remix").settings, "setting", "") == "clip"


def _variant(wanted: Reproduction, weight: float, *settings: str) -> Variant:
    """A run with a weight; that without the term is PMI, whose runs other tables have too."""
    preset = wanted.preset or _PRESET[wanted.scale]
    seeds = _SEEDS[wanted.scale]
    if not weight:
        return Variant(preset, "pmi", settings, _name(weight), seeds=seeds)
    words = (f"settings.inversion.prior.weight={weight}", *settings)
    return Variant(preset, "remix", words, _name(weight), seeds=seeds)


def _name(weight: float) -> str:
    return f"weight {weight:g}"


def _rows(runs: Sequence[NeededRun]) -> list[dict[str, Any]]:
    return [
        {
            "preset": run.variant.benchmark,
            "method": run.variant.name,
            "weight": float(run.variant.name.partition(" ")[2]),
            "seed": run.seed,
            "tested_on": run.config.data.tested_on,
            **{metric: run.summary()["metrics"][metric] for metric in METRICS},
        }
        for run in runs
    ]


def _places(rows: Rows) -> list[str]:
    return [row["tested_on"] for row in rows]


def _words(place: str) -> str:
    return "test images" if place == "test" else f"validation images ({place})"


def _values(rows: Rows, weight: float, metric: str) -> dict[int, float]:
    return {row["seed"]: row[metric] for row in rows if row["weight"] == weight}


def _weights(rows: Rows) -> list[float]:
    return sorted({row["weight"] for row in rows})


def _means(rows: Rows) -> dict[float, float]:
    """Of the metric that decides, by weight."""
    return {weight: spread([*_values(rows, weight, _DECIDES).values()]).mean for weight in _weights(rows)}


def _choice(rows: Rows) -> float:
    """The weight with the highest mean; of equal ones the smallest."""
    means = {weight: mean for weight, mean in _means(rows).items() if weight}
    return max(means, key=lambda weight: (means[weight], -weight))


def _table(rows: Rows) -> str:
    lines = []
    for weight in _weights(rows):
        values = [_values(rows, weight, metric) for metric in METRICS]
        lines.append([f"{weight:g}", " ".join(map(str, values[0])), *(str(spread([*one.values()])) for one in values)])
    return as_markdown(["weight", "seeds", *METRICS.values()], lines, left=2)


def _sentences(rows: Rows, chosen: float | None) -> list[str]:
    """The spread between weights, the choice, and what it gains on test images."""
    means = _means([row for row in rows if row["tested_on"] != "test"])
    said = []
    if means:
        width = max(means.values()) - min(means.values())
        said.append(f"On validation images, means of last accuracy differ by {width:.2f} points between weights.")
    if chosen is None:
        return [*said, "Not every weight has its runs on validation images, so none is chosen."]
    said.append(f"Chosen by last accuracy on validation images: weight {chosen:g}.{_theirs(rows[0]['preset'])}")
    tested = [row for row in rows if row["tested_on"] == "test"]
    none, best = (_values(tested, weight, _DECIDES) for weight in (0.0, chosen))
    if none.keys() & best.keys():
        pair = paired_difference(best, none)
        said.append(f"On test images, {pair.sentence(_name(chosen), 'no Laplace term', 'points of last accuracy')}")
    return said


def _theirs(preset: str) -> str:
    numbers = paper_numbers()
    for table, network in (("1", "ResNet-32"), ("2", "CLIP")):
        presets = numbers[f"presets of table {table}"]
        if preset in presets:
            return f" The paper's choice: {numbers['lambda'][f'chosen, {network}'][presets.index(preset)]:g}."
    return ""


def _figure(parts: dict[str, list[dict[str, Any]]]) -> Figure:
    """A panel per metric over the weights (evenly spaced): mean as a line, a dot per seed; test images as squares."""
    figure = new_figure(3.6 * len(METRICS), 3.5)
    weights = _weights([row for rows in parts.values() for row in rows])
    panels = figure.subplots(1, len(METRICS))
    for panel, (metric, name) in zip(panels, METRICS.items(), strict=True):
        for place, rows in parts.items():
            line, mark, colour = ("none", "s", "#e8590c") if place == "test" else ("-", "o", "#1971c2")
            values = {weights.index(weight): [*_values(rows, weight, metric).values()] for weight in _weights(rows)}
            means = [spread(one).mean for one in values.values()]
            style = {"marker": mark, "ms": 5, "color": colour, "lw": 1.6, "label": _words(place)}
            panel.plot(list(values), means, linestyle=line, **style)
            for spot, one in values.items():
                panel.plot([spot] * len(one), one, mark, ms=4, color=colour, alpha=0.5)
        panel.set_xticks(range(len(weights)), [f"{weight:g}" for weight in weights])
        tidy(panel, f"{name}, %", "weight of the Laplace term")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower left", fontsize=8, ncols=2)
    return figure
