"""A memory as named tensors and JSON, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from remix.laplace import Dct2, LaplaceCovariance, LaplaceNormal
from remix.networks.hooks import Point
from remix.networks.views import as_view
from remix.statistics.class_gaussians import ClassGaussians
from remix.statistics.layers import LayerStatistics
from remix.statistics.records import ClassRecord, TaskRecord
from remix.statistics.selectors import Selectors

__all__ = ["Parts", "from_tensors", "tensors_of_layer", "to_tensors"]

Parts = tuple[
    dict[str, LayerStatistics],
    ClassGaussians | None,
    Selectors | None,
    tuple[ClassRecord, ...],
    tuple[TaskRecord, ...],
]


def tensors_of_layer(layer: LayerStatistics) -> dict[str, dict[str, Tensor]]:
    """What is stored of a layer: by kind, tensors by name."""
    kinds = {"moments": {"mean": layer.mean, "variance": layer.variance}}
    if layer.normal is not None:
        kinds["Laplace covariance"] = {"loc": layer.normal.loc, **layer.normal.covariance.tensors()}
    if layer.covariance is not None:
        kinds["dense covariance"] = {"covariance": layer.covariance}
    return kinds


def to_tensors(
    layers: Mapping[str, LayerStatistics],
    gaussians: ClassGaussians | None,
    selectors: Selectors | None,
    classes: Sequence[ClassRecord],
    tasks: Sequence[TaskRecord],
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The parts of a memory as tensors by name and plain JSON that describes them."""
    tensors: dict[str, Tensor] = {}
    for key, layer in layers.items():
        for part in tensors_of_layer(layer).values():
            tensors |= {f"layers/{key}/{name}": tensor for name, tensor in part.items()}
    content: dict[str, Any] = {
        "layers": [_layer_header(layer) for layer in layers.values()],
        "classes": [[record.name, record.images] for record in classes],
        "tasks": [[list(task.labels), task.images] for task in tasks],
    }
    if gaussians is not None:
        content["gaussians"] = {"labels": list(gaussians.labels), "counts": list(gaussians.counts)}
        tensors |= {"gaussians/mean": gaussians.mean, "gaussians/std": gaussians.std}
        if gaussians.correlation is not None:
            content["gaussians"]["correlated"] = True
            tensors["gaussians/correlation"] = gaussians.correlation
    if selectors is not None:
        content["selectors"] = {"labels": list(selectors.labels)}
        tensors |= {f"selectors/{name}": tensor for name, tensor in selectors.tensors().items()}
    return tensors, content


def from_tensors(tensors: Mapping[str, Tensor], content: Any) -> Parts:
    """The inverse of `to_tensors`; every part is checked as if it were made anew.

    Raises:
        ValueError: if they do not make a memory, or hold more than one.

    """
    try:
        return _parse(_Taken(dict(tensors)), content)
    except KeyError as error:
        raise ValueError(f"{error.args[0]!r} is missing") from error
    # RuntimeError: a dtype in which torch cannot compute.
    except (TypeError, IndexError, AttributeError, OverflowError, RuntimeError) as error:
        raise ValueError(str(error).partition("\n")[0]) from error


def _parse(tensors: _Taken, content: Any) -> Parts:
    layers = [_layer(entry, tensors) for entry in content["layers"]]
    gaussians = selectors = None
    if "gaussians" in content:
        entry = content["gaussians"]
        mean, std = tensors.pop("gaussians/mean"), tensors.pop("gaussians/std")
        correlation = tensors.pop("gaussians/correlation") if entry.get("correlated") else None
        gaussians = ClassGaussians(_integers(entry["labels"]), _integers(entry["counts"]), mean, std, correlation)
    if "selectors" in content:
        names = ("weight", "bias", "scale", "shift", "mean", "variance")
        parts = {name: tensors.pop(f"selectors/{name}") for name in names}
        selectors = Selectors(_integers(content["selectors"]["labels"]), **parts)
    classes = tuple(ClassRecord(name, images) for name, images in content["classes"])
    tasks = tuple(TaskRecord(_integers(labels), images) for labels, images in content["tasks"])
    tensors.require_empty()
    return {layer.key: layer for layer in layers}, gaussians, selectors, classes, tasks


def _layer_header(layer: LayerStatistics) -> dict[str, Any]:
    header: dict[str, Any] = {
        "point": str(layer.point),
        "view": layer.view.name,
        "shape": list(layer.shape),
        "images": layer.images,
        "kinds": list(layer.kinds),
    }
    if layer.normal is not None and layer.normal.basis is not None:
        if not isinstance(layer.normal.basis, Dct2):
            raise TypeError(f"the basis of '{layer.key}' cannot be saved: {type(layer.normal.basis).__name__}")
        header["dct"] = list(layer.normal.basis.layout)
    return header


def _layer(header: Any, tensors: _Taken) -> LayerStatistics:
    point, view, shape = Point.parse(header["point"]), as_view(header["view"]), _integers(header["shape"])
    prefix = f"layers/{point}:{view.name}"
    normal = covariance = None
    if "laplace" in header["kinds"]:
        vectors = {name: tensors.pop(f"{prefix}/{name}") for name in ("loc", "diag", "weight", "coord")}
        channels, height, width = _integers(header["dct"]) if "dct" in header else (0, 0, 0)
        basis = Dct2((channels, height, width)) if "dct" in header else None
        normal = LaplaceNormal(vectors.pop("loc"), LaplaceCovariance(**vectors, validate_args=True), basis, True)
    if "dense" in header["kinds"]:
        covariance = tensors.pop(f"{prefix}/covariance")
    mean, variance = tensors.pop(f"{prefix}/mean"), tensors.pop(f"{prefix}/variance")
    return LayerStatistics(point, view, shape, _integers([header["images"]])[0], mean, variance, normal, covariance)


def _integers(values: Any) -> tuple[int, ...]:
    if not isinstance(values, list) or any(type(value) is not int for value in values):
        raise ValueError(f"expected a list of whole numbers, got {str(values)[:60]}")
    return tuple(values)


class _Taken:
    """Tensors by name, each taken once: what nobody takes has no place in a memory."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self._tensors = tensors

    def pop(self, name: str) -> Tensor:
        if name not in self._tensors:
            raise ValueError(f"the tensor {name!r} is missing")
        return self._tensors.pop(name)

    def require_empty(self) -> None:
        if self._tensors:
            name, tensor = next(iter(self._tensors.items()))
            raise ValueError(f"it holds {name!r} of shape {tuple(tensor.shape)}, which no memory holds")
