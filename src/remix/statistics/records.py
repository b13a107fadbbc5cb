"""What is known of classes and tasks besides their statistics: names, labels, numbers of images."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

__all__ = ["MOST_IMAGES", "ClassRecord", "TaskRecord", "check_labels", "is_count"]

MOST_IMAGES = 10**12
"""Of a class, a task, a layer: numbers that every sum, as float or int64, has room for."""
_LARGEST_LABEL = 2**31


def is_count(value: object, least: int = 0) -> bool:
    """Whether this is a number of images."""
    return type(value) is int and least <= value <= MOST_IMAGES


@dataclass(frozen=True)
class ClassRecord:
    """A class: its name and how many images it was learned from."""

    name: str
    images: int

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(f"a class must have a name, got {self.name!r}")
        if not is_count(self.images, 1):
            raise ValueError(f"class {self.name!r} must have at least one image, got {repr(self.images)[:60]}")


@dataclass(frozen=True)
class TaskRecord:
    """A task: the labels of its classes and how many images it was learned from."""

    labels: tuple[int, ...]
    images: int

    def __post_init__(self) -> None:
        if not isinstance(self.labels, tuple) or not self.labels or not all(map(is_count, self.labels)):
            raise ValueError(f"a task must have labels from 0 up, got {str(self.labels)[:60]}")
        if not is_count(self.images, 1):
            raise ValueError(f"a task must have at least one image, got {repr(self.images)[:60]}")


def check_labels(labels: tuple[int, ...]) -> None:
    """Check that labels are classes in ascending order, each once.

    Raises:
        ValueError: if not.

    """
    ascending = all(one < other for one, other in pairwise(labels))
    if not labels or not ascending or labels[0] < 0 or labels[-1] >= _LARGEST_LABEL:
        shown = f"{labels[:10]}" + ("" if len(labels) <= 10 else f" and {len(labels) - 10} more")
        raise ValueError(f"labels must be at least one class, ascending from 0 up, got {shown}")
