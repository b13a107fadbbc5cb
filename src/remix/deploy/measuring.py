"""Measuring the statistics of a network on labelled images, for a model that can dream.

On the way it is found which output of the head means which class, from what the network says about the images.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from remix.data import ImageDataset, Preprocessing, Splits, load
from remix.deploy.evaluation import confusion_counts
from remix.learning import Model
from remix.networks import Backbone
from remix.networks.probe import block_shapes, evaluating, probe_images
from remix.statistics import (
    ClassGaussians,
    ClassMeter,
    Hooks,
    LayerMeter,
    Memory,
    Meter,
    Point,
    as_view,
    feature_point,
    meters_by_view,
    run_meters,
)

__all__ = [
    "KINDS",
    "HeadOrder",
    "MeasuredModel",
    "check_request",
    "map_bytes",
    "map_points",
    "measure_model",
    "order_of_names",
    "read_folder",
    "settle_order",
]

VIEWS = ("channels", "map", "token-channels", "patches")
KINDS = ("laplace", "laplace-paper", "dense")
_CLEAR = 0.5  # of a class's images must be read as one output for that output to be its


@dataclass(frozen=True)
class HeadOrder:
    """The meaning of a head's outputs.

    Attributes:
        outputs: by class of the images, the output that stands for it.
        names: by output.
        right: images that are read as their class.
        notes: what a person should know.
        warnings: what a person should look into.

    """

    outputs: tuple[int, ...]
    names: tuple[str, ...]
    right: int
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class MeasuredModel:
    """A model with its memory, what was found about its head, and the number of images seen."""

    model: Model
    order: HeadOrder
    images: int


def check_request(kinds: Sequence[str], views: Sequence[str], maps: Sequence[str] | None = None) -> None:
    """Check names of kinds and views. Raises ValueError listing the known ones."""
    for option, names, known in (("--kinds", kinds, KINDS), ("--views", views, VIEWS)):
        for name in names:
            if name not in known:
                raise ValueError(f"{option} knows {', '.join(known)}, got {name!r}")
    if not views:
        raise ValueError(f"--views needs at least one of: {', '.join(VIEWS)}")
    placed = [view for view in views if view != "channels"]
    if maps is not None and not placed:
        raise ValueError("--maps goes with --views map, token-channels or patches")
    for view in placed:
        if as_view(view).per_image and not _of_maps(kinds):
            raise ValueError(
                f"of maps only Laplace covariances are kept: add laplace to --kinds, or leave --views {view} out"
            )


def _of_maps(kinds: Sequence[str]) -> list[str]:
    return [kind for kind in kinds if kind != "dense"]


def read_folder(folder: str | Path, preprocessing: Preprocessing, classes: Sequence[str] | None = None) -> Splits:
    """The images of a folder as a network takes them: all are for training, unless the folder has parts.

    Args:
        folder: with a sub-folder for every class.
        preprocessing: size and channels.
        classes: only these, in this order; all by default.

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
        resample=preprocessing.resample,
    )
    if classes is None:
        return splits
    order = [splits.train.label_of(name) for name in classes]
    return replace(splits, train=splits.train.relabelled(order), test=splits.test.relabelled(order), validation=None)


