"""`TaskStream`: the classes of a data set, arriving task after task."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

from remix.data.class_orders import class_order
from remix.data.errors import DataError
from remix.data.images import ImageDataset
from remix.data.normalisation import Normalisation
from remix.data.splits import Splits, hold_out

__all__ = ["Task", "TaskStream", "task_sizes"]


@dataclass(frozen=True)
class Task:
    """The classes that arrive together. It holds the images of these classes and of no others.

    Attributes:
        index: 0 for the first task.
        train, test: the images; labels are positions in the class order, ``train.classes`` names all of the stream.
        labels: labels of this task's classes, a range.
        classes: their names.
        original: their labels in the data set.

    """

    index: int
    train: ImageDataset
    test: ImageDataset
    labels: range
    classes: tuple[str, ...]
    original: tuple[int, ...]


class _Division(TypedDict):
    tasks: int
    order: str
    first: int | None
    classes: int | None


class TaskStream(Sequence[Task]):
    """A data set as a sequence of tasks: ``stream[t]``, ``len(stream)``, ``for task in stream``.

    The class at position k of the order has label k, so task t holds a range of labels.

    Args:
        splits: the data set.
        tasks: how many.
        order: "A", "B", "C", "D", "natural" or "seed:N"; see :func:`remix.data.class_orders.class_order`.
        first: number of classes of the first task, if it is to differ from the others.
        classes: use only so many classes, the first of the order.

    Attributes:
        order: label in the data set of every class, by position.
        classes: name of every class, by position.
        sizes: number of classes of each task.

    Raises:
        DataError: for an order that does not fit, or classes that do not divide into tasks; says what to type.

    """

    def __init__(
        self,
        splits: Splits,
        tasks: int = 5,
        order: str = "natural",
        first: int | None = None,
        classes: int | None = None,
    ) -> None:
        self._division = _Division(tasks=tasks, order=order, first=first, classes=classes)
        found = class_order(order, len(splits.classes))
        if classes is not None and not 1 <= classes <= len(found):
            raise DataError(f"classes must be within 1..{len(found)} for {splits.name}, got {classes}")
        self.order = found[:classes]
        self.sizes = task_sizes(len(self.order), tasks, first)
        self.classes = tuple(splits.classes[label] for label in self.order)
        self.splits = splits
        self._train = splits.train.relabelled(self.order)
        self._test = splits.test.relabelled(self.order)

    @property
    def name(self) -> str:
        """Of the data set."""
        return self.splits.name

    @property
    def normalisation(self) -> Normalisation:
        """Of the data set."""
        return self.splits.normalisation

    def __len__(self) -> int:
        return len(self.sizes)

    def __iter__(self) -> Iterator[Task]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: int) -> Task:  # type: ignore[override]  # a slice of tasks would hold all images
        labels = self.labels(index)
        return Task(
            index=range(len(self))[index],
            train=self._train.of_classes(labels),
            test=self.test(index),
            labels=labels,
            classes=self.classes[labels.start : labels.stop],
            original=self.order[labels.start : labels.stop],
        )

    def labels(self, index: int) -> range:
        """Labels of the classes of task ``index``. Raises IndexError if there is no such task."""
        position = range(len(self))[operator.index(index)]
        start = sum(self.sizes[:position])
        return range(start, start + self.sizes[position])

    def test(self, index: int) -> ImageDataset:
        """Test images of task ``index`` alone."""
        return self._test.of_classes(self.labels(index))

    def seen(self, index: int) -> Task:
        """Task ``index`` with the training images of all classes up to it: for the upper bound of joint training."""
        task = self[index]
        labels = range(task.labels.stop)
        return replace(
            task,
            train=self._train.of_classes(labels),
            labels=labels,
            classes=self.classes[: labels.stop],
            original=self.order[: labels.stop],
        )

    def with_validation(self, fraction: float = 0.1, seed: int = 0) -> TaskStream:
        """The same stream with a part of the training images in place of the test images, for choosing settings.

        The part is the same fraction of every class and does not depend on the order of classes.
        """
        train, held = hold_out(self.splits.train, fraction, seed)
        return TaskStream(replace(self.splits, train=train, test=held, validation=None), **self._division)


def task_sizes(classes: int, tasks: int, first: int | None) -> tuple[int, ...]:
    """Number of classes of each task."""
    if not 1 <= tasks <= classes:
        raise DataError(f"{classes} classes make 1 to {classes} tasks, got tasks={tasks}")
    if first is None:
        if classes % tasks:
            fitting = [n for n in range(1, classes + 1) if classes % n == 0]
            near = sorted(sorted(fitting, key=lambda n: abs(n - tasks))[:3])
            start = classes - (tasks - 1) * (classes // tasks)
            raise DataError(
                f"{classes} classes do not divide into {tasks} equal tasks; type tasks={' or '.join(map(str, near))}, "
                f"or first={start} for a larger first task"
            )
        return (classes // tasks,) * tasks
    rest, later = classes - first, tasks - 1
    if first < 1 or (rest != 0 if later == 0 else rest < later or rest % later):
        most = classes - later * (rest // later) if later and rest >= later else classes - later
        raise DataError(
            f"a first task of {first} leaves {rest} of {classes} classes, which do not divide into {later} equal "
            f"tasks; type first={most}"
        )
    return (first,) + (rest // later,) * later if later else (first,)
