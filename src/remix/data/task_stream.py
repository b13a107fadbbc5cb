"""`TaskStream`: the classes of a data set, arriving task after task, in published orders or others."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from remix.data.errors import DataError, MissingData
from remix.data.images import ImageDataset, Splits, hold_out
from remix.data.preprocessing import Normalisation
from remix.support.text import printable

__all__ = ["ORDERS", "Task", "TaskStream", "class_order", "task_sizes"]


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


class TaskStream(Sequence[Task]):
    """A data set as a sequence of tasks: ``stream[t]``, ``len(stream)``, ``for task in stream``.

    The class at position k of the order has label k, so task t holds a range of labels.

    Args:
        splits: the data set.
        tasks: how many.
        order: "A", "B", "C", "D", "natural" or "seed:N"; see :func:`remix.data.task_stream.class_order`.
        first: number of classes of the first task, if it is to differ from the others.
        classes: use only so many classes, the first of the order.

    Attributes:
        order: label in the data set of every class, by position.
        classes: name of every class, by position.
        sizes: number of classes of each task.

    Raises:
        DataError: for an order that does not fit, or classes that do not divide into tasks; says what to type.
        MissingData: for a class that has no training images, as where a part of a data set is there.

    """

    def __init__(
        self,
        splits: Splits,
        tasks: int = 5,
        order: str = "natural",
        first: int | None = None,
        classes: int | None = None,
    ) -> None:
        self._division = (tasks, order, first, classes)
        found = class_order(order, len(splits.classes))
        if classes is not None and not 1 <= classes <= len(found):
            raise DataError(f"classes must be within 1..{len(found)} for {splits.name}, got {classes}")
        self.order = found[:classes]
        self.sizes = task_sizes(len(self.order), tasks, first)
        self.classes = tuple(splits.classes[label] for label in self.order)
        _check_classes(splits, self.classes)
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
        return TaskStream(replace(self.splits, train=train, test=held, validation=None), *self._division)


def _check_classes(splits: Splits, wanted: Sequence[str]) -> None:
    """Raise MissingData, which names the first class without training images, unless every class has some."""
    here = splits.here
    first = next((position for position, name in enumerate(wanted) if name not in here), None)
    if first is None:
        return
    where = printable(splits.source) if splits.source else splits.name
    fewer = f", use only the first {first} of this order (classes={first})" if first else ""
    raise MissingData(
        f"the class {wanted[first]} has no training images in {where}, which has {len(here)} of the "
        f"{len(splits.classes)} classes of {splits.name}; put them there{fewer}, or choose another order"
    )


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
                f"or first={start} for a larger first task (with remix run: --tasks {near[-1]}, or --set "
                f"data.first={start})"
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


_A = """
23 8 11 7 48 13 1 91 94 54 16 63 52 41 80 2 47 87 78 66 19 6 24 10 59 30 22 29 83 37 93 81 43 99 86 28 34 88 44 14 84
70 4 20 15 21 31 76 57 67 73 50 69 25 98 46 96 0 72 35 58 92 3 95 56 90 26 40 55 89 75 71 60 42 9 82 39 18 77 68 32 79
12 85 36 17 64 27 74 45 61 38 51 62 65 33 5 53 97 49
"""
_B = """
131 181 22 172 144 92 97 187 58 93 6 70 106 68 153 168 179 199 29 46 9 142 134 88 193 110 26 32 117 112 17 39 166 13
94 138 109 147 51 101 59 188 116 5 170 99 100 167 180 146 65 1 104 43 38 184 123 171 137 162 71 44 95 174 12 7 54 152
21 47 28 176 34 2 132 118 42 189 150 14 165 41 192 45 82 128 63 57 197 160 53 75 108 135 121 159 183 67 169 50 87 69
89 196 115 19 148 96 86 11 8 60 33 173 78 4 119 105 182 127 177 30 186 40 49 178 76 157 161 73 164 151 31 74 191 27
125 198 81 20 155 114 139 36 61 56 145 48 16 83 62 85 126 0 102 23 3 140 15 195 133 113 190 141 52 163 156 80 111 90
175 143 120 84 18 25 79 37 154 136 64 158 24 185 72 35 129 55 149 91 122 77 103 124 130 66 10 107 194 98
"""

ORDERS: dict[str, tuple[int, ...]] = {
    "A": tuple(map(int, _A.split())),
    "B": tuple(map(int, _B.split())),
    "C": tuple(np.random.RandomState(1993).permutation(100).tolist()),
    "D": tuple(np.random.RandomState(1993).permutation(200).tolist()),
}
"""A: CIFAR-100 and B: Tiny-ImageNet-200 (lines of wnids.txt), as published with R-DFCIL and used for ResNets;
C: CIFAR-100 and D: CUB-200, as used for CLIP. The entry at position k is the label of the class that arrives k-th."""


def class_order(name: str, count: int) -> tuple[int, ...]:
    """Labels of ``count`` classes in the order in which they arrive.

    Args:
        name: "A", "B", "C" or "D" (see :data:`ORDERS`), "natural", or "seed:N" for a shuffle
            (numpy's legacy permutation, which is how C and D were made, with N = 1993).
        count: number of classes of the data set.

    Raises:
        DataError: for an unknown name, or a list that is for another number of classes.

    """
    if name == "natural":
        return tuple(range(count))
    if seeded := re.fullmatch(r"seed:(\d{1,9})", name):
        return tuple(np.random.RandomState(int(seeded[1])).permutation(count).tolist())
    if name not in ORDERS:
        raise DataError(f"no class order is called {name!r}; type one of {', '.join(ORDERS)}, natural, or seed:1993")
    if len(ORDERS[name]) != count:
        raise DataError(
            f"class order {name} is for {len(ORDERS[name])} classes and there are {count}; type natural or seed:1993"
        )
    return ORDERS[name]
