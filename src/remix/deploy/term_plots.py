"""The terms of an objective over the steps of a run, phase by phase."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from remix.support.files import written_whole

__all__ = ["History", "save_terms", "terms_figure"]

History = Mapping[str, Mapping[str, Sequence[float]]]
"""By phase, then by term, the values in every step."""

_COLOURS = {
    "features": "#4477aa",
    "labels": "#4477aa",
    "confidence": "#4477aa",
    "statistics": "#ee6677",
    "prior": "#228833",
    "input": "#ccbb44",
    "balance": "#ccbb44",
    "variation": "#66ccee",
    "smoothness": "#66ccee",
    "norm": "#aa3377",
    "loss": "#333333",
}
_TERM: dict[str, Any] = {"linewidth": 1.6, "alpha": 0.9}
_OBJECTIVE: dict[str, Any] = {"linewidth": 1.0, "linestyle": (0, (4, 2))}
_MOST_PHASE_NAMES = 26


def save_terms(path: str | Path, history: History, title: str = "") -> None:
    """Write `terms_figure` as PNG, atomically."""
    figure = terms_figure(history, title)
    with written_whole(path) as file:
        figure.savefig(file, format="png", dpi=120)


def terms_figure(history: History, title: str = "") -> Figure:
    """Every term on a logarithmic scale; those that fall to zero or below (log-likelihoods) on a linear one beneath.

    Raises:
        ValueError: if there is no step at all.

    """
    phases = [(name, terms) for name, terms in history.items() if _steps(terms)]
    if not phases:
        raise ValueError("there are no steps to show yet")
    names = list(dict.fromkeys(name for _, terms in phases for name in terms))
    signed = [name for name in names if any(value <= 0 for _, terms in phases for value in terms.get(name, ()))]
    positive = [name for name in names if name not in signed]
    figure = Figure(figsize=(10, 7 if positive and signed else 5), layout="constrained")
    FigureCanvasAgg(figure)
    heights = [2] * bool(positive) + [1] * bool(signed)
    axes = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    for ax, group, scale in zip(axes, [g for g in (positive, signed) if g], _scales(positive, signed), strict=True):
        _draw(ax, phases, group)
        ax.set_yscale(scale)
        ax.yaxis.set_minor_locator(NullLocator())
        ax.grid(axis="y", color="#e6e6e6", linewidth=0.7)
        ax.set_axisbelow(True)
        ax.set_ylabel("value (unweighted)" if scale == "log" else "value")
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    axes[-1].set_xlabel("step")
    _name_phases(axes[0], phases)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, color="#555555")
    return figure


def _scales(positive: Sequence[str], signed: Sequence[str]) -> list[str]:
    return ["log"] * bool(positive) + ["linear"] * bool(signed)


def _draw(ax: Any, phases: Sequence[tuple[str, Mapping[str, Sequence[float]]]], group: Sequence[str]) -> None:
    named: set[str] = set()
    start = 0
    for _, terms in phases:
        steps = _steps(terms)
        for name in group:
            if name in terms:
                style: dict[str, Any] = {
                    "color": _COLOURS.get(name),
                    "linewidth": 1.0 if name == "loss" else 1.6,
                    "alpha": 0.9,
                }
                if name == "loss":
                    style["linestyle"] = (0, (4, 2))
                label = None if name in named else ("objective" if name == "loss" else name)
                values = [value if math.isfinite(value) else math.nan for value in terms[name]]
                marker = "." if steps == 1 else None
                ax.plot(range(start, start + len(values)), values, label=label, marker=marker, **style)
                named.add(name)
        start += steps
        ax.axvline(start - 0.5, color="#cccccc", linewidth=0.7, zorder=0)
    ax.set_xlim(-0.5, start - 0.5)


def _name_phases(ax: Any, phases: Sequence[tuple[str, Mapping[str, Sequence[float]]]]) -> None:
    if len(phases) == 1:
        return
    every = -(-len(phases) // _MOST_PHASE_NAMES)
    start = 0
    total = sum(_steps(terms) for _, terms in phases)
    letters = 130 / total  # that fit into the width of the axes, per step
    upright = any(len(name) > letters * _steps(terms) for name, terms in phases)
    for number, (name, terms) in enumerate(phases):
        steps = _steps(terms)
        if number % every == 0:
            ax.annotate(
                name.removeprefix("chunk ").replace(": ", "  "),
                (start + steps / 2, 1.0),
                (0, 4),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                ha="center",
                va="bottom",
                rotation=90 if upright else 0,
                fontsize=8,
                color="#777777",
            )
        start += steps


def _steps(terms: Mapping[str, Sequence[float]]) -> int:
    return max((len(values) for values in terms.values()), default=0)
