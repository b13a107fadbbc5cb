"""The log-likelihood comparison as CSV, JSON, a figure and a table."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from remix.support.files import write_text, written_whole

__all__ = ["best_diagonal", "table", "verdict", "write_report"]

_STYLES = {
    "Laplace": ("#2a6f97", "o"),
    "Laplace + DCT": ("#2f9e44", "s"),
    "published recipe": ("#c1121f", "^"),
}
Layers = Mapping[str, Mapping[str, Any]]


def best_diagonal(layer: Mapping[str, Any], part: str) -> float:
    """The better of the two diagonal Gaussians on ``part`` ("train" or "held_out"), nats per image."""
    return max(curve[part][0] for curve in layer["curves"] if curve["model"].startswith("diagonal"))


def verdict(layer: Mapping[str, Any]) -> dict[str, dict[str, bool]]:
    """By model, whether it is above the better diagonal: at every step (training images), at the end (held-out)."""
    found = {}
    for curve in layer["curves"]:
        if not curve["model"].startswith("diagonal"):
            found[curve["model"]] = {
                "training": min(curve["train"]) > best_diagonal(layer, "train"),
                "held-out": curve["held_out"][-1] >= best_diagonal(layer, "held_out"),
            }
    return found


def table(layers: Layers) -> str:
    """Markdown: the better diagonal in nats per image, and the final gains over it in nats per dimension."""
    models = list(dict.fromkeys(c["model"] for layer in layers.values() for c in layer["curves"]))
    models = [model for model in models if not model.startswith("diagonal")]
    lines = [
        "| features | D | images | diagonal, train / held-out | " + " | ".join(models) + " |",
        "|---|---|---|---|" + "---|" * len(models),
    ]
    for name, layer in layers.items():
        by_model = {curve["model"]: curve for curve in layer["curves"]}
        base = {part: best_diagonal(layer, part) for part in ("train", "held_out")}
        cells = []
        for model in models:
            if model not in by_model:
                cells.append("-")
                continue
            gains = [(by_model[model][part][-1] - base[part]) / layer["dim"] for part in base]
            cells.append(f"{gains[0]:+.3f} / {gains[1]:+.3f}")
        diagonal = f"{base['train']:,.0f} / {base['held_out']:,.0f}"
        cells = [f"{layer['dim']:,}", f"{layer['train']} + {layer['held_out']}", diagonal, *cells]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def write_report(folder: Path, record: Mapping[str, Any]) -> None:
    """Write likelihood.json, likelihood.csv, likelihood.md and likelihood.png of what there is so far."""
    layers: Layers = record["layers"]
    write_text(folder / "likelihood.json", json.dumps(record, indent=1) + "\n")
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    out.writerow(["features", "D", "model", "step", "train", "held_out", "train_gain_per_dim", "held_out_gain_per_dim"])
    for name, layer in layers.items():
        base = {part: best_diagonal(layer, part) for part in ("train", "held_out")}
        for curve in layer["curves"]:
            for step, train, held in zip(curve["steps"], curve["train"], curve["held_out"], strict=True):
                gains = [(train - base["train"]) / layer["dim"], (held - base["held_out"]) / layer["dim"]]
                out.writerow([name, layer["dim"], curve["model"], step, train, held, *gains])
    write_text(folder / "likelihood.csv", text.getvalue())
    write_text(folder / "likelihood.md", table(layers) + "\n")
    with written_whole(folder / "likelihood.png") as file:
        _figure(layers).savefig(file, format="png", dpi=110)


def _figure(layers: Layers) -> Figure:
    """A column per layer: gains over the better diagonal on training images above, on held-out images below."""
    columns = min(4, len(layers))
    rows = -(-len(layers) // columns)
    figure = Figure(figsize=(3.6 * columns, 5.2 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2 * rows, columns, squeeze=False)
    for number, (name, layer) in enumerate(layers.items()):
        pair = (axes[2 * (number // columns)][number % columns], axes[2 * (number // columns) + 1][number % columns])
        for axis, part, title in zip(pair, ("train", "held_out"), ("training", "held-out"), strict=True):
            base = best_diagonal(layer, part)
            axis.axhline(0, color="#555555", lw=1, ls=(0, (4, 2)))
            lowest = 0.0
            for curve in layer["curves"]:
                if curve["model"] not in _STYLES:
                    continue
                colour, marker = _STYLES[curve["model"]]
                gains = [(value - base) / layer["dim"] for value in curve[part]]
                lowest = min(lowest, gains[-1] if curve["model"] == "published recipe" else min(gains))
                axis.plot(curve["steps"], gains, marker=marker, ms=3, lw=1.3, color=colour, label=curve["model"])
            axis.set_xscale("symlog", linthresh=1)
            axis.set_xlim(left=-0.1)
            axis.set_ylim(bottom=max(axis.get_ylim()[0], min(-0.4, 1.3 * lowest)))
            axis.set_title(f"{name}, {title} images", fontsize=9)
            axis.tick_params(labelsize=7)
            axis.grid(alpha=0.25)
        pair[0].set_ylabel("nats per dimension over the diagonal", fontsize=7)
        pair[1].set_xlabel("fitting step", fontsize=8)
    for number in range(len(layers), rows * columns):
        for half in (0, 1):
            axes[2 * (number // columns) + half][number % columns].set_visible(False)
    axes[0][0].legend(fontsize=7)
    return figure