def measure_model(
    bare: Model,
    data: ImageDataset,
    names: Sequence[str] | None = None,
    *,
    kinds: Sequence[str] = ("laplace",),
    views: Sequence[str] = ("channels",),
    maps: Sequence[str] | None = None,
    transform: Literal["auto", "dct"] | None = "auto",
    rows: int | None = None,
    batch: int = 32,
    progress: Callable[[int, int], None] | None = None,
) -> MeasuredModel:
    """Measure, in one pass: BatchNorm inputs with covariances, the inputs of blocks, and the classes' Gaussians.

    Args:
        bare: a model; its class names do not count.
        data: labelled images.
        names: of the head's outputs in their order, if a person knows them; see `settle_order`.
        kinds: of covariances, besides variances.
        views: "channels", and others of `VIEWS`; maps and patches have Laplace covariances only.
        maps: of what maps are kept, see `map_points`.
        transform: of maps before the Laplace covariance, see `LayerMeter`.
        rows: most maps kept while they are measured, see `LayerMeter`.
        batch: images at once.
        progress: called with the number of images seen, and of all.

    Raises:
        ValueError: for classes that the head does not have, and for what `run_meters` refuses.

    """
    check_request(kinds, views, maps)
    order_of_names(data.classes, names, bare.classifier.head.num_classes)
    backbone = bare.classifier.backbone
    watched = backbone.watched() if "channels" in views else []
    layers = meters_by_view(watched, kinds)
    layers += meters_by_view(place for place in backbone.block_inputs() if place not in watched)
    for view in (one for one in views if one != "channels"):
        of = _of_maps(kinds) if as_view(view).per_image else kinds
        layers.append(LayerMeter(map_points(bare, maps), view, of, transform=transform, rows=rows))
    classes = ClassMeter(feature_point(backbone), backbone.pool)
    votes = _Votes(backbone, bare.classifier.head)
    batches = _batches(data, bare, batch, progress)
    seen = run_meters(backbone, batches, [*layers, classes, votes])
    order = settle_order(data.classes, names, votes.confusion(len(data.classes)))
    memory = Memory()
    memory.layers = {key: layer for meter in layers for key, layer in meter.statistics().items()}
    memory.gaussians = _by_output(classes.gaussians(), order.outputs)
    counts = dict(zip(order.outputs, data.counts().values(), strict=True))
    if all(counts.get(output) for output in range(len(order.names))):
        memory.record_task([(name, counts[output]) for output, name in enumerate(order.names)])
    provenance = {**bare.provenance, "measured on": f"{seen} images of {len(data.classes)} classes"}
    return MeasuredModel(replace(bare, classes=order.names, memory=memory, provenance=provenance), order, seen)


