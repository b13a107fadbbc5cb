"""Log-likelihood of real features over the steps of a fit, per layer, on training and on held-out images.

The paper's comparison (its log-likelihood tables), with three differences: held-out images are shown too, our fit is
shown beside the published recipe, and the diagonal is the better of two on the images at hand.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from remix.data import IMAGENET, Preprocessing
from remix.laplace import FrobeniusRecipe, LaplaceNormal
from remix.networks import load_classifier, open_network
from remix.reproduce.likelihood_curves import LayerData, diagonals, laplace_curve, published_curve
from remix.reproduce.likelihood_features import (
    MOST,
    class_folders,
    extract_features,
    map_features,
    photographs,
    read_features,
    token_features,
    vit_images,
)
from remix.reproduce.photographs import count_images, layout, parse_classes
from remix.reproduce.result_files import new_figure
from remix.reproduce.targets import Listener, Reproduction
from remix.statistics import Laplace, LayerStatistics, Memory, Point, as_view
from remix.support.documents import read_json
from remix.support.files import write_text, written_whole
from remix.support.text import as_csv

__all__ = ["TAKES", "best_diagonal", "reproduce", "table", "verdict"]

TAKES = ("data", "weights", "classes", "vit", "vit_images", "memory", "dry_run")
SIZE, BATCH = 224, 128
LAYERS = {
    "layer1": "layer1.2:output",
    "layer2": "layer2.3:output",
    "layer3": "layer3.5:output",
    "layer4": "layer4.2:output",
}
_DIMS = {name: (64 << k) * (SIZE // (4 << k)) ** 2 for k, name in enumerate(LAYERS)}
_EPOCHS = {"mini": 50, "paper": 100}  # of the published recipe; for transformers twice as many
_TOKENS = {"mini": 8, "paper": 10**9}  # patches of an image that are rows
_EVERY = {"mini": 10, "paper": 1}  # epochs between its evaluations
_STYLES = {
    "Laplace": ("#2a6f97", "o"),
    "Laplace + DCT": ("#2f9e44", "s"),
    "published recipe": ("#c1121f", "^"),
}
Say = Callable[[str], None]
Photographs = tuple[Path, tuple[str, ...]]  # their folder, and names of the classes
Layers = Mapping[str, Mapping[str, Any]]


def reproduce(wanted: Reproduction, listener: Listener) -> bool:
    """See `remix.reproduce`."""
    wanted.needs("data")
    if wanted.weights is None and wanted.vit is None:
        raise ValueError("this target needs --weights (a ResNet-34), --vit, or both")
    if wanted.vit is None and wanted.vit_images is not None:
        raise ValueError("--vit-images goes with --vit")
    asked = parse_classes(wanted.classes)
    pictures = None
    if wanted.weights is not None or wanted.vit_images is None:
        assert wanted.data is not None
        pictures = class_folders(wanted.data, wanted.scale, asked)
    elif asked is not None:
        raise ValueError("--classes goes with photographs: leave out --vit-images, or give --weights")
    if wanted.dry_run:
        _tell_plan(wanted, pictures, listener)
        return True
    say = listener.say
    layers: dict[str, Any] = {}
    for layer in [*_resnet(wanted, pictures, say), *_vit(wanted, pictures, say)]:
        layers[layer.data.name] = _compare(layer, wanted, say)
        _write(wanted.out, {"scale": wanted.scale, "layers": layers})
    say(table(layers))
    for name, record in layers.items():
        for model, found in verdict(record).items():
            training = "above it at every step" if found["training"] else "below it at some step"
            held_out = "not below it at the end" if found["held-out"] else "below it at the end"
            say(f"{name}, {model}, against the diagonal: training images {training}, held-out images {held_out}")
    say(f"written: {wanted.out}/likelihood.csv, .json, .md, .png, and the fitted covariances of maps")
    return True


@dataclass(frozen=True)
class _Layer:
    """Features, the point of the network whose maps they are (None for pooled tokens), the published fit, and what the
    result belongs to.
    """

    data: LayerData
    point: str | None
    recipe: FrobeniusRecipe
    settings: dict[str, Any]


def _tell_plan(wanted: Reproduction, found: Photographs | None, listener: Listener) -> None:
    """Images, layers, lengths of fits, and what of it is there."""
    most = MOST[wanted.scale]
    counts = [0, 0]
    if found is not None:
        folder, classes = found
        listener.say(f"{folder} has {layout(classes, ('train', 'val'))}: train to fit, val held out")
        for place, part in enumerate(("train", "val")):
            counts[place] = sum(min(most, count_images(folder / part / name)) for name in classes)
    images = f"{counts[0]:,} + {counts[1]:,}"
    rows = []
    for name, dim in _DIMS.items() if wanted.weights is not None else ():
        size = f"{2 * dim * sum(counts) / 2**30:.2f}"
        state = "there" if (wanted.out / f"{name}.json").exists() else "to do"
        rows.append([name, f"{dim:,}", images, f"{_EPOCHS[wanted.scale]}", size, state])
    if wanted.vit is not None:
        shown = images if wanted.vit_images is None else f"of {wanted.vit_images}"
        state = "there" if (wanted.out / "block0.json").exists() else "to do"
        rows.append(
            [
                f"blocks of {Path(wanted.vit).name}, patches pooled and single",
                "",
                shown,
                f"{2 * _EPOCHS[wanted.scale]}",
                "",
                state,
            ]
        )
    heads = ["features", "D", "images, train + held-out", "epochs of the published fit", "GiB on disk", "state"]
    listener.plan(heads, rows)


def _resnet(wanted: Reproduction, found: Photographs | None, say: Say) -> list[_Layer]:
    """The four layers of the ResNet-34, features written."""
    if wanted.weights is None:
        return []
    assert found is not None
    images = photographs(*found, SIZE, wanted.scale)
    network: Any = load_classifier("resnet34", wanted.weights).eval().backbone
    preprocessing = Preprocessing(SIZE, 3, IMAGENET.mean, IMAGENET.std)
    folder = wanted.out / f"features{_suffix(wanted)}"
    extract_features(folder, images, preprocessing, lambda batches: map_features(network, batches, LAYERS), say)
    settings = {"scale": wanted.scale, "images": [len(part) for part in images], "of": Path(wanted.weights).name}
    settings |= _named(wanted)
    layers = []
    for name, point in LAYERS.items():
        (train, shape), (held, _) = (read_features(folder / part, name) for part in ("train", "held-out"))
        recipe = FrobeniusRecipe.long_vectors(len(train), _EPOCHS[wanted.scale], BATCH)
        layers.append(_Layer(LayerData(name, train, held, (shape[0], shape[1], shape[2])), point, recipe, settings))
    return layers


def _named(wanted: Reproduction) -> dict[str, Any]:
    """Classes that were asked for; results of the usual ones do not name them."""
    return {} if wanted.classes is None else {"classes": wanted.classes}


def _suffix(wanted: Reproduction) -> str:
    """Of a folder of features, so that those of other classes are not taken for them."""
    return "" if wanted.classes is None else f"-{hashlib.sha256(wanted.classes.encode()).hexdigest()[:8]}"


def _vit(wanted: Reproduction, found: Photographs | None, say: Say) -> list[_Layer]:
    """The blocks of the transformer, means over patches and single patches, features written."""
    if wanted.vit is None:
        return []
    assert wanted.data is not None
    found_network = open_network(f"hf:{wanted.vit}", {})
    network, preprocessing = found_network.backbone, found_network.preprocessing
    if wanted.vit_images is not None:
        images = vit_images(wanted.vit_images, wanted.data, preprocessing.size)
    else:
        assert found is not None
        images = photographs(*found, preprocessing.size, wanted.scale)
    blocks = [block.name for block in network.blocks() if block.name.startswith("layers.")]
    points = {f"block {number}": f"{name}:output" for number, name in enumerate(blocks)}
    folder = wanted.out / f"features-vit{_suffix(wanted)}"
    tokens = _TOKENS[wanted.scale]
    extract_features(
        folder, images, preprocessing, lambda batches: token_features(network, batches, points, tokens), say
    )
    settings = {"scale": wanted.scale, "images": [len(part) for part in images], "of": Path(wanted.vit).name}
    settings |= _named(wanted)
    layers, last = [], max(1, len(points) - 1)
    for kind, (number, block) in product(("", " tokens"), enumerate(points)):
        name = f"{block}{kind}"
        (train, shape), (held, _) = (read_features(folder / part, name) for part in ("train", "held-out"))
        train, held = train.reshape(-1, shape[-1]), held.reshape(-1, shape[-1])
        boost = 1 + 24 * (last - number) / last  # the paper's rates by block
        steps = 2 * _EPOCHS[wanted.scale] * math.ceil(len(train) / BATCH)
        recipe = FrobeniusRecipe(steps, 0.01 * boost, 0.12 * boost, BATCH, _late_cosine)
        layers.append(_Layer(LayerData(name, train, held), None, recipe, settings))
    return layers


def _late_cosine(done: float) -> float:
    """The paper's schedule for transformers: constant until 40 %, then a cosine to 0."""
    return 1.0 if done < 0.4 else 0.5 * (1 + math.cos(math.pi * (done - 0.4) / 0.6))


