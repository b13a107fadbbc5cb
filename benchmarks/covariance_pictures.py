"""``python -m benchmarks.covariance_pictures RESULTS [--out docs/covariance]``: what the covariance has learned.

RESULTS is the folder of ``remix reproduce likelihood``: features of the ResNet-34 and the covariances fitted to them.
Draws the learned order, correlations of held-out features beside the model's, and where the model pays.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from torch import Tensor

from remix.laplace import Dct2, LaplaceCovariance, LaplaceNormal
from remix.reproduce.likelihood_features import read_features
from remix.statistics import LayerStatistics, Memory

matplotlib.use("Agg")
import matplotlib.pyplot as plt

REACH = 5  # pixels
CHANNELS = 12  # over which displacements are averaged
FITS = Path("docs/bench/fit.json")


def load_fit(results: Path, layer: str, kind: str) -> LayerStatistics:
    (found,) = Memory.load(results / f"{layer}-{kind}.safetensors").layers.values()
    return found


def rows_of(results: Path, layer: str, part: str, columns: Tensor | None = None) -> Tensor:
    rows, _ = read_features(results / "features" / part, layer)
    chosen = rows if columns is None else rows[:, columns.numpy()]
    return torch.from_numpy(np.asarray(chosen, dtype=np.float32))


def correlation(rows: Tensor) -> Tensor:
    """(N, D) -> (D, D); features that do not vary have correlation 0."""
    centred = rows - rows.mean(0)
    unit = centred / centred.norm(dim=0).clamp_min(1e-12)
    return unit.T @ unit


def model_correlation(normal: LaplaceNormal, units: Tensor) -> Tensor:
    """Of the model without a change of basis, between some units."""
    w, a = normal.weight[units].double(), normal.coord[units].double()
    covariance = w[:, None] * w * torch.exp(-(a[:, None] - a).abs())
    covariance += torch.diag(normal.diag[units].double())
    scale = covariance.diagonal().rsqrt()
    return (scale[:, None] * covariance * scale).float()


def steps_of_the_path(layer: LayerStatistics) -> dict[str, float]:
    """What neighbours on the line are to each other in the map, as shares."""
    assert layer.normal is not None
    _, height, width = layer.shape
    order = layer.normal.coord.argsort(stable=True)
    channel, row, column = order // (height * width), order // width % height, order % width
    dc, dy, dx = (v.diff().abs() for v in (channel, row, column))
    same, near = dc == 0, torch.maximum(dy, dx) == 1
    here = (dy == 0) & (dx == 0)
    kinds = {
        "same channel, pixel beside": same & near & (dy == 0),
        "same channel, pixel above or below": same & near & (dx == 0),
        "same channel, diagonal": same & near & (dy == 1) & (dx == 1),
        "same pixel, other channel": ~same & here,
    }
    shares = {name: float(kind.double().mean()) for name, kind in kinds.items()}
    return shares | {"a jump": 1 - sum(shares.values())}


def draw_order(results: Path, out: Path) -> dict[str, dict[str, float]]:
    """The path through the pixels of a few channels, and what its steps are."""
    layers = {name: load_fit(results, name, "laplace") for name in ("layer1", "layer2", "layer3", "layer4")}
    shares = {name: steps_of_the_path(layer) for name, layer in layers.items()}
    figure = plt.figure(figsize=(13, 7), layout="constrained")
    grid = figure.add_gridspec(2, 4)
    for place, (name, channels) in enumerate((("layer1", (0, 20)), ("layer3", (0, 50)))):
        layer = layers[name]
        assert layer.normal is not None
        for offset, channel in enumerate(channels):
            axis = figure.add_subplot(grid[place, offset])
            draw_path(axis, layer, channel)
            axis.set_title(f"{name}, channel {channel}", fontsize=9)
    axis = figure.add_subplot(grid[:, 2:])
    left = np.zeros(len(shares))
    for kind in next(iter(shares.values())):
        values = np.array([share[kind] for share in shares.values()])
        axis.barh(list(shares), values, left=left, label=kind)
        left += values
    axis.invert_yaxis()
    axis.set_xlabel("share of the steps from one unit to the next on the line")
    axis.legend(fontsize=8, loc="lower left")
    figure.savefig(out / "order.png", dpi=100)
    plt.close(figure)
    return shares


def draw_path(axis: Any, layer: LayerStatistics, channel: int) -> None:
    """Pixels of one channel, coloured by their place on the line, and lines between those that are neighbours there."""
    assert layer.normal is not None
    _, height, width = layer.shape
    rank = layer.normal.coord.argsort(stable=True).argsort()
    inside = rank.reshape(layer.shape)[channel]
    axis.imshow(inside.reshape(-1).argsort().argsort().reshape(height, width), cmap="viridis", alpha=0.6)
    order = layer.normal.coord.argsort(stable=True)
    here = order // (height * width) == channel
    for start in (here[:-1] & here[1:]).nonzero()[:, 0].tolist():
        pair = order[start : start + 2] % (height * width)
        axis.plot(pair % width, pair // width, color="black", lw=0.6)
    axis.set_axis_off()


def displacement(matrix: Tensor, height: int, width: int) -> Tensor:
    """Mean correlation of the pixels of a channel (H W, H W) by displacement, (2 REACH + 1, 2 REACH + 1)."""
    field = matrix.reshape(height, width, height, width)
    found = torch.zeros(2 * REACH + 1, 2 * REACH + 1)
    for dy in range(-REACH, REACH + 1):
        for dx in range(-REACH, REACH + 1):
            rows = torch.arange(max(0, -dy), min(height, height - dy))
            columns = torch.arange(max(0, -dx), min(width, width - dx))
            r, c = torch.meshgrid(rows, columns, indexing="ij")
            found[dy + REACH, dx + REACH] = field[r, c, r + dy, c + dx].mean()
    return found


def channel_fields(results: Path, layer: str) -> dict[str, Tensor]:
    """By model, the mean correlation by displacement over some channels that are alive."""
    plain, changed = load_fit(results, layer, "laplace"), load_fit(results, layer, "laplace-dct")
    assert plain.normal is not None
    assert changed.normal is not None
    channels, height, width = plain.shape
    plane = Dct2((1, height, width))
    fields: dict[str, list[Tensor]] = {"held-out features": [], "Laplace": [], "Laplace + DCT": []}
    for channel in range(0, channels, channels // CHANNELS):
        units = torch.arange(channel * height * width, (channel + 1) * height * width)
        held = rows_of(results, layer, "held-out", units)
        if bool((held.std(0) == 0).any()):
            continue
        fields["held-out features"].append(displacement(correlation(held), height, width))
        fields["Laplace"].append(displacement(model_correlation(plain.normal, units), height, width))
        w, a = changed.normal.weight[units], changed.normal.coord[units]
        covariance = w[:, None] * w * torch.exp(-(a[:, None] - a).abs()) + torch.diag(changed.normal.diag[units])
        pixels = plane.inverse(plane.inverse(covariance).mT)
        scale = pixels.diagonal().rsqrt()
        fields["Laplace + DCT"].append(displacement(scale[:, None] * pixels * scale, height, width))
    return {name: torch.stack(parts).mean(0) for name, parts in fields.items()}


def draw_correlations(results: Path, out: Path, layer: str = "layer2", count: int = 120) -> dict[str, Any]:
    """A stretch of the line, pairs of units, and the correlation by displacement."""
    found = load_fit(results, layer, "laplace")
    normal = found.normal
    assert normal is not None
    order = normal.coord.argsort(stable=True)
    middle = len(order) // 2
    units = order[middle : middle + count]
    real = correlation(rows_of(results, layer, "held-out", units))
    model = model_correlation(normal, units)
    fields = channel_fields(results, layer)
    figure, axes = plt.subplots(2, 3, figsize=(13, 8), layout="constrained")
    for axis, matrix, title in (
        (axes[0][0], real, f"held-out correlations, {count} neighbours on the line"),
        (axes[0][1], model, "the model's"),
    ):
        image = axis.imshow(matrix, vmin=-1, vmax=1, cmap="RdBu_r")
        axis.set_title(title, fontsize=9)
    figure.colorbar(image, ax=axes[0][1])
    upper = torch.triu_indices(count, count, 1)
    near = (upper[1] - upper[0]) <= 3
    x, y = model[upper[0], upper[1]], real[upper[0], upper[1]]
    axes[0][2].plot(x[~near], y[~near], ".", ms=2, color="#999999", label="further on the line")
    axes[0][2].plot(x[near], y[near], ".", ms=4, color="#c1121f", label="up to 3 places apart")
    axes[0][2].plot([-1, 1], [-1, 1], color="black", lw=0.7)
    axes[0][2].set_xlabel("model")
    axes[0][2].set_ylabel("held-out")
    axes[0][2].legend(fontsize=8)
    for axis, (name, field) in zip(axes[1], fields.items(), strict=True):
        edge = REACH + 0.5
        image = axis.imshow(field, vmin=0, vmax=1, cmap="magma", extent=(-edge, edge, edge, -edge))
        axis.set_title(f"{name}: correlation within a channel by displacement", fontsize=8)
    figure.colorbar(image, ax=axes[1][2])
    figure.suptitle(f"ResNet-34, {layer}", fontsize=10)
    figure.savefig(out / "correlations.png", dpi=100)
    plt.close(figure)
    facts: dict[str, Any] = {"layer": layer}
    for name, field in fields.items():
        centre = field[REACH]
        facts[name] = {
            "one pixel beside": float(centre[REACH + 1]),
            "one pixel below": float(field[REACH + 1, REACH]),
            "three pixels beside": float(centre[REACH + 3]),
            "three pixels below": float(field[REACH + 3, REACH]),
        }
    facts["up to 3 places apart on the line, mean |held-out|, mean |model|"] = [
        float(y[near].abs().mean()),
        float(x[near].abs().mean()),
    ]
    facts["further, mean |held-out|, mean |model|"] = [float(y[~near].abs().mean()), float(x[~near].abs().mean())]
    return facts


def frequency_diagonal(results: Path, layer: str) -> dict[str, float]:
    """Held-out nats per dimension of the fit behind the DCT, and of the same without its correlations."""
    normal = load_fit(results, layer, "laplace-dct").normal
    assert normal is not None
    variance, none = normal.covariance.diagonal(), torch.zeros_like(normal.weight)
    diagonal = LaplaceNormal(normal.loc, LaplaceCovariance(variance, none, normal.coord), normal.basis)
    totals = {"diagonal over frequencies": 0.0, "Laplace + DCT": 0.0}
    rows, _ = read_features(results / "features" / "held-out", layer)
    for start in range(0, len(rows), 20):
        block = torch.from_numpy(np.asarray(rows[start : start + 20], dtype=np.float32))
        for name, model in zip(totals, (diagonal, normal), strict=True):
            totals[name] += float(model.log_prob(block).double().sum())
    return {name: total / rows.size for name, total in totals.items()}


def draw_pays(out: Path) -> None:
    """Held-out gains of every model on every set of docs/bench/fit.json."""
    sets = json.loads(FITS.read_text())
    models = {
        "ours": "#2a6f97",
        "ours + DCT": "#2f9e44",
        "factor analysis, k = 2": "#e9a23b",
        "factor analysis, k = 8": "#c1121f",
        "dense, Ledoit-Wolf": "#777777",
    }
    figure, axis = plt.subplots(figsize=(11, 7), layout="constrained")
    names = list(sets)
    for number, (model, colour) in enumerate(models.items()):
        gains = []
        for name in names:
            found = sets[name]["models"]
            gains.append(found[model]["nats"] - found["diagonal"]["nats"] if model in found else np.nan)
        axis.barh(np.arange(len(names)) + 0.16 * number - 0.32, gains, 0.15, color=colour, label=model)
    axis.set_yticks(
        np.arange(len(names)), [f"{name} (N = {sets[name]['N']:,}, D = {sets[name]['D']:,})" for name in names]
    )
    axis.tick_params(axis="y", labelsize=8)
    axis.invert_yaxis()
    axis.axvline(0, color="black", lw=0.8)
    axis.set_xlabel("held-out nats per dimension over the diagonal")
    axis.legend(fontsize=8)
    axis.grid(axis="x", alpha=0.3)
    figure.savefig(out / "pays.png", dpi=100)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.covariance_pictures", description=__doc__)
    parser.add_argument("results", type=Path, help="folder of remix reproduce likelihood")
    parser.add_argument("--out", type=Path, default=Path("docs/covariance"), help="folder for the pictures")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    draw_pays(options.out)
    facts: dict[str, Any] = {"steps of the path": draw_order(options.results, options.out)}
    facts["correlations"] = draw_correlations(options.results, options.out)
    layers = ("layer1", "layer2", "layer3", "layer4")
    facts["held-out nats per dimension"] = {layer: frequency_diagonal(options.results, layer) for layer in layers}
    (options.out / "facts.json").write_text(json.dumps(facts, indent=1) + "\n")
    print(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
