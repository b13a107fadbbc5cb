"""How much the weight of the Laplace term matters (lambda): the values that the paper searched, and none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from remix.experiments.paired import paired_difference, spread
from remix.learning.metrics import METRICS
from remix.reproduce import needed_runs
from remix.reproduce.needed_runs import Variant, need_runs
from remix.reproduce.result_files import new_figure, scale_sentence, tidy, write_results
from remix.reproduce.targets import Listener, Reproduction
from remix.support.text import as_markdown

__all__ = ["TAKES", "reproduce"]

TAKES = needed_runs.TAKES
_PRESET = {"mini": "digits", "paper": "cifar100-10"}
_WEIGHTS = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0)


def reproduce(wanted: Reproduction, listener: Listener) -> bool:
    """See `remix.reproduce`."""
    preset = _PRESET[wanted.scale]
    weights = {f"weight {weight:g}": weight for weight in _WEIGHTS}
    variants = [
        Variant(preset, "remix", (f"settings.inversion.prior.weight={weight}",), name)
        for name, weight in weights.items()
    ]
    runs, complete = need_runs(wanted, variants, listener)
    if not runs:
        return complete
    rows = [
        {"preset": runs[0].variant.benchmark, "weight": weights[run.variant.name], "seed": run.seed}
        | {metric: run.summary()["metrics"][metric] for metric in METRICS}
        for run in runs
    ]
    text = "\n\n".join(
        [f"{runs[0].variant.benchmark}. {scale_sentence(wanted, runs)}", _table(rows), *_sentences(rows)]
    )
    write_results(wanted, "lambda", runs, rows, text, _figure(rows), listener)
    return complete


def _values(rows: Sequence[dict[str, Any]], weight: float, metric: str) -> dict[int, float]:
    return {row["seed"]: row[metric] for row in rows if row["weight"] == weight}


def _weights(rows: Sequence[dict[str, Any]]) -> list[float]:
    return sorted({row["weight"] for row in rows})


def _table(rows: Sequence[dict[str, Any]]) -> str:
    lines = []
    for weight in _weights(rows):
        values = [_values(rows, weight, metric) for metric in METRICS]
        lines.append([f"{weight:g}", " ".join(map(str, values[0])), *(str(spread([*one.values()])) for one in values)])
    return as_markdown(["weight", "seeds", *METRICS.values()], lines, left=2)


def _sentences(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The spread between weights, and the best weight against none."""
    means = {weight: spread([*_values(rows, weight, "last_accuracy_macro").values()]).mean for weight in _weights(rows)}
    best = max(means, key=lambda weight: means[weight])
    said = [
        f"Means of last accuracy differ by {max(means.values()) - min(means.values()):.2f} points between weights; the "
        f"highest is that of {best:g}. Choosing it here would be choosing on test images."
    ]
    none, chosen = (_values(rows, weight, "last_accuracy_macro") for weight in (0.0, best))
    if best and none.keys() & chosen.keys():
        pair = paired_difference(chosen, none)
        said.append(pair.sentence(f"weight {best:g}", "weight 0", "points of last accuracy"))
    return said


def _figure(rows: Sequence[dict[str, Any]]) -> Figure:
    """A panel per metric over the weights (evenly spaced): mean as a line, a dot per seed."""
    figure = new_figure(3.6 * len(METRICS), 3.2)
    weights = _weights(rows)
    for panel, (metric, name) in zip(figure.subplots(1, len(METRICS)), METRICS.items(), strict=True):
        values = [[*_values(rows, weight, metric).values()] for weight in weights]
        panel.plot([spread(one).mean for one in values], "-", color="#1971c2", lw=1.6)
        for place, one in enumerate(values):
            panel.plot([place] * len(one), one, "o", ms=4, color="#1971c2", alpha=0.6)
        panel.set_xticks(range(len(weights)), [f"{weight:g}" for weight in weights])
        tidy(panel, f"{name}, %", "weight of the Laplace term")
    return figure