def _compare(layer: _Layer, wanted: Reproduction, say_of_all: Say) -> dict[str, Any]:
    """The curves of one layer, from its result file if that is there and belongs to the same settings."""
    data, name = layer.data, layer.data.name
    file = wanted.out / f"{name.replace(' ', '')}.json"
    if file.exists():
        kept = read_json(file)
        if not isinstance(kept, dict) or kept.pop("settings", None) != layer.settings:
            raise ValueError(f"{file} belongs to another run: choose another --out")
        return kept

    def say(text: str) -> None:
        say_of_all(f"{name}: {text}")

    memory = int((wanted.memory or 4) * 2**30)
    plain, normal = laplace_curve(data, None, memory, say)
    curves = [*diagonals(data, normal.variance), plain]
    fits = {"laplace": normal}
    if data.layout is not None and min(data.layout[1:]) >= 4:
        curve, fits["laplace-dct"] = laplace_curve(data, "dct", memory, say)
        curves.append(curve)
    if layer.point is not None:
        for kind, found in fits.items():
            _save(wanted.out / f"{name}-{kind}.safetensors", found, layer.point, data)
    every = _EVERY[wanted.scale] * (1 if data.layout else 2)
    curves.append(published_curve(data, layer.recipe, math.ceil(len(data.train) / BATCH), every, memory, say))
    record = {
        "dim": data.dim,
        "train": len(data.train),
        "held_out": len(data.held_out),
        "reports": {kind: asdict(found.report) for kind, found in fits.items() if found.report is not None},
        "curves": curves,
    }
    write_text(file, json.dumps({**record, "settings": layer.settings}, indent=1) + "\n")
    return record


