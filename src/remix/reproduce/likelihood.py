"""Log-likelihood of real features over the steps of a fit, per layer, on training and on held-out images.

The paper's comparison (its log-likelihood tables), with three differences: held-out images are shown too, our fit is
shown beside the published recipe, and the diagonal is the better of two on the images at hand.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from remix.data import IMAGENET, DataError, ImageDataset, Preprocessing, load
from remix.laplace import FrobeniusRecipe, LaplaceNormal
from remix.networks import load_classifier
from remix.reproduce.feature_files import image_batches, map_features, read_features, write_features
from remix.reproduce.likelihood_curves import LayerData, diagonals, laplace_curve, published_curve
from remix.reproduce.likelihood_report import table, verdict, write_report
from remix.reproduce.targets import Reproduction
from remix.reproduce.vit_features import open_vit
from remix.statistics import Laplace, LayerStatistics, Memory, Point, as_view
from remix.support.documents import read_json
from remix.support.files import write_text

__all__ = ["TAKES", "reproduce"]

TAKES = ("data", "weights", "vit", "vit_images", "memory")
SIZE, CLASSES, BATCH = 224, 4, 128
LAYERS = {
    "layer1": "layer1.2:output",
    "layer2": "layer2.3:output",
    "layer3": "layer3.5:output",
    "layer4": "layer4.2:output",
}
_MOST = {"mini": 100, "paper": 10**9}  # photographs of a class
_EPOCHS = {"mini": 50, "paper": 100}  # of the published recipe; for transformers twice as many
_EVERY = {"mini": 10, "paper": 1}  # epochs between its evaluations
Say = Callable[[str], None]


def reproduce(wanted: Reproduction, console: Console) -> bool:
    """See `remix.reproduce`."""
    wanted.needs("data")
    if wanted.weights is None and wanted.vit is None:
        raise ValueError("this target needs --weights (a ResNet-34), --vit, or both")
    if wanted.vit is None and wanted.vit_images is not None:
        raise ValueError("--vit-images goes with --vit")

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    layers: dict[str, Any] = {}
    jobs = [*_resnet(wanted, say), *_vit(wanted, say)]
    for name, job in jobs:
        layers[name] = job()
        write_report(wanted.out, {"scale": wanted.scale, "layers": layers})
    say(table(layers))
    for name, layer in layers.items():
        for model, found in verdict(layer).items():
            training = "above it at every step" if found["training"] else "below it at some step"
            held_out = "not below it at the end" if found["held-out"] else "below it at the end"
            say(f"{name}, {model}, against the diagonal: training images {training}, held-out images {held_out}")
    say(f"written: {wanted.out}/likelihood.csv, .json, .md, .png, and the fitted covariances of maps")
    return True


Jobs = list[tuple[str, Callable[[], dict[str, Any]]]]


def _resnet(wanted: Reproduction, say: Say) -> Jobs:
    """The four layers of the ResNet-34, features written."""
    if wanted.weights is None:
        return []
    assert wanted.data is not None
    images = _photographs(wanted.data, SIZE, wanted.scale)
    network: Any = load_classifier("resnet34", wanted.weights).eval().backbone
    preprocessing = Preprocessing(SIZE, 3, IMAGENET.mean, IMAGENET.std)
    _extract(
        wanted.out / "features", images, preprocessing, lambda batches: map_features(network, batches, LAYERS), say
    )
    settings = {"scale": wanted.scale, "images": [len(part) for part in images], "of": Path(wanted.weights).name}
    return [(name, _Layer(wanted, name, settings, say).map_layer) for name in LAYERS]


def _vit(wanted: Reproduction, say: Say) -> Jobs:
    """The blocks of the transformer, features written."""
    if wanted.vit is None:
        return []
    assert wanted.data is not None
    vit = open_vit(wanted.vit)
    images = _vit_images(wanted.vit_images, wanted.data, vit.preprocessing.size, wanted.scale)
    _extract(wanted.out / "features-vit", images, vit.preprocessing, vit.pooled, say)
    settings = {"scale": wanted.scale, "images": [len(part) for part in images], "of": Path(wanted.vit).name}
    jobs: Jobs = []
    for number in range(vit.blocks):
        layer = _Layer(wanted, f"block {number}", settings, say)
        jobs.append((f"block {number}", lambda layer=layer, number=number: layer.vit_block(number, vit.blocks)))  # type: ignore[misc]
    return jobs


def _photographs(data: str, size: int, scale: str) -> tuple[ImageDataset, ImageDataset]:
    """Training and held-out images of the first four classes."""
    root = Path(data)
    folder = root if (root / "train").is_dir() else root / "imagenette"
    if not (folder / "train").is_dir():
        raise ValueError(f"--data {root} must have train/ and val/ with one sub-folder of photographs per class")
    return _first(*_both(str(folder), None, size=size), _MOST[scale])


def _vit_images(name: str | None, data: str, size: int, scale: str) -> tuple[ImageDataset, ImageDataset]:
    if name is None:
        return _photographs(data, size, scale)
    options: dict[str, Any] = {"size": size} if Path(name).is_dir() else {}
    train, test = _both(name, data, **options)
    if train.input_shape[1:] != (size, size):
        raise ValueError(f"the transformer takes images of {size} x {size} pixels, {name} has {train.input_shape[1:]}")
    return _first(train, test, 500)


def _both(name: str, root: str | None, **options: Any) -> tuple[ImageDataset, ImageDataset]:
    try:
        splits = load(name, root, **options)
    except DataError as error:
        raise ValueError(str(error)) from error
    if not len(splits.test):
        raise ValueError(f"{name} has no held-out images (val/ or test/)")
    return splits.train, splits.test


def _first(train: ImageDataset, test: ImageDataset, most: int) -> tuple[ImageDataset, ImageDataset]:
    """Of the first classes at most ``most`` images each, classes mixed."""

    def some(data: ImageDataset) -> ImageDataset:
        rows = torch.cat([(data.labels == label).nonzero()[:most, 0] for label in range(CLASSES)])
        return data.select(rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))])

    return some(train), some(test)


def _extract(
    folder: Path,
    images: tuple[ImageDataset, ImageDataset],
    preprocessing: Preprocessing,
    features: Callable[[Iterator[Tensor]], Iterator[dict[str, Tensor]]],
    say: Say,
) -> None:
    """Write features of training and held-out images, unless they are there."""
    for part, data in zip(("train", "held-out"), images, strict=True):
        place = folder / part
        if place.exists() and list(place.glob("*.npy")) and not list(place.glob("*.unfinished")):
            continue

        def progress(seen: int, rows: int, part: str = part) -> None:
            if seen == rows or seen // 100 > (seen - BATCH) // 100:
                say(f"features of {part} images: {seen} of {rows}")

        write_features(place, len(data), features(image_batches(data, preprocessing, 20)), progress)


class _Layer:
    """The curves of one layer, from its result file if that is there and belongs to the same settings."""

    def __init__(self, wanted: Reproduction, name: str, settings: dict[str, Any], say: Say) -> None:
        self._wanted, self._name, self._settings = wanted, name, settings
        self._say: Say = lambda text: say(f"{name}: {text}")
        self._file = wanted.out / f"{name.replace(' ', '')}.json"
        self._memory = int((wanted.memory or 4) * 2**30)

    def map_layer(self) -> dict[str, Any]:
        (train, shape), (held, _) = (
            read_features(self._wanted.out / "features" / part, self._name) for part in ("train", "held-out")
        )
        data = LayerData(self._name, train, held, (shape[0], shape[1], shape[2]))
        epoch = math.ceil(len(train) / BATCH)
        recipe = FrobeniusRecipe.long_vectors(len(train), _EPOCHS[self._wanted.scale], BATCH)
        return self._curves(data, LAYERS[self._name], recipe, epoch)

    def vit_block(self, number: int, blocks: int) -> dict[str, Any]:
        (train, _), (held, _) = (
            read_features(self._wanted.out / "features-vit" / part, f"block {number}") for part in ("train", "held-out")
        )
        epoch, last = math.ceil(len(train) / BATCH), max(1, blocks - 1)
        boost = 1 + 24 * (last - number) / last  # the paper's rates by block
        steps = 2 * _EPOCHS[self._wanted.scale] * epoch
        recipe = FrobeniusRecipe(steps, 0.01 * boost, 0.12 * boost, BATCH, _late_cosine)
        return self._curves(LayerData(self._name, train, held), None, recipe, epoch)

    def _curves(self, data: LayerData, point: str | None, recipe: FrobeniusRecipe, epoch: int) -> dict[str, Any]:
        if self._file.exists():
            kept = read_json(self._file)
            if not isinstance(kept, dict) or kept.pop("settings", None) != self._settings:
                raise ValueError(f"{self._file} belongs to another run: choose another --out")
            return kept
        plain, normal = laplace_curve(data, None, self._memory, self._say)
        curves = [*diagonals(data, normal.variance), plain]
        fits = {"laplace": normal}
        if data.layout is not None and min(data.layout[1:]) >= 4:
            curve, fits["laplace-dct"] = laplace_curve(data, "dct", self._memory, self._say)
            curves.append(curve)
        for kind, found in fits.items():
            if point is not None and data.layout is not None:
                _save(self._wanted.out / f"{self._name}-{kind}.safetensors", found, point, data)
        every = _EVERY[self._wanted.scale] * (1 if data.layout else 2)
        curves.append(published_curve(data, recipe, epoch, every, self._memory, self._say))
        record = {
            "dim": data.dim,
            "train": len(data.train),
            "held_out": len(data.held_out),
            "reports": {kind: asdict(found.report) for kind, found in fits.items() if found.report is not None},
            "curves": [curve.record() for curve in curves],
        }
        write_text(self._file, json.dumps({**record, "settings": self._settings}, indent=1) + "\n")
        return record


def _late_cosine(done: float) -> float:
    """The paper's schedule for transformers: constant until 40 %, then a cosine to 0."""
    return 1.0 if done < 0.4 else 0.5 * (1 + math.cos(math.pi * (done - 0.4) / 0.6))


def _save(path: Path, normal: LaplaceNormal, point: str, data: LayerData) -> None:
    """As statistics that `remix dream --weights ... --statistics` takes."""
    assert data.layout is not None
    memory = Memory()
    mean, variance = normal.loc.clone(), normal.variance
    where, fitted = Point.parse(point), {"laplace": Laplace(normal)}
    layer = LayerStatistics(where, as_view("map"), data.layout, len(data.train), mean, variance, fitted)
    memory.layers = {layer.key: layer}
    memory.save(path)
