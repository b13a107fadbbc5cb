"""Everything that is kept between tasks. Never an image."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from remix.networks import Classifier
from remix.statistics.class_gaussians import ClassGaussians
from remix.statistics.layers import Layers, LayerStatistics
from remix.statistics.records import ClassRecord, TaskRecord
from remix.statistics.selectors import Selectors
from remix.statistics.statistic import Statistic, StoredItem, Tensors, integers, statistic_classes
from remix.statistics.storage import DamagedFileError, read_file, write_file

__all__ = ["KIND", "VERSION", "Memory"]

KIND, VERSION = "memory", 1  # of the file


class Memory:
    """What a learner may keep between tasks, and nothing else: statistics of registered types, and names.

    None of these types can hold a batch of images: statistics are vectors and matrices over coordinates, and a tensor
    by itself is refused everywhere. ``layers``, ``gaussians`` and ``selectors`` are short for those statistics.

    Attributes:
        classes: every class learned, in order: the label is the place.
        tasks: what was learned when.

    """

    __slots__ = ("_classes", "_statistics", "_tasks")

    def __init__(self) -> None:
        self._statistics: dict[str, Statistic] = {}
        self._classes: tuple[ClassRecord, ...] = ()
        self._tasks: tuple[TaskRecord, ...] = ()

    # --- statistics ---

    def keep(self, statistic: Statistic) -> None:
        """Keep a statistic in place of the one of its name. Raises TypeError for what is of no registered type."""
        if type(statistic) not in statistic_classes().values():
            raise TypeError(f"a memory keeps registered statistics, got {_kind(statistic)}")
        self._statistics[statistic.name] = statistic

    def get(self, name: str) -> Any:
        """The statistic of a name, or None."""
        return self._statistics.get(name)

    def drop(self, name: str) -> None:
        """Forget a statistic, if it is there."""
        self._statistics.pop(name, None)

    @property
    def layers(self) -> Layers:
        """Statistics of activations by key; assign a whole mapping to change it."""
        return self._statistics.get(Layers.name) or Layers()  # type: ignore[return-value]

    @layers.setter
    def layers(self, layers: Mapping[str, LayerStatistics]) -> None:
        if not isinstance(layers, Mapping):
            raise TypeError(f"layers must map keys to LayerStatistics, got {_kind(layers)}")
        self.keep(Layers(layers))

    @property
    def gaussians(self) -> ClassGaussians | None:
        """Class Gaussians of pooled features."""
        return self.get(ClassGaussians.name)

    @gaussians.setter
    def gaussians(self, gaussians: ClassGaussians | None) -> None:
        self._set(ClassGaussians, gaussians)

    @property
    def selectors(self) -> Selectors | None:
        """Contrastive selectors."""
        return self.get(Selectors.name)

    @selectors.setter
    def selectors(self, selectors: Selectors | None) -> None:
        self._set(Selectors, selectors)

    def _set(self, kind: type[Statistic], statistic: Statistic | None) -> None:
        if statistic is None:
            self.drop(kind.name)
        elif isinstance(statistic, kind):
            self.keep(statistic)
        else:
            raise TypeError(f"{kind.name} must be {kind.__name__} or None, got {_kind(statistic)}")

    # --- what was learned ---

    @property
    def classes(self) -> tuple[ClassRecord, ...]:
        """Every class learned, by label."""
        return self._classes

    @classes.setter
    def classes(self, classes: tuple[ClassRecord, ...]) -> None:
        names = Counter(record.name for record in _records(classes, ClassRecord))
        if len(names) < len(classes):
            raise ValueError(f"class names must differ, but {names.most_common(1)[0][0]!r} is there twice")
        self._classes = classes

    @property
    def tasks(self) -> tuple[TaskRecord, ...]:
        """What was learned when."""
        return self._tasks

    @tasks.setter
    def tasks(self, tasks: tuple[TaskRecord, ...]) -> None:
        self._tasks = _records(tasks, TaskRecord)

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

    def without(self, labels: Collection[int], classes: int | None = None) -> tuple[Memory, list[str]]:
        """Without these classes and what is their own; the others move up. And what stays in it of them, in words.

        Args:
            labels: of the classes.
            classes: how many there are, if it has no record of them.

        """
        rest, stays = Memory(), []
        rest.classes, rest.tasks = self.classes, self.tasks
        for statistic in self._statistics.values():
            kept, shared = statistic.without(labels)
            if kept is not None:
                rest.keep(kept)
            stays += [shared] if shared else []
        others = [label for label in range(classes or len(self.classes)) if label not in labels]
        names = [self.classes[label].name for label in others] if self.classes else []
        return rest.relabelled({old: new for new, old in enumerate(others)}, names), stays

    def relabelled(self, labels: Mapping[int, int], names: Sequence[str]) -> Memory:
        """With other labels and names; classes that get the same label become one.

        Args:
            labels: the new label of every class that statistics are of; the records of others are left out.
            names: by new label; none if it has no record of its classes.

        Raises:
            ValueError: for two classes that become one, where a statistic of theirs cannot.

        """
        found, images, told = Memory(), [0] * len(names), set[int]()
        for statistic in self._statistics.values():
            found.keep(statistic.relabelled(labels))
        for old, new in labels.items() if self.classes else ():
            images[new] += self.classes[old].images
        found.classes = tuple(map(ClassRecord, names, images))
        for task in self.tasks:
            mine = [old for old in task.labels if old in labels and labels[old] not in told]
            count = task.images if len(mine) == len(task.labels) else sum(self.classes[old].images for old in mine)
            here = tuple(dict.fromkeys(labels[old] for old in mine))
            told |= set(here)
            found.tasks += (TaskRecord(here, count),) if here else ()
        return found

    # --- use ---

    def check(self, network: Classifier) -> None:
        """Whether all of it is of this network and its classes. Raises ValueError if not."""
        for statistic in self._statistics.values():
            statistic.check(network)

    def to(self, device: torch.device | str) -> Memory:
        """The same memory on another device."""
        moved = Memory()
        moved._statistics = {name: statistic.to(device) for name, statistic in self._statistics.items()}
        moved.classes, moved.tasks = self.classes, self.tasks
        return moved

    def describe(self) -> list[StoredItem]:
        """Everything that is stored, by kind, with its size in bytes."""
        rows = [item for statistic in self._statistics.values() for item in statistic.stored()]
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
        statistics = {Layers.name: self.layers} | self._statistics
        tensors = {f"{name}/{key}": t for name, one in statistics.items() for key, t in one.tensors().items()}
        content: dict[str, Any] = {name: one.describe() for name, one in statistics.items()}
        content["classes"] = [[record.name, record.images] for record in self.classes]
        content["tasks"] = [[list(task.labels), task.images] for task in self.tasks]
        return tensors, content

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], content: Any) -> Memory:
        """The inverse of `to_tensors`.

        Raises:
            ValueError: if they do not make a memory, or hold more than one: no tensor may be left over.

        """
        try:
            return cls._parsed(Tensors(tensors), content)
        except KeyError as error:
            raise ValueError(f"{error.args[0]!r} is missing") from error
        # RuntimeError: a dtype in which torch cannot compute.
        except (TypeError, IndexError, AttributeError, OverflowError, RuntimeError) as error:
            raise ValueError(str(error).partition("\n")[0]) from error

    @classmethod
    def _parsed(cls, tensors: Tensors, content: Any) -> Memory:
        memory = cls()
        for name in (Layers.name, *(name for name in content if name not in (Layers.name, "classes", "tasks"))):
            if name not in statistic_classes():
                raise ValueError(f"it keeps {str(name)[:60]!r}, which is no statistic that is known here")
            memory.keep(statistic_classes()[name].from_tensors(tensors.under(f"{name}/"), content[name]))
        memory.classes = tuple(ClassRecord(name, images) for name, images in content["classes"])
        memory.tasks = tuple(TaskRecord(integers(labels), images) for labels, images in content["tasks"])
        tensors.require_empty()
        return memory


def _records(value: Any, kind: type) -> Any:
    if not isinstance(value, tuple) or not all(isinstance(item, kind) for item in value):
        raise TypeError(f"a memory keeps a tuple of {kind.__name__} there, got {_kind(value)}")
    return value


def _kind(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}: a memory keeps statistics, never data"
    return type(value).__name__
