"""Everything that a model file holds, by kind and bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from remix.learning import LearnStep, Model, load_model
from remix.learning.model_file import KIND, OLDEST, VERSION
from remix.methods import method_class
from remix.statistics import ClassSums, FileHeader, ScatterKind, read_header

__all__ = [
    "KINDS", "ClassEntry", "Inspection", "KindTotal", "StoredPart", "as_plain", "inspect_file", "single_images",
]  # fmt: skip

KINDS = {
    "weights of the backbone": "learned by training",
    "weights of the head": "learned by training, or solved from sums: a row per class, or a matrix",
    "random projection": "of features, drawn once",
    "BatchNorm statistics": "mean and variance of each channel over training images",
    "moments": "mean and variance of a layer's input over images",
    "Laplace covariance": "how the coordinates of a layer's input vary together: four numbers per coordinate",
    "dense covariance": "how they vary together, as a full matrix",
    "prototypes": "mean feature of each class, by which the head finds the task",
    "class sums": "mean of the features of each class, and how they vary about it",
    "class Gaussians": "mean, standard deviation and, if kept, correlation of the features of each class",
    "selectors": "two small layers of weights per class",
    "header": "JSON: names, counts, preprocessing, history, checksums",
}
"""Every kind of thing a file can hold, and what it is. None has an axis over images."""

_FEW = 10
_SUM_PARTS = {"mean": "class sums", "squares": "class sums", "scatter": "dense covariance"}
_LAYER_PARTS = {
    "mean": "moments",
    "variance": "moments",
    "loc": "Laplace covariance",
    "diag": "Laplace covariance",
    "weight": "Laplace covariance",
    "coord": "Laplace covariance",
    "covariance": "dense covariance",
}


@dataclass(frozen=True)
class StoredPart:
    """One tensor of the file, or its header."""

    kind: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True)
class KindTotal:
    """All of one kind."""

    kind: str
    tensors: int
    bytes: int
    shapes: tuple[tuple[int, ...], ...]
    """The different shapes, the smallest first."""


@dataclass(frozen=True)
class ClassEntry:
    """A class: from how many images it was learned, and when, as far as the file tells."""

    label: int
    name: str
    images: int | None
    learned: str | None
    method: str | None
    extended: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Inspection:
    """What a file holds. The bytes of ``parts`` add up to the size of the file.

    Attributes:
        path: the file.
        bytes: its size.
        header: what it says of itself.
        model: what it holds.
        parts: every tensor and the header.
        classes: of the model.

    """

    path: Path
    bytes: int
    header: FileHeader
    model: Model
    parts: tuple[StoredPart, ...]
    classes: tuple[ClassEntry, ...]

    def totals(self) -> list[KindTotal]:
        """By kind, in the order of `KINDS`; kinds that are not there are left out."""
        rows = []
        for kind in KINDS:
            found = [part for part in self.parts if part.kind == kind]
            if found:
                shapes = sorted({part.shape for part in found}, key=lambda shape: (len(shape), shape))
                count = 0 if kind == "header" else len(found)
                rows.append(KindTotal(kind, count, sum(part.bytes for part in found), tuple(shapes)))
        return rows

    def warnings(self) -> list[str]:
        """What should worry a person who wants to give the file away."""
        least = _least_images(self.model)
        few = [one.name for one in self.classes if one.images and min(one.images, least.get(one.label, _FEW)) < _FEW]
        told = single_images(self.model)
        if few:
            told.append(
                f"fewer than {_FEW} images of {_listed(few)}: the mean of a class of few images is close to each of "
                "them (docs/privacy.md)"
            )
        return told

    def covariances(self) -> dict[str, int]:
        """The bytes of the covariance of features in every kind that it could have; that which it has comes first."""
        sums = None if self.model.memory is None else self.model.memory.get(ClassSums.name)
        if sums is None or sums.scatter.kind == "none":
            return {}
        others: tuple[ScatterKind, ...] = ()
        if hasattr(method_class(sums.method), "covariance"):
            others = ("dense", "diagonal") if sums.own else ("dense", "laplace", "diagonal")
        return {
            kind: sum(part.scatter.bytes(kind) for part in (sums.parts if kind != "laplace" else (sums,)))
            for kind in dict.fromkeys((sums.scatter.kind, *others))
        }


def single_images(model: Model) -> list[str]:
    """A sentence about classes of which a step had one image, whose sums are the features of that image; or none."""
    single = [model.classes[label] for label, count in sorted(_least_images(model).items()) if count == 1]
    if not single:
        return []
    return [
        f"the sums of {_listed(single)} are the features of one image each, as exactly as if that were kept: ask for "
        "more with --minimum (docs/privacy.md)"
    ]


def _least_images(model: Model) -> dict[int, int]:
    """By label, the fewest images of a class that sums are kept of by themselves."""
    sums = None if model.memory is None else model.memory.get(ClassSums.name)
    least: dict[int, int] = {}
    for part in () if sums is None else sums.parts:
        for label, count in zip(part.labels, part.counts, strict=True):
            least[label] = min(count, least.get(label, count))
    return least


def inspect_file(path: str | Path) -> Inspection:
    """Open a model file and list what is in it.

    Raises:
        FileNotFoundError: if there is no such file.
        DamagedFileError: if it is no sound model file; a file with a tensor that has no place here is none.

    """
    path = Path(path)
    header = read_header(path, KIND, VERSION, OLDEST)
    model = load_model(path)
    tensors = [
        StoredPart(_kind(name), name, stored.dtype, stored.shape, stored.bytes)
        for name, stored in header.tensors.items()
    ]
    size = path.stat().st_size
    rest = size - sum(part.bytes for part in tensors)
    parts = (*tensors, StoredPart("header", "header", "JSON", (rest,), rest))
    return Inspection(path, size, header, model, parts, tuple(_classes(model)))


def as_plain(found: Inspection) -> dict[str, Any]:
    """All of it as plain JSON."""
    model = found.model
    network = model.classifier
    return {
        "file": str(found.path),
        "bytes": found.bytes,
        "format_version": found.header.version,
        "written_by_remix": str(found.header.content.get("remix", "")),
        "checksum_sha256": found.header.checksum,
        "network": {
            "backbone": model.backbone,
            "options": {key: list(one) if isinstance(one, tuple) else one for key, one in model.options.items()},
            "parameters": sum(parameter.numel() for parameter in network.parameters()),
            "blocks": [block.name for block in network.backbone.blocks()],
            "frozen_blocks": model.frozen,
            "features": network.backbone.feature_dim,
        },
        "preprocessing": model.preprocessing.to_dict(),
        "provenance": dict(model.provenance),
        "classes": [asdict(entry) for entry in found.classes],
        "history": [step.to_dict() for step in model.history],
        "kinds": {total.kind: {"tensors": total.tensors, "bytes": total.bytes} for total in found.totals()},
        "covariance_bytes": found.covariances(),
        "tensors": [asdict(part) for part in found.parts if part.kind != "header"],
        "images_stored": 0,
        "warnings": found.warnings(),
    }


def _kind(name: str) -> str:
    """Of a tensor of a file that `load_model` accepts; there are no others."""
    group, _, rest = name.partition("/")
    last = rest.rpartition(".")[2]
    if group == "network":
        if rest.startswith("head."):
            special = {"prototypes": "prototypes", "projection": "random projection"}
            return special.get(last, "weights of the head")
        running = last in ("running_mean", "running_var", "num_batches_tracked")
        return "BatchNorm statistics" if running else "weights of the backbone"
    part, _, key = rest.partition("/")
    if part == "layers":
        return _LAYER_PARTS[key.rpartition("/")[2].rpartition(".")[2]]  # laplace-paper.diag is a diag
    if part == "sums":
        return _SUM_PARTS.get(key.rpartition("/")[2], "Laplace covariance")  # 1/mean is that of the second step
    return {"gaussians": "class Gaussians", "selectors": "selectors"}[part]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")


def _classes(model: Model) -> Iterable[ClassEntry]:
    first: dict[str, tuple[LearnStep, int]] = {}
    later: dict[str, list[str]] = {}
    for step in model.history:
        known = set(step.extended)
        for name, count in zip(step.classes, step.images, strict=True):
            if name in known:
                later.setdefault(name, []).append(step.date)
            else:
                first[name] = step, count
    records = () if model.memory is None else model.memory.classes
    tasks = () if model.memory is None else model.memory.tasks
    task_of = {label: number for number, task in enumerate(tasks, 1) for label in task.labels}
    for label, name in enumerate(model.classes):
        images = records[label].images if label < len(records) else None
        learned, method = (f"task {task_of[label]}" if label in task_of else None), None
        if name in first:
            step, count = first[name]
            learned, method = step.date, step.method
            images = count if images is None else images
        yield ClassEntry(label, name, images, learned, method, tuple(later.get(name, ())))