def _save(path: Path, normal: LaplaceNormal, point: str, data: LayerData) -> None:
    """As statistics that `remix dream --weights ... --statistics` takes."""
    assert data.layout is not None
    memory = Memory()
    mean, variance = normal.loc.clone(), normal.variance
    where, fitted = Point.parse(point), {"laplace": Laplace(normal)}
    layer = LayerStatistics(where, as_view("map"), data.layout, len(data.train), mean, variance, fitted)
    memory.layers = {layer.key: layer}
    memory.save(path)


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


def _write(folder: Path, record: Mapping[str, Any]) -> None:
    """Write likelihood.json, likelihood.csv, likelihood.md and likelihood.png of what there is so far."""
    layers: Layers = record["layers"]
    write_text(folder / "likelihood.json", json.dumps(record, indent=1) + "\n")
    rows = []
    for name, layer in layers.items():
        base = {part: best_diagonal(layer, part) for part in ("train", "held_out")}
        for curve in layer["curves"]:
            for step, train, held in zip(curve["steps"], curve["train"], curve["held_out"], strict=True):
                rows.append({
                    "features": name,
                    "D": layer["dim"],
                    "model": curve["model"],
                    "step": step,
                    "train": train,
                    "held_out": held,
                    "train_gain_per_dim": (train - base["train"]) / layer["dim"],
                    "held_out_gain_per_dim": (held - base["held_out"]) / layer["dim"],
                })  # fmt: skip
    write_text(folder / "likelihood.csv", as_csv(rows))
    write_text(folder / "likelihood.md", table(layers) + "\n")
    with written_whole(folder / "likelihood.png") as file:
        _figure(layers).savefig(file, format="png", dpi=110)


def _figure(layers: Layers) -> Figure:
    """A column per layer: gains over the better diagonal on training images above, on held-out images below."""
    columns = min(4, len(layers))
    rows = -(-len(layers) // columns)
    figure = new_figure(3.6 * columns, 5.2 * rows)
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
