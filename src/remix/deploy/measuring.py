"""Measuring the statistics of a network on a folder of images, for a model that can dream."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from remix.data import ImageDataset, Preprocessing, Skipped, load
from remix.data.errors import left_out
from remix.deploy.head_order import HeadOrder, order_of_names, settle_order
from remix.deploy.sources import NetworkFile, read_names
from remix.learning import Model, save_model
from remix.learning.team import as_device
from remix.networks import Backbone
from remix.networks.probe import evaluating, probe_images
from remix.statistics import (
    ClassGaussians,
    ClassMeter,
    Hooks,
    LayerMeter,
    Memory,
    Meter,
    Point,
    batchnorm_points,
    block_input_points,
    feature_point,
    run_meters,
)
from remix.support.display import Display, duration

__all__ = ["Measured", "check_request", "map_bytes", "map_points", "measure_folder", "measure_model", "read_images"]

VIEWS = ("channels", "map")
KINDS = ("laplace", "dense")


@dataclass(frozen=True)
class Measured:
    """A model with its memory, what was found about its head, and the number of images seen."""

    model: Model
    order: HeadOrder
    images: int


Transform = Literal["auto", "dct"] | None


def check_request(kinds: Sequence[str], views: Sequence[str], maps: Sequence[str] | None = None) -> None:
    """Check names of kinds and views. Raises ValueError listing the known ones."""
    for option, names, known in (("--kinds", kinds, KINDS), ("--views", views, VIEWS)):
        for name in names:
            if name not in known:
                raise ValueError(f"{option} knows {', '.join(known)}, got {name!r}")
    if not views:
        raise ValueError(f"--views needs at least one of: {', '.join(VIEWS)}")
    if maps is not None and "map" not in views:
        raise ValueError("--maps goes with --views map or --views channels,map")
    if "map" in views and "laplace" not in kinds:
        raise ValueError("of maps only Laplace covariances are kept: add laplace to --kinds, or leave --views map out")


def read_images(folder: str | Path, preprocessing: Preprocessing) -> tuple[ImageDataset, tuple[Skipped, ...]]:
    """The images of a folder (the train part where it has parts) as a network takes them, and the files left out.

    Raises:
        ValueError: if there is no such folder, or no class with usable images in it.

    """
    if not Path(folder).is_dir():
        raise ValueError(f"there is no folder {folder}: give one that has a sub-folder of images for every class")
    splits = load(
        "folder",
        folder,
        size=preprocessing.size,
        channels=preprocessing.channels,
        holdout=0.0,
        normalisation=preprocessing.normalisation,
    )
    return splits.train, splits.skipped


def measure_folder(
    images: str | Path,
    network: NetworkFile,
    out: Path,
    display: Display,
    *,
    kinds: Sequence[str] = ("laplace",),
    views: Sequence[str] = ("channels",),
    maps: Sequence[str] | None = None,
    transform: Transform = "auto",
    batch: int = 32,
    device: str = "auto",
) -> Measured:
    """Measure a network on a folder of images and save it with its statistics as the model ``out``.

    Args:
        images: the folder, see `read_images`.
        network: the weights.
        out: the model file, which is replaced.
        display: where progress and remarks are shown.
        kinds, views, maps, transform, batch: as of `measure_model`.
        device: auto, cpu, cuda, mps, ...

    Raises:
        ValueError: for whatever cannot be done, before any work.
        OSError: if a file cannot be read or written.

    """
    names = read_names(network.names) if network.names else None
    bare = network.load().to(as_device(device))
    data, skipped = read_images(images, bare.preprocessing)
    order_of_names(data.classes, names, bare.classifier.head.num_classes)
    display.say(f"{len(data)} images of {len(data.classes)} classes at {bare.preprocessing.size} pixels")
    if "map" in views:
        most = map_bytes(bare, maps) / 2**30
        display.say(f"note: maps take up to {most:.1f} GiB of memory while they are measured")
    began = time.monotonic()

    def progress(seen: int, count: int) -> None:
        what = "fitting covariances" if seen == count else f"{seen} of {count} images"
        display.show(what, seen / count, {}, last=seen == count)

    with display:
        measured = measure_model(
            bare, data, names, kinds=kinds, views=views, maps=maps, transform=transform, batch=batch, progress=progress
        )
    save_model(out, measured.model)
    memory = measured.model.memory
    assert memory is not None
    for line in (
        *(f"left out: {line}" for line in left_out(skipped)),
        *(f"note: {note}" for note in measured.order.notes),
        *(f"WARNING: {warning}" for warning in measured.order.warnings),
        f"{measured.order.right} of {measured.images} images are read right by the network",
        f"{out}  {out.stat().st_size / 2**20:.1f} MiB: the network and statistics of {len(memory.layers)} layers",
        f"took {duration(time.monotonic() - began)}; next: remix dream {out} --out grid.png",
    ):
        display.say(line)
    return measured


def measure_model(
    bare: Model,
    data: ImageDataset,
    names: Sequence[str] | None = None,
    *,
    kinds: Sequence[str] = ("laplace",),
    views: Sequence[str] = ("channels",),
    maps: Sequence[str] | None = None,
    transform: Transform = "auto",
    batch: int = 32,
    progress: Callable[[int, int], None] | None = None,
) -> Measured:
    """Measure, in one pass: BatchNorm inputs with covariances, the inputs of blocks, and the classes' Gaussians.

    Args:
        bare: a model; its class names do not count.
        data: labelled images.
        names: of the head's outputs in their order, if a person knows them; see `settle_order`.
        kinds: of covariances, besides variances.
        views: "channels", "map" or both; maps have Laplace covariances only.
        maps: of what maps are kept, see `map_points`.
        transform: of maps before the Laplace covariance, see `LayerMeter`.
        batch: images at once.
        progress: called with the number of images seen, and of all.

    Raises:
        ValueError: for classes that the head does not have, and for what `run_meters` refuses.

    """
    check_request(kinds, views, maps)
    order_of_names(data.classes, names, bare.classifier.head.num_classes)
    backbone: Any = bare.classifier.backbone
    points = batchnorm_points(backbone) or list(block_input_points(backbone).values())
    layers: list[LayerMeter] = []
    if "channels" in views:
        layers.append(LayerMeter(points, "channels", kinds))
    inputs = [
        point for point in block_input_points(backbone).values() if "channels" not in views or point not in points
    ]
    if inputs:
        layers.append(LayerMeter(inputs, "channels", ()))
    if "map" in views:
        layers.append(LayerMeter(map_points(bare, maps), "map", ("laplace",), transform=transform))
    classes = ClassMeter(feature_point(backbone), backbone.pool)
    votes = _Votes(backbone, bare.classifier.head, len(data.classes))
    batches = _batches(data, bare, batch, progress)
    seen = run_meters(backbone, batches, [*layers, classes, votes])
    order = settle_order(data.classes, names, votes.confusion)
    memory = Memory()
    memory.layers = {key: layer for meter in layers for key, layer in meter.statistics().items()}
    memory.gaussians = _by_output(classes.gaussians(), order.outputs)
    counts = dict(zip(order.outputs, data.counts().values(), strict=True))
    if all(counts.get(output) for output in range(len(order.names))):
        memory.record_task([(name, counts[output]) for output, name in enumerate(order.names)])
    provenance = {**bare.provenance, "measured on": f"{seen} images of {len(data.classes)} classes"}
    return Measured(replace(bare, classes=order.names, memory=memory, provenance=provenance), order, seen)


def map_points(model: Model, maps: Sequence[str] | None = None) -> list[Point]:
    """The places whose whole maps are kept.

    Args:
        model: its network.
        maps: names of blocks, whose outputs are meant; ``["stages"]`` for the last block of every size of maps, as in
            the paper; None for what BatchNorm layers receive (the inputs of blocks where there are none).

    Raises:
        ValueError: for a name that is no block; the message lists them.

    """
    backbone: Any = model.classifier.backbone
    if maps is None:
        return batchnorm_points(backbone) or list(block_input_points(backbone).values())
    names = [block.name for block in backbone.blocks()]
    if list(maps) == ["stages"]:
        return [Point(name, "output") for name in _stage_ends(model)]
    for name in maps:
        if name not in names:
            raise ValueError(f"--maps knows stages and the blocks {', '.join(names)}, got {name!r}")
    return [Point(name, "output") for name in maps]


def _stage_ends(model: Model) -> list[str]:
    """The last block of every size of maps; the stem is no stage if its size goes on."""
    backbone: Any = model.classifier.backbone
    ends: dict[tuple[int, ...], str] = {}
    with evaluating(backbone):
        x = probe_images(backbone, model.preprocessing.shape)
        for block in backbone.blocks():
            x = block(x)
            if x.dim() == 4:
                ends[tuple(x.shape[2:])] = block.name
    return list(ends.values())


def map_bytes(model: Model, maps: Sequence[str] | None = None) -> int:
    """Most memory that measuring maps takes: of every layer up to a thousand maps, but at most 256 MiB, are kept."""
    backbone: Any = model.classifier.backbone
    with evaluating(backbone), Hooks(backbone, map_points(model, maps)) as hooks:
        backbone.features(probe_images(backbone, model.preprocessing.shape))
    return sum(4 * min(1000 * hooks[point][0].numel(), 1 << 26) for point in hooks)


class _Votes(Meter):
    """Counts how often the images of each class are read as each output."""

    def __init__(self, backbone: Backbone, head: Any, classes: int) -> None:
        self.points: list[Point] = [feature_point(backbone)]
        self._pool, self._head = backbone.pool, head
        self.confusion = torch.zeros(classes, head.num_classes, dtype=torch.int64)

    def update(self, captured: Mapping[Point, Tensor], labels: Tensor | None) -> None:
        """Take in one batch."""
        assert labels is not None
        read = self._head(self._pool(captured[self.points[0]])).argmax(1).cpu()
        self.confusion.index_put_((labels.cpu(), read), torch.ones((), dtype=torch.int64), accumulate=True)


def _batches(
    data: ImageDataset, model: Model, size: int, progress: Callable[[int, int], None] | None
) -> Iterator[tuple[Tensor, Tensor]]:
    parameter = next(model.classifier.parameters())
    normalisation = model.preprocessing.normalisation
    for rows in torch.arange(len(data)).split(size):
        images, labels = data.batch(rows)
        yield normalisation.normalise(images.to(parameter.device), parameter.dtype), labels
        if progress is not None:
            progress(int(rows[-1]) + 1, len(data))


def _by_output(gaussians: ClassGaussians, outputs: Sequence[int]) -> ClassGaussians:
    """Gaussians of the classes of the images -> of the head's outputs."""
    labels = [outputs[label] for label in gaussians.labels]
    order = sorted(range(len(labels)), key=labels.__getitem__)
    rows = torch.tensor(order)
    return ClassGaussians(
        tuple(labels[i] for i in order),
        tuple(gaussians.counts[i] for i in order),
        gaussians.mean[rows],
        gaussians.std[rows],
    )