def map_points(model: Model, maps: Sequence[str] | None = None) -> list[Point]:
    """The places whose whole maps are kept.

    Args:
        model: its network.
        maps: names of blocks, whose outputs are meant; ``["stages"]`` for the last block of every size of maps, as in
            the paper, or of every quarter of a transformer; None for what BatchNorm layers receive (the inputs of
            blocks where there are none).

    Raises:
        ValueError: for a name that is no block; the message lists them.

    """
    backbone = model.classifier.backbone
    if maps is None:
        return [point for point, _ in backbone.watched()]
    names = [block.name for block in backbone.blocks()]
    if list(maps) == ["stages"]:  # the stem is none if its size goes on
        shapes = block_shapes(backbone)[1:]
        ends = {shape[1:]: name for name, shape in zip(names, shapes, strict=True) if len(shape) == 3}
        if same := [name for name, shape in zip(names, shapes, strict=True) if len(shape) == 2]:
            ends = {(quarter, 0): same[-(-quarter * len(same) // 4) - 1] for quarter in range(1, 5)}  # tokens
        return [Point(name, "output") for name in dict.fromkeys(ends.values())]
    for name in maps:
        if name not in names:
            raise ValueError(f"--maps knows stages and the blocks {', '.join(names)}, got {name!r}")
    return [Point(name, "output") for name in maps]


def map_bytes(model: Model, maps: Sequence[str] | None = None, rows: int | None = None) -> int:
    """Most memory that measuring maps takes: of every layer ``rows``, or a thousand but at most 256 MiB, are kept."""
    backbone: Any = model.classifier.backbone
    with evaluating(backbone), Hooks(backbone, map_points(model, maps)) as hooks:
        backbone.features(probe_images(backbone, model.preprocessing.shape))
    sizes = [hooks[point][0].numel() for point in hooks]
    return sum(4 * (min(1000 * size, 1 << 26) if rows is None else rows * size) for size in sizes)


class _Votes(Meter):
    """Counts how often the images of each class are read as each output."""

    def __init__(self, backbone: Backbone, head: Any) -> None:
        self.points: list[Point] = [feature_point(backbone)]
        self._pool, self._head = backbone.pool, head
        self._counts: Counter[tuple[int, int]] = Counter()

    def update(self, captured: Mapping[Point, Tensor], labels: Tensor | None) -> None:
        """Take in one batch."""
        assert labels is not None
        logits = self._head(self._pool(captured[self.points[0]]))
        self._counts.update(confusion_counts([(logits, labels)]))

    def confusion(self, classes: int) -> Tensor:
        """(classes, outputs): how many images of a class are read as an output."""
        table = torch.zeros(classes, self._head.num_classes, dtype=torch.int64)
        for pair, images in self._counts.items():
            table[pair] = images
        return table


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


# --- which output means which class ---


def order_of_names(folders: Sequence[str], names: Sequence[str] | None, outputs: int) -> tuple[int, ...]:
    """By folder, the output that stands for it if ``names`` are the outputs in order (by default the folders' names).

    Raises:
        ValueError: if there are more folders than outputs, another number of names than outputs, or a folder that no
            name fits.

    """
    if names is None:
        if len(folders) > outputs:
            raise ValueError(
                f"there are {len(folders)} folders of images, but the head has {outputs} outputs: name the outputs in "
                "their order with --names, and leave only folders of those classes"
            )
        return tuple(range(len(folders)))
    if len(names) != outputs:
        raise ValueError(f"--names has {len(names)} names, but the head has {outputs} outputs")
    places = {name: place for place, name in enumerate(names)}
    for folder in folders:
        if folder not in places:
            close = get_close_matches(folder, names, n=1)
            hint = f" (is it {close[0]!r}?)" if close else ""
            raise ValueError(f"the folder {folder!r} is not among the --names{hint}: rename it, or correct the names")
    return tuple(places[folder] for folder in folders)


def settle_order(folders: Sequence[str], names: Sequence[str] | None, confusion: Tensor) -> HeadOrder:
    """Decide which output means which class, each output given once.

    Names that were given count. Without them the outputs are taken to follow the alphabet, unless the images say
    clearly that they follow another order: then that one is taken.

    Args:
        folders: names of the classes of the images, by label.
        names: of the outputs, as a person gave them, or None.
        confusion: (classes, outputs): how many images of a class are read as an output.

    Raises:
        ValueError: see `order_of_names`.

    """
    outputs = confusion.shape[1]
    total = int(confusion.sum())
    assumed = order_of_names(folders, names, outputs)
    found = tuple(map(int, linear_sum_assignment(confusion.double().numpy(), maximize=True)[1]))  # most images right
    right, best = int(_right(confusion, assumed).sum()), int(_right(confusion, found).sum())
    clear = bool((_right(confusion, found) / confusion.sum(1).clamp_min(1) > _CLEAR).all())
    if names is not None:
        warnings = []
        if clear and best - right > 0.2 * total:
            warnings.append(
                f"with these names {right} of {total} images are read right; {best} would be if the outputs meant "
                f"{', '.join(_names(folders, found, outputs))}. Are the names in the order of the outputs?"
            )
        warnings += _weak(right, total, outputs)
        return HeadOrder(assumed, tuple(names), right, (), tuple(warnings))
    if clear and best > right:
        order = _names(folders, found, outputs)
        note = (
            f"the head's outputs do not follow the alphabet of the folders ({right} of {total} right that way); the "
            f"images say their order is: {', '.join(order)}. If that is wrong, give the order with --names"
        )
        return HeadOrder(found, order, best, (note,))
    return HeadOrder(assumed, _names(folders, assumed, outputs), right, (), tuple(_weak(right, total, outputs)))


def _right(confusion: Tensor, outputs: Sequence[int]) -> Tensor:
    """Images that are read right, by class (classes,)."""
    return confusion[torch.arange(len(outputs)), torch.tensor(outputs)]


def _names(folders: Sequence[str], assigned: Sequence[int], outputs: int) -> tuple[str, ...]:
    """Outputs that no folder stands for are called by their number."""
    by_output = dict(zip(assigned, folders, strict=True))
    return tuple(by_output.get(i, f"output {i}") for i in range(outputs))


def _weak(right: int, total: int, outputs: int) -> list[str]:
    if outputs < 2 or (right > 2 * total / outputs and right > 0.3 * total):
        return []
    return [
        f"only {right} of {total} images are read right, guessing would get {total / outputs:.0f}: are weights, "
        "backbone, --names, --mean and --std those of this network, and --size one it was trained for?"
    ]
