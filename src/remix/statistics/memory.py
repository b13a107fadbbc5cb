"""Everything that is kept between tasks. Never an image."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from remix.statistics.class_gaussians import ClassGaussians
from remix.statistics.layers import LayerStatistics
from remix.statistics.memory_tensors import from_tensors, tensors_of_layer, to_tensors
from remix.statistics.network_check import check_layers
from remix.statistics.records import ClassRecord, TaskRecord
from remix.statistics.selectors import Selectors
from remix.statistics.storage import DamagedFileError, read_file, write_file

__all__ = ["KIND", "VERSION", "Memory", "StoredItem"]

KIND, VERSION = "memory", 1  # of the file


class StoredItem(NamedTuple):
    """One row of `Memory.describe`."""

    kind: str
    name: str
    detail: str
    bytes: int


class Memory:
    """What a learner may keep between tasks, and nothing else.

    Statistics, small networks and names. Every attribute takes one type only, none of which can hold a batch of images:
    statistics are vectors and matrices over coordinates, and a tensor by itself is refused everywhere.

    Attributes:
        layers: statistics of activations by key (read only; assign a whole mapping to change it).
        gaussians: class Gaussians of pooled features, or None.
        selectors: contrastive selectors, or None.
        classes: every class learned, in order: the label is the place.
        tasks: what was learned when.

    """

    __slots__ = ("classes", "gaussians", "layers", "selectors", "tasks")

    layers: Mapping[str, LayerStatistics]
    gaussians: ClassGaussians | None
    selectors: Selectors | None
    classes: tuple[ClassRecord, ...]
    tasks: tuple[TaskRecord, ...]

    def __init__(self) -> None:
        self.layers = {}
        self.gaussians = None
        self.selectors = None
        self.classes = ()
        self.tasks = ()

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in Memory.__slots__:
            raise AttributeError(f"a memory has no place for {name!r}; it keeps {', '.join(Memory.__slots__)}")
        object.__setattr__(self, name, _checked(name, value))

    # --- what was learned ---

    def record_task(self, classes: Sequence[tuple[str, int]]) -> TaskRecord:
        """Add the classes of a new task, as pairs of name and number of training images.

        Raises:
            ValueError: for no classes, a name that is empty or known already, or a number below 1.

        """
        if not classes:
            raise ValueError("a task must have at least one class")
        records = tuple(ClassRecord(name, images) for name, images in classes)
        first = len(self.classes)
        self.classes = (*self.classes, *records)
        labels = tuple(range(first, len(self.classes)))
        task = TaskRecord(labels, sum(record.images for record in records))
        self.tasks = (*self.tasks, task)
        return task

    def labels(self, names: Sequence[str]) -> list[int]:
        """The labels of classes by name.

        Raises:
            ValueError: for an unknown name; the message lists the known ones.

        """
        known = {record.name: label for label, record in enumerate(self.classes)}
        for name in names:
            if name not in known:
                raise ValueError(f"unknown class {name!r}; known are: {', '.join(known) or 'none yet'}")
        return [known[name] for name in names]

    # --- use ---

    def check_network(self, network: nn.Module, input_shape: tuple[int, int, int] | None = None) -> None:
        """Check that the layer statistics fit a network (see `check_layers`). Raises ValueError if not."""
        check_layers(self.layers, network, input_shape)

    def to(self, device: torch.device | str) -> Memory:
        """The same memory on another device."""
        moved = Memory()
        moved.layers = {key: layer.to(device) for key, layer in self.layers.items()}
        moved.gaussians = None if self.gaussians is None else self.gaussians.to(device)
        moved.selectors = None if self.selectors is None else self.selectors.to(device)
        moved.classes, moved.tasks = self.classes, self.tasks
        return moved

    def describe(self) -> list[StoredItem]:
        """Everything that is stored, by kind, with its size in bytes."""
        rows = []
        for key, layer in self.layers.items():
            for kind, tensors in tensors_of_layer(layer).items():
                size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
                parts = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in tensors.items())
                rows.append(StoredItem(kind, key, parts, size))
        if self.gaussians is not None:
            held = [self.gaussians.mean, self.gaussians.std]
            words = "mean and std"
            if self.gaussians.correlation is not None:
                held, words = [*held, self.gaussians.correlation], "mean, std and correlation"
            size = sum(tensor.numel() * tensor.element_size() for tensor in held)
            detail = f"{words} of {self.gaussians.dim} features of {len(self.gaussians)} classes"
            rows.append(StoredItem("class Gaussians", "pooled features", detail, size))
        if self.selectors is not None:
            size = sum(tensor.numel() * tensor.element_size() for tensor in self.selectors.tensors().values())
            detail = f"a network of 2 layers of {self.selectors.dim} for each of {len(self.selectors)} classes"
            rows.append(StoredItem("selectors", "pooled features", detail, size))
        if self.classes:
            size = sum(len(record.name.encode()) + 8 for record in self.classes)
            detail = f"names and image counts of {len(self.classes)} classes in {len(self.tasks)} tasks"
            rows.append(StoredItem("names", "classes and tasks", detail, size))
        return rows

    # --- files ---

    def save(self, path: str | Path) -> None:
        """Write one safetensors file with a JSON header, atomically. Raises OSError if it cannot be written."""
        write_file(path, KIND, VERSION, *self.to_tensors())

    @classmethod
    def load(cls, path: str | Path) -> Memory:
        """Read a file of `save`.

        Raises:
            FileNotFoundError: if there is no such file.
            DamagedFileError: in one sentence, if the file is damaged, foreign, of another version, or holds what a
                memory does not hold.

        """
        tensors, content = read_file(path, KIND, VERSION)
        try:
            return cls.from_tensors(tensors, content)
        except ValueError as error:
            raise DamagedFileError(f"{path} is not a valid memory: {error}") from error

    def to_tensors(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Named tensors and plain JSON, to be saved as part of a larger file."""
        return to_tensors(self.layers, self.gaussians, self.selectors, self.classes, self.tasks)

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], content: Any) -> Memory:
        """The inverse of `to_tensors`.

        Raises:
            ValueError: if they do not make a memory, or hold more than one: no tensor may be left over.

        """
        memory = cls()
        memory.layers, memory.gaussians, memory.selectors, memory.classes, memory.tasks = from_tensors(tensors, content)
        return memory


def _checked(name: str, value: Any) -> Any:
    """The value, if it has the type of the attribute; containers come back unchangeable."""
    if name == "layers":
        if not isinstance(value, Mapping) or not all(isinstance(layer, LayerStatistics) for layer in value.values()):
            raise TypeError(f"layers must map keys to LayerStatistics, got {_kind(value)}")
        for key, layer in value.items():
            if key != layer.key:
                raise ValueError(f"layers must be stored by their own keys: {key!r} holds '{layer.key}'")
        return MappingProxyType(dict(value))
    if name in ("classes", "tasks"):
        record = ClassRecord if name == "classes" else TaskRecord
        if not isinstance(value, tuple) or not all(isinstance(item, record) for item in value):
            raise TypeError(f"{name} must be a tuple of {record.__name__}, got {_kind(value)}")
        names = [item.name for item in value if isinstance(item, ClassRecord)]
        if len(set(names)) < len(names):
            twice = Counter(names).most_common(1)[0][0]
            raise ValueError(f"class names must differ, but {twice!r} is there twice")
        return value
    expected = ClassGaussians if name == "gaussians" else Selectors
    if value is not None and not isinstance(value, expected):
        raise TypeError(f"{name} must be {expected.__name__} or None, got {_kind(value)}")
    return value


def _kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}: a memory keeps statistics, never data"
    return type(value).__name__
